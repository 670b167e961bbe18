# SPDX-License-Identifier: GPL-2.0-or-later
"""Online verify as plan.drbd.verify_schedule says: starts it, records differences, repairs them.

An operator's order is a parameter of the device in the CIB: a number, the moment it was given, and
whether to repair. Each node keeps beside its data the results of its verifies, so that an order is
carried out once, however often it is read. DRBD logs the ranges that differ to the kernel log, and
marks them out of sync; they are sent when the standby disconnects and connects again. A standby
that disconnects by itself knows that it is out of date, so the Primary never has to wait.

DRBD 9 compares with one peer at a time, and forgets what it has found when that peer reconnects, or
when it compares with the next (tried, 9.3.3). There the Primary goes from peer to peer, and repairs
each before it compares with the next.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence

from sanctl.agents.cache import read_cache, write_cache
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import verify_history, verify_turn
from sanctl.drivers import drbd_kernel, drbdadm, drbdsetup, kernel_log, node_attributes
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.model.verify_result import (
    DIFFERS,
    INTERRUPTED,
    REPAIRED,
    REPAIRING,
    RUNNING,
    SAME,
    VerifyRequest,
    VerifyResult,
    parse_published,
)
from sanctl.parse.drbd import parse_out_of_sync_range, parse_verify_done
from sanctl.plan.device import short_monitor
from sanctl.plan.drbd import verify_schedule as plan
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

# How long a standby, which repairs after a verify, waits for the Primary to begin that verify.
_PEER_BEGINS_WITHIN_S = 5.0
_log = DeviceLog("verify")


def begin(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Begin a verify if one was ordered or is due by schedule; return whether one began.

    Raises:
        SanctlError: DRBD refused; the next monitor tries again.
    """
    order, schedule = VerifyRequest.parse(device.verify), sync_policy.policy_of(device).verify
    if schedule is None:
        with contextlib.suppress(OSError):  # the next monitor tries again
            verify_history.forget_schedule(runner, device)
        if order is None:
            return False
    latest = verify_history.latest(device)
    now_s = int(time.time())
    if schedule is not None and state.is_primary:
        with contextlib.suppress(OSError):  # the next monitor tries again
            verify_history.note_schedule(runner, device, str(schedule), now_s)
    if is_order_open(device):
        assert order is not None
        if not plan.may_start_verify(state) or _is_done_on_peer(runner, device, order.number):
            return False
        _start(runner, device, state, order.number)
        return True
    if schedule is None or not plan.is_due(
        schedule,
        latest,
        time.localtime(),
        waits_since_s=verify_turn.due_since_s(device, schedule),
    ):
        verify_turn.forget(device)
        return False
    if not plan.may_start_verify(state):
        return False
    compared_s = 0 if latest is None else latest.began_s
    with verify_turn.taken(runner, device, schedule, compared_s=compared_s) as may_begin:
        if may_begin:
            _start(runner, device, state, now_s)
            verify_turn.forget(device)
        return may_begin


def _start(runner: Runner, device: Device, state: ResourceState, number: int) -> None:
    """Begin a verify.

    Raises:
        SanctlError: DRBD refused.
    """
    # The disks are compared, not a read cache in RAM.
    read_cache.remove(device)
    # Before the verify begins: its lines in the kernel log come after this position.
    before = _log_position_file(device.name).read()
    try:
        if drbd_kernel.generation() >= 9:
            peers = sorted(peer.node_id for peer in state.peers if peer.node_id is not None)
            _write_log_position(device.name, kernel_log.newest(), peers)
            drbdsetup.start_verify_with(runner, device.name, peers[0])
        else:
            _write_log_position(device.name, kernel_log.newest())
            drbdsetup.start_verify(runner, device.minor)
    except SanctlError:
        _log_position_file(device.name).write(
            before
        )  # The end of another verify may come after that.
        raise
    verify_history.record(runner, device, VerifyResult(number, RUNNING, int(time.time())))
    _log(device.name, "verify begins")


def _is_done_on_peer(runner: Runner, device: Device, number: int) -> bool:
    """Whether another node, while it was Primary, has carried out this order; record that result.

    A verify that was interrupted, for example by a move of the device, is begun again.
    """
    here = os.uname().nodename
    for node in device.nodes:
        if node == here:
            continue
        try:
            result = parse_published(
                node_attributes.query(runner, verify_history.attribute(device.name), node)
            )
        except SanctlError:
            return True  # Not known: the next monitor asks again.
        if result is not None and plan.is_order_done_on_peer(
            result, VerifyRequest.parse(device.verify), number
        ):
            verify_history.record(runner, device, result)
            return True
    return False


def is_order_open(device: Device) -> bool:
    """Whether a verify was ordered that has not been carried out here."""
    order, done = VerifyRequest.parse(device.verify), verify_history.results(device)
    # Not the latest alone: one by schedule may lie ahead, where the clock was put back since.
    if order is None or any(each.order == order.number for each in done):
        return False
    return plan.is_order_open(order, done[-1] if done else None, int(time.time()))


