# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's fence-peer handler: waits for a lost peer's mark; how long, and when it gives up.

DRBD with `fencing resource-and-stonith` freezes a Primary's I/O when it loses its peer, and calls
fence-peer; the exit code decides whether I/O goes on. DRBD also calls fence-peer when a Secondary
is to become Primary without its peer. The question is always: is it certain that the peer will not
serve this device with the data that the peer has?

DRBD 9 calls fence-peer for each peer, at the same time. With three and more replicas and
`resource-only` DRBD freezes no I/O for that: its quorum does, where the majority of the replicas is
gone. So where I/O goes on the peer is marked at once, also while it is not known to be fenced
(docs/adr/0029); the answer still waits for that.

The answer is a mark in the CIB (sanctl/agents/fencing/outdate.py). Silence is not absence: while
the peer is out of the membership and not known to be fenced, this handler waits, and I/O stays
frozen.

A node that stays without quorum does not wait for ever: the node reboots itself
(sanctl/plan/failover/frozen_io_reboot.py).

Exit codes as in drbd_nl.c (conn_try_outdate_peer): 4 the peer is outdated, 7 the peer was fenced;
anything DRBD does not know means "not certain".
"""

from __future__ import annotations

import contextlib
import time

from sanctl.agents.cache import flush_unit, minimum_redundancy, write_cache
from sanctl.agents.fencing import outdate
from sanctl.agents.handlers import drbd_environment
from sanctl.drivers import corosync, drbd_kernel, drbdsetup, self_fence
from sanctl.errors import SanctlError
from sanctl.plan.failover import fence_rules, frozen_io_reboot
from sanctl.system import journal
from sanctl.system.runner import LocalRunner, Runner

_UNCERTAIN = 1
_DROPPED = frozenset({"Disconnecting", "StandAlone"})
# A promotion waits 57 s for DRBD; in the rest the agent reports why it failed.
_PROMOTION_DEADLINE_S = 40.0
_LOG_EVERY_S = 30.0
# A process that holds the lock holds it for a few answers of the cluster.
_LOCK_WAIT_S = 10.0
# So long between two looks while hosts may wait for the answer, and while I/O goes on without it:
# that may take until somebody repairs the fencing, for each device.
_POLL_S, _AHEAD_POLL_S = 0.2, 1.0
_WAITS_FOR = {
    "alone": "this node has no quorum",
    fence_rules.PRIMARY_MARKED: (
        "this node's replica is marked as outdated: the other one may have been promoted meanwhile"
    ),
}
_RUNNER = LocalRunner()


def main() -> int:
    """Make sure that the peer will not serve the device; return DRBD's code for how.

    Called for a promotion, this gives up before the promotion's timeout. Called for a Primary
    whose I/O is frozen, it does not give up while I/O is frozen: DRBD would not call it again. It
    reboots this node when no other node can end the freeze.
    """
    device, peer = drbd_environment.resource(), drbd_environment.peer()
    if not device or not peer:
        journal.write("fence-peer: DRBD named no resource or peer", priority=journal.ERROR)
        return _UNCERTAIN
    begin = time.monotonic()
    logged_s = 0.0
    alone_since: float | None = None
    membership = ""
    while True:
        before = membership
        try:
            # Before the mark: a crash during this flush must leave the peer's replica promotable.
            _note_dropped_connection(device, peer, is_first=not membership)
            write_cache.leave_write_back_unless_two(_RUNNER, device)
            with outdate.locked(device, wait_s=_LOCK_WAIT_S) as is_mine:
                if is_mine and not outdate.may_mark(_RUNNER, device, peer):
                    return _leave_as_it_is(device, peer, was_ahead=before == outdate.AHEAD)
                membership = "unknown"
                if is_mine:
                    membership = outdate.mark_lost_and_without_disk(
                        _RUNNER, device, peer, last=before
                    )
            last = _WAITS_FOR.get(membership, f"{peer} is {membership}")
        except Exception as error:
            # Also an error of this program itself: while I/O is frozen, DRBD does not call the
            # handler again, so I/O would stay frozen for good.
            membership, last = _membership_without_pacemaker(_RUNNER), repr(error)
        alone_since = frozen_io_reboot.quorum_lost_since(
            alone_since, time.monotonic(), is_alone=membership == "alone"
        )
        waited_s = time.monotonic() - begin
        if membership == outdate.OWN_MARKED:
            journal.write(
                f"{device}: not promoted: this node's replica is marked as outdated; the node that"
                f" set the mark has newer data (gone for good? 'sanctl device heal {device}')",
                priority=journal.ERROR,
                device=device,
                action="fence-peer",
                step="marked",
            )
            return _UNCERTAIN
        if fence_rules.is_certain(membership):
            # What is acknowledged from now on this replica may have alone.
            _start_flushes(device)
            journal.write(
                f"{device}: {peer} cannot be promoted any more ({membership}), I/O goes on",
                priority=journal.NOTICE,
                device=device,
                action="fence-peer",
                step=membership,
                duration_ms=round(waited_s * 1000),
            )
            return fence_rules.handler_exit_code(membership)
        if membership == outdate.AHEAD != before:
            _start_flushes(device)
        if waited_s - logged_s > _LOG_EVERY_S:
            logged_s = waited_s
            text = f"not certain that {peer} is gone, I/O is frozen: {last}"
            if membership == outdate.AHEAD:
                text = f"{peer} is not known to be gone, and marked as outdated: I/O goes on"
            journal.write(
                f"{device}: {text}",
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
                f"{device}: I/O is frozen and this node has had no quorum for"
                f" {frozen_io_reboot.REBOOT_AFTER_S:g} s: no other node is going to fence it",
                device=device,
            )
        time.sleep(_AHEAD_POLL_S if membership == outdate.AHEAD else _POLL_S)


def _note_dropped_connection(device: str, peer: str, *, is_first: bool) -> None:
    """Have the monitor reconnect a peer that a Primary with minimum redundancy has disconnected.

    DRBD 9.3.3 refuses a change that would cost it its quorum where it can: a peer's report that its
    disk has failed. DRBD then ends the connection for good (drbd_receiver.c, receive_state).

    At the first look also where the requirement is gone, and the handler of another peer is
    running: that may have left write-back meanwhile, for both. Nowhere else, as replicas that have
    diverged are StandAlone, too.
    """
    if not minimum_redundancy.is_required(device) and not (is_first and _is_beside_another(device)):
        return
    state = drbdsetup.observe(_RUNNER, device)
    if state is None or not state.is_primary:
        return
    if any(each.connection in _DROPPED for each in state.with_only_peer(peer).peers):
        # Imported here: rarely needed, and this handler must start fast.
        from sanctl.agents.connections import reconnect_dropped  # noqa: PLC0415

        # Without room for it that connection stays as it is: the mark must not wait for it.
        with contextlib.suppress(OSError):
            reconnect_dropped.write_note(device, peer)


def _is_beside_another(device: str) -> bool:
    """Whether the handler of another peer of the device is running; False: not, or not known."""
    # Imported here: rarely needed, and this handler must start fast.
    from sanctl.agents.replica import sync_policy  # noqa: PLC0415
    from sanctl.drivers import drbd_handlers  # noqa: PLC0415

    try:
        # To look at all processes takes time: of devices that can be in write-back alone.
        return (
            drbd_kernel.generation() >= 9
            and sync_policy.recorded_cache(device).startswith("write-back")
            and drbd_handlers.observe_calls().resources.count(device) > 1
        )
    except (SanctlError, OSError):
        return False


def _start_flushes(device: str) -> None:
    with contextlib.suppress(Exception):  # as in main; the next monitor starts them
        flush_unit.start_unless_stable(_RUNNER, device)


def _leave_as_it_is(device: str, peer: str, *, was_ahead: bool) -> int:
    what = "stays marked until it is in sync" if was_ahead else "is not marked"
    journal.write(
        f"{device}: {peer} {what}: it is connected, or this node is no Primary any more",
        priority=journal.NOTICE,
        device=device,
        action="fence-peer",
        step="late",
    )
    return _UNCERTAIN


def _is_primary_without_peer(device: str, peer: str) -> bool:
    """Whether this node is Primary and the peer not connected; True if DRBD does not answer."""
    try:
        state = drbdsetup.observe(_RUNNER, device)
    except Exception:
        return True  # as in main: this handler must not end of an error
    return state is not None and state.is_primary and not state.with_only_peer(peer).is_connected


def _is_frozen(device: str, peer: str) -> bool:
    """Whether I/O is frozen here without the peer; with a majority of the replicas it is not."""
    if not _is_primary_without_peer(device, peer):
        return False
    try:
        state = drbdsetup.observe(_RUNNER, device)
    except Exception:
        return True  # as in main: this handler must not end of an error
    return state is None or not state.has_quorum or state.suspended != "no"


def _membership_without_pacemaker(runner: Runner) -> str:
    """Return the membership after Pacemaker gave no answer: `unknown` with quorum, else `alone`.

    A node that gets no answer from corosync, either, cannot show that it has quorum.
    """
    with contextlib.suppress(Exception):
        if corosync.membership(runner).is_quorate:
            return "unknown"
    return "alone"
