# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's fence-peer handler: makes sure that a lost peer will not serve, before I/O goes on.

DRBD with `fencing resource-and-stonith` freezes a Primary's I/O when it loses its peer, and calls
fence-peer; what that returns decides whether I/O goes on. A Secondary that is to become Primary
without its peer asks the same. The question is always: is it certain that the peer will not serve
this device with the data it has?

DRBD 9 asks it about each peer, at the same time. With three and more copies and `resource-only` it
freezes nothing by that: its quorum does, where the majority of the copies is gone.

The answer is a mark in the CIB (sanctl/agents/fencing/outdate.py). Silence is not absence: while
the peer is out of the membership and not known to be fenced, this waits, and I/O stays frozen.

A node that stays without quorum does not wait for ever: it reboots itself
(sanctl/plan/failover/frozen_io_reboot.py).

Exit codes as in drbd_nl.c (conn_try_outdate_peer): 4 the peer is outdated, 7 the peer was fenced;
anything DRBD does not know means "not certain".
"""

from __future__ import annotations

import contextlib
import time

from sanctl.agents.cache import minimum_redundancy, write_cache
from sanctl.agents.fencing import outdate
from sanctl.agents.handlers import drbd_environment
from sanctl.drivers import corosync, drbdsetup, self_fence
from sanctl.plan.failover import fence_rules, frozen_io_reboot
from sanctl.system import journal
from sanctl.system.runner import LocalRunner, Runner

_UNCERTAIN = 1
_DROPPED = frozenset({"Disconnecting", "StandAlone"})
# A promotion has 60 s; what is left is for the agent to say why it failed.
_PROMOTION_DEADLINE_S = 40.0
_LOG_EVERY_S = 30.0
# Who holds the lock holds it for a few answers of the cluster.
_LOCK_WAIT_S = 10.0
_RUNNER = LocalRunner()


def main() -> int:
    """Make sure that the peer will not serve the device; return DRBD's code for how.

    Called for a promotion, this gives up before the promotion's own time is over. Called for a
    Primary whose I/O is frozen it does not give up while that is so: nobody would ask again. It
    ends that itself, with the node, when nobody else can.
    """
    device, peer = drbd_environment.resource(), drbd_environment.peer()
    if not device or not peer:
        journal.write("fence-peer: DRBD named no resource or peer", priority=journal.ERROR)
        return _UNCERTAIN
    begin = time.monotonic()
    told_s = 0.0
    alone_since: float | None = None
    while True:
        try:
            # Before the mark: a crash while this flushes must leave the peer's copy to go on with.
            _note_dropped_connection(device, peer)
            write_cache.leave_write_back_unless_two(_RUNNER, device)
            with outdate.locked(device, wait_s=_LOCK_WAIT_S) as is_mine:
                if is_mine and not outdate.may_mark(_RUNNER, device, peer):
                    return _leave_unmarked(device, peer)
                standing = outdate.mark_outdated(_RUNNER, device, peer) if is_mine else "unknown"
            last = "this node has no quorum" if standing == "alone" else f"{peer} is {standing}"
        except Exception as error:
            # Also an error of this program itself: DRBD calls a handler that ends no second time
            # while I/O is frozen, so I/O would stay frozen for good.
            standing, last = _membership_without_pacemaker(_RUNNER), repr(error)
        alone_since = frozen_io_reboot.quorum_lost_since(
            alone_since, time.monotonic(), is_alone=standing == "alone"
        )
        waited_s = time.monotonic() - begin
        if standing == outdate.OWN_MARKED:
            journal.write(
                f"{device}: not promoted: this node's replica is marked as outdated; who marked it"
                f" has more (for good gone? 'sanctl device heal {device}')",
                priority=journal.ERROR,
                device=device,
                action="fence-peer",
                step="marked",
            )
            return _UNCERTAIN
        if fence_rules.is_certain(standing):
            journal.write(
                f"{device}: {peer} cannot be promoted any more ({standing}), I/O goes on",
                priority=journal.NOTICE,
                device=device,
                action="fence-peer",
                step=standing,
                duration_ms=round(waited_s * 1000),
            )
            return fence_rules.handler_exit_code(standing)
        if waited_s - told_s > _LOG_EVERY_S:
            told_s = waited_s
            journal.write(
                f"{device}: not certain that {peer} is gone, I/O is frozen: {last}",
                priority=journal.ERROR,
                device=device,
                action="fence-peer",
                step="uncertain",
            )
        if waited_s > _PROMOTION_DEADLINE_S and not _is_primary_without_peer(device, peer):
            return _UNCERTAIN
        if frozen_io_reboot.must_reboot(alone_since, time.monotonic()) and _is_frozen(device, peer):
            self_fence.reboot(
                _RUNNER,
                f"{device}: its I/O is frozen and this node has had no quorum for"
                f" {frozen_io_reboot.REBOOT_AFTER_S:g} s: nobody is going to fence it",
                device=device,
            )
        time.sleep(0.2)


def _note_dropped_connection(device: str, peer: str) -> None:
    """Have the monitor connect to a peer again whose connection a Primary that is held gave up.

    DRBD 9.3.3 refuses what would cost it its quorum if it can: that a peer's disk has failed. It
    then ends the connection for good (drbd_receiver.c, receive_state).
    """
    if not minimum_redundancy.is_required(device):
        return
    state = drbdsetup.observe(_RUNNER, device)
    if state is None or not state.is_primary:
        return
    if any(each.connection in _DROPPED for each in state.with_only_peer(peer).peers):
        # Seldom, and this handler is to begin at once.
        from sanctl.agents.connections import reconnect_dropped  # noqa: PLC0415

        reconnect_dropped.write_note(device, peer)


def _leave_unmarked(device: str, peer: str) -> int:
    journal.write(
        f"{device}: {peer} is not marked: it is back, or this node is no Primary any more",
        priority=journal.NOTICE,
        device=device,
        action="fence-peer",
        step="late",
    )
    return _UNCERTAIN


def _is_primary_without_peer(device: str, peer: str) -> bool:
    """Whether this node is Primary and still without the peer."""
    try:
        state = drbdsetup.observe(_RUNNER, device)
    except Exception:
        return True  # as in main: this handler must not end of an error
    return state is not None and state.is_primary and not state.with_only_peer(peer).is_connected


def _is_frozen(device: str, peer: str) -> bool:
    """Whether I/O is frozen here for want of the peer; with a majority of the copies it is not."""
    if not _is_primary_without_peer(device, peer):
        return False
    try:
        state = drbdsetup.observe(_RUNNER, device)
    except Exception:
        return True  # as in main: this handler must not end of an error
    return state is None or not state.has_quorum or state.suspended != "no"


def _membership_without_pacemaker(runner: Runner) -> str:
    """Return `unknown` for a node of the majority that Pacemaker does not answer, else `alone`.

    Who cannot ask corosync cannot show that it is part of the majority.
    """
    with contextlib.suppress(Exception):
        if corosync.membership(runner).is_quorate:
            return "unknown"
    return "alone"
