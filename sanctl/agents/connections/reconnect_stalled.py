# SPDX-License-Identifier: GPL-2.0-or-later
"""Reconnects a DRBD 9 peer whose handshake or resync stalls, or has the Primary fill the disk here.

Which peers, and why so: sanctl/plan/drbd/stalled_handshake.py. What DRBD's bitmap says of the peer
stays, and its mark in the CIB, too, until the Primary is in sync with it. Where the next handshake
finds nothing to send, a verify shows whether that is so; the journal asks for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from sanctl.agents.connections import reconnect_dropped
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdadm, drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.plan.drbd import stalled_handshake as plan
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

#: Longer than from one monitor to the next: what was not seen for so long has ended meanwhile.
_SAME_WITHIN_S = 40.0
#: The same for a resync, which is at one amount once only: its monitors may wait for a turn.
_SAME_RESYNC_WITHIN_S = 120.0
_MAX_DOUBLINGS = 6
_HANDSHAKE, _RESYNC = "stalled", "stands"


class _Stall(NamedTuple):
    """A handshake with one peer.

    Attributes:
        first_s: when it was first seen, or last ended, in seconds since the node booted.
        last_s: when it was last seen.
        attempts: how often it was ended since the peer was last in another state.
        amount: of a resync how far it is; nothing of a handshake.
    """

    first_s: float
    last_s: float
    attempts: int
    amount: plan.Amount = plan.NO_AMOUNT


def reconnect(
    runner: Runner, device: Device, state: ResourceState, is_member: Callable[[str], bool]
) -> ResourceState:
    """Disconnect from a peer whose handshake has stalled; connect again, or leave that to the next.

    A disk that lacks blocks, and that no resync fills, is filled by the Primary instead.

    Called while there are such peers. One that DRBD has disconnected from is left to the next
    monitor, which connects.

    Args:
        runner: runs drbdsetup and drbdadm.
        device: the device.
        state: as a monitor has seen it.
        is_member: whether a node is a member of this node's partition, which has quorum.

    Returns:
        The state after that.

    Raises:
        SanctlError: DRBD did not answer; the next monitor tries again.
    """
    if drbd_kernel.generation() < 9:
        return state
    # DRBD may go on listing one that has been dropped.
    whole, state = state, state.with_only_peers(device.nodes)
    now_s = time.monotonic()
    for peer in plan.dropped_peers(state):
        seen = _seen(device, peer.name, now_s)
        if now_s - seen.first_s >= plan.STALLED_AFTER_S * 2**seen.attempts:
            seen = _Stall(now_s, now_s, min(seen.attempts + 1, _MAX_DOUBLINGS))
            reconnect_dropped.write_later(device.name, peer.name)
        _save(device, peer.name, seen)
    _note_held_back(device, state, now_s)
    handshakes = [(peer, plan.STALLED_AFTER_S) for peer in plan.exchanging_peers(state)]
    resyncs = [(peer, plan.STANDS_AFTER_S) for peer in plan.filling_peers(state)]
    for peer, after_s in (*handshakes, *resyncs):
        amount = plan.amount(peer) if after_s == plan.STANDS_AFTER_S else plan.NO_AMOUNT
        seen = _seen(device, peer.name, now_s, amount)
        is_stalled = now_s - seen.first_s >= after_s * 2**seen.attempts
        if peer.node_id is None or not is_stalled or not plan.may_reconnect(state, peer):
            _save(device, peer.name, seen)
            continue
        is_negotiating = plan.is_negotiating(state)
        is_exchanging = is_negotiating or peer.replication != "Established"
        what = state.disk if is_negotiating else peer.replication
        if not is_exchanging and state.disk == "UpToDate":
            what = f"{peer.disk}, with no block that differs,"
        elif not is_exchanging:
            what = f"a resync ({state.disk} here, {peer.disk} there)"
        journal.write(
            f"{device.name}: {what} with {peer.name} does not end: reconnecting; then"
            f" 'sanctl device verify {device.name}' shows whether the replicas are the same",
            priority=journal.WARNING,
            device=device.name,
            action="reconnect",
        )
        attempts = min(seen.attempts + 1, _MAX_DOUBLINGS)
        _save(device, peer.name, _Stall(now_s, now_s, attempts, amount))
        # First: if this process dies before it connects, a later monitor connects.
        waits = is_negotiating and peer.role == "Primary"
        note = reconnect_dropped.write_noticed if waits else reconnect_dropped.write_note
        note(device.name, peer.name)
        # A Primary refuses the orderly end: the replica would be Outdated by it.
        drbdsetup.disconnect_peer(runner, device.name, peer.node_id, is_forced=is_negotiating)
        if not waits:
            drbdadm.adjust(runner, device.name)
        # One at a time: the next monitor sees what became of it.
        return drbdsetup.observe(runner, device.name) or whole
    return _fill(runner, device, state, now_s, is_member) or whole


def _fill(
    runner: Runner,
    device: Device,
    state: ResourceState,
    now_s: float,
    is_member: Callable[[str], bool],
) -> ResourceState | None:
    """Begin the resync of a disk that nothing fills, after a minute; return the state after it."""
    source = plan.source_for_unfilled(state)
    if source is None or source.node_id is None:
        return None
    # The bitmaps miss what it has lost (docs/adr/0027): it is filled as a whole by others' rules.
    if lost_writes.is_suspect(device.name, lost_writes.data_file(device.name)):
        return None
    seen = _seen(device, source.name, now_s)
    if now_s - seen.first_s < plan.STALLED_AFTER_S * 2**seen.attempts:
        _save(device, source.name, seen)
        return None
    # The monitor's look may be old. And only beside a member: the source's handler refuses any
    # other when the disk here is Inconsistent already.
    now = drbdsetup.observe(runner, device.name)
    again = now and plan.source_for_unfilled(now.with_only_peers(device.nodes))
    if not again or again.node_id != source.node_id or not is_member(source.name):
        return now
    journal.write(
        f"{device.name}: the disk here is {state.disk}, and no resync fills it: {source.name}, the"
        f" Primary, sends the {again.out_of_sync_kib} KiB that the bitmaps name",
        priority=journal.WARNING,
        device=device.name,
        action="resync",
    )
    _save(device, source.name, _Stall(now_s, now_s, min(seen.attempts + 1, _MAX_DOUBLINGS)))
    drbdsetup.resync_from(runner, device.minor, source.node_id)
    return drbdsetup.observe(runner, device.name)


def _note_held_back(device: Device, state: ResourceState, now_s: float) -> None:
    """Begin anew the time of resyncs that wait: they are at one amount, and do not stand still."""
    for peer in state.peers:
        if plan.is_held_back(peer) and _note(device, peer.name, _RESYNC).exists():
            seen = _seen(device, peer.name, now_s, plan.amount(peer))
            _save(device, peer.name, seen._replace(first_s=now_s))


def _seen(device: Device, peer: str, now_s: float, amount: plan.Amount = plan.NO_AMOUNT) -> _Stall:
    """Return since when a peer is seen in the handshake, or a resync there, by each monitor."""
    is_resync = amount != plan.NO_AMOUNT
    within_s = _SAME_RESYNC_WITHIN_S if is_resync else _SAME_WITHIN_S
    try:
        words = _note(device, peer, _RESYNC if is_resync else _HANDSHAKE).read().split()
        first, last, attempts, left, received = words
        before = _Stall(float(first), float(last), int(attempts), (int(left), int(received)))
    except ValueError:
        return _Stall(now_s, now_s, 0, amount)
    is_known = before.first_s <= now_s and now_s - before.last_s >= 0
    if is_known and now_s - before.last_s <= within_s and before.amount == amount:
        return before._replace(last_s=now_s)
    # Of a resync also over a new connection, which counts from 0 what it has received.
    has_moved = not is_resync or amount[0] < before.amount[0]
    return _Stall(now_s, now_s, 0 if has_moved or not is_known else before.attempts, amount)


def _save(device: Device, peer: str, stall: _Stall) -> None:
    kind = _HANDSHAKE if stall.amount == plan.NO_AMOUNT else _RESYNC
    _note(device, peer, kind).write(
        f"{stall.first_s:.1f} {stall.last_s:.1f} {stall.attempts} {stall.amount[0]}"
        f" {stall.amount[1]}"
    )


def _note(device: Device, peer: str, kind: str) -> state_files.StateFile:
    return state_files.of_device(device.name, f"{kind}.{peer}")