def is_left_open(device: Device, *, is_connected: bool) -> bool:
    """Whether a verify or a repair is recorded as one that runs."""
    return plan.is_left_open(verify_history.latest(device), is_connected=is_connected)


def looks_within_s(device: Device) -> float | None:
    """Return in how long `begin` has to be called for a verify by schedule; None: no need yet."""
    schedule = sync_policy.policy_of(device).verify
    if schedule is None:
        return None
    return plan.looks_within_s(
        schedule,
        verify_history.latest(device),
        time.localtime(),
        waits_since_s=verify_turn.due_since_s(device, schedule),
        every_s=short_monitor.MINUTE_S,
        after_s=short_monitor.spread_s(
            device.name, short_monitor.MINUTE_S - short_monitor.LONGEST_INTERVAL_S
        ),
    )


def needs_tracking(device: Device, state: ResourceState) -> bool:
    """Whether `track` has to be called for a device without a running verify."""
    # With DRBD 9 no standby repairs.
    order = VerifyRequest.parse(device.verify) if drbd_kernel.generation() < 9 else None
    return plan.needs_completion(order, verify_history.latest(device), state, int(time.time()))


def track(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Record how a verify ended, repair what it found; return whether one runs or may begin.

    Raises:
        SanctlError: the cluster or DRBD did not answer.
    """
    latest = verify_history.latest(device)
    if latest is not None and latest.result in {RUNNING, REPAIRING}:
        # A verify that was begun after `state` was read would seem to have ended.
        state = drbdsetup.observe(runner, device.name) or state
    if any(peer.is_verifying for peer in state.peers):
        return True
    if drbd_kernel.generation() >= 9:
        return (
            latest is not None
            and latest.result in {RUNNING, REPAIRING}
            and _track_drbd9(runner, device, state, latest)
        )
    if latest is not None and latest.result == RUNNING:
        _end(runner, device, state, latest)
        return False
    order = VerifyRequest.parse(device.verify)
    now_s = int(time.time())
    is_repairing = latest is not None and latest.result == REPAIRING
    if latest is not None and is_repairing:
        if state.is_in_sync and not state.out_of_sync_kib:
            verify_history.record(runner, device, latest._replace(result=REPAIRED, ended_s=now_s))
            _log(device.name, f"repaired: {latest.found_kib} KiB were sent again")
            return False
        if state.is_primary or not plan.is_repair_still_ordered(order, latest, now_s):
            _record_interrupted(
                runner, device, latest, "the repair was cancelled, or this node is now Primary"
            )
            return False
    if not plan.may_repair(order, latest, state, now_s):
        # The Primary may not have begun or finished the verify yet.
        may_come = (
            order is not None and order.is_repair and now_s - order.number < _PEER_BEGINS_WITHIN_S
        )
        return is_repairing or may_come
    assert order is not None
    result = parse_published(
        node_attributes.query(runner, verify_history.attribute(device.name), _other_node(device))
    )
    if not plan.has_peer_found_differences(order, result):
        return False
    found = state.out_of_sync_kib or 0
    verify_history.record(runner, device, VerifyResult(order.number, REPAIRING, now_s, 0, found))
    _log(device.name, f"repairing: the Primary sends {found} KiB again")
    try:
        write_cache.disconnect_standby(runner, device, state)
    finally:
        drbdadm.adjust(runner, device.name)
    return True


def _track_drbd9(
    runner: Runner, device: Device, state: ResourceState, latest: VerifyResult
) -> bool:
    """Track a verify of DRBD 9, and go on to the next peer; return whether one runs."""
    since, left = _log_position(device.name)
    now_s = int(time.time())
    peer = next((each for each in state.peers if left and each.node_id == left[0]), None)
    is_repairing = latest.result == REPAIRING
    if not state.is_primary:
        # A repair sends this node's data, and another node may serve by now.
        _record_interrupted(runner, device, latest, "this node is no longer Primary")
        return False
    if peer is None or not peer.is_connected or not (peer.is_in_sync or is_repairing):
        _record_interrupted(runner, device, latest, "the replicas were disconnected")
        return False
    marked_kib = peer.out_of_sync_kib or 0
    if is_repairing and (marked_kib or not peer.is_in_sync):
        return True
    if not is_repairing and not _has_kernel_logged_end(device, peer.name):
        _record_interrupted(runner, device, latest, "DRBD has not logged its end")
        return False
    order = VerifyRequest.parse(device.verify)
    is_repair = order is not None and order.is_repair and order.number == latest.order
    found_kib = 0 if is_repairing else _found_kib(device, peer.name, marked_kib)
    if found_kib is None:
        _record_interrupted(
            runner, device, latest, f"what differs from {peer.name} is not marked any more"
        )
        return False
    if found_kib:
        latest = latest._replace(
            found_kib=latest.found_kib + found_kib,
            ranges=tuple(dict.fromkeys(_out_of_sync_ranges(device))),
        )
        if is_repair:
            # The peer is not UpToDate meanwhile, and with quorum-minimum-redundancy a Primary
            # refuses to lose its last UpToDate peer. Before the note: where the flush takes longer,
            # this is tried again.
            write_cache.leave_write_back(runner, device.name)
            verify_history.record(runner, device, latest._replace(result=REPAIRING))
            _log(device.name, f"repairing: {found_kib} KiB are sent again to {peer.name}")
            drbdsetup.resync_differences(runner, device.name, left[0])
            return True
    if len(left) > 1:
        read_cache.remove(device)
        _write_log_position(device.name, since, left[1:])
        verify_history.record(runner, device, latest._replace(result=RUNNING))
        drbdsetup.start_verify_with(runner, device.name, left[1])
        return True
    _conclude(runner, device, latest._replace(ended_s=now_s), is_repaired=is_repair)
    return False


def _conclude(
    runner: Runner, device: Device, done: VerifyResult, *, is_repaired: bool = False
) -> None:
    result = REPAIRED if is_repaired else DIFFERS
    verify_history.record(runner, device, done._replace(result=result if done.found_kib else SAME))
    if not done.found_kib:
        _log(device.name, "verify: the replicas are the same")
    elif is_repaired:
        _log(device.name, f"repaired: {done.found_kib} KiB were sent again")
    else:
        ranges = ", ".join(done.ranges[:8]) + (" ..." if len(done.ranges) > 8 else "")
        where = ranges or "ranges no longer in the kernel log"
        _log(
            device.name,
            f"verify: {done.found_kib} KiB differ, at {where}",
            priority=journal.ERROR,
        )


def _other_node(device: Device) -> str:
    here = os.uname().nodename
    return next((node for node in device.nodes if node != here), here)


def _end(runner: Runner, device: Device, state: ResourceState, latest: VerifyResult) -> None:
    if not state.is_in_sync:
        _record_interrupted(runner, device, latest, "the replicas were disconnected")
        return
    if not _has_kernel_logged_end(device):
        _record_interrupted(runner, device, latest, "DRBD has not logged its end")
        return
    found = state.out_of_sync_kib or 0
    ranges = tuple(_out_of_sync_ranges(device)) if found else ()
    done = latest._replace(ended_s=int(time.time()), found_kib=found, ranges=ranges)
    _conclude(runner, device, done)


def _record_interrupted(runner: Runner, device: Device, latest: VerifyResult, why: str) -> None:
    verify_history.record(
        runner, device, latest._replace(result=INTERRUPTED, ended_s=int(time.time()))
    )
    _log(device.name, f"verify was interrupted: {why}")


def _has_kernel_logged_end(device: Device, peer: str = "") -> bool:
    """Whether the kernel log has DRBD's "verify done", after the position of its beginning.

    Replicas in sync are no proof: the connection may have been lost and a resync made since, or
    this node crashed, and then the position is gone.
    """
    since, _ = _log_position(device.name)
    if since < 0:
        return False
    for number, text in kernel_log.records():
        done = parse_verify_done(text) if number > since else None
        if done is not None and done[:2] == (device.minor, peer):
            if done[2]:
                _log(device.name, f"{done[2]} KiB were being written to, and are not compared")
            return True
    return False


def _found_kib(device: Device, peer: str, marked_kib: int) -> int | None:
    """Return how much a verify of DRBD 9 has found to differ from a peer, in KiB.

    None where DRBD has forgotten it.
    """
    since, _ = _log_position(device.name)
    records = list(kernel_log.records())
    ranges = [each for each in _ranges(device, records) if each[1] == peer]
    found_kib = plan.differing_kib(
        marked_kib,
        logged_kib=sum(length for _, _, _, length in ranges) // 1024,
        is_log_whole=plan.is_log_whole([number for number, _ in records], since),
    )
    if marked_kib and found_kib == 0:
        _log(
            device.name,
            f"{marked_kib} KiB were marked as out of sync on {peer} before, and are the same",
        )
    return found_kib


def _out_of_sync_ranges(device: Device) -> list[str]:
    ranges = _ranges(device, kernel_log.records())
    return [f"{first}+{length}" for _, _, first, length in ranges]


def _ranges(device: Device, records: Iterable[tuple[int, str]]) -> list[tuple[int, str, int, int]]:
    """Return minor, peer, first byte and length of what was logged since the verify began."""
    since, _ = _log_position(device.name)
    found = (parse_out_of_sync_range(text) for number, text in records if number > since)
    return [each for each in filter(None, found) if each[0] == device.minor]


def _write_log_position(name: str, since: int, peers: Sequence[int] = ()) -> None:
    """Write where in the kernel log a verify began, and the peers that are left to compare."""
    _log_position_file(name).write(" ".join(map(str, (since, *peers))))


def _log_position(name: str) -> tuple[int, list[int]]:
    """Return the position and the peers left; -1 without one, also after a stop of the replica."""
    words = _log_position_file(name).read().split()
    numbers = [int(word) for word in words if word.isdecimal()]
    return (numbers[0], numbers[1:]) if numbers else (-1, [])


def _log_position_file(name: str) -> state_files.StateFile:
    return state_files.of_device(name, "verify-position")
