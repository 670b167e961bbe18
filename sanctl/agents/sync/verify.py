# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares a device's replicas on the node that serves it, and repairs on the one that does not.

An operator's order is a parameter of the device in the CIB: a number, the moment it was given, and
whether to repair. Each node keeps beside its data what it has done, so that an order is followed
once, however often it is seen. DRBD writes the ranges that differ to the kernel's log, and marks
them; what is marked is sent when the standby disconnects and connects again. It goes out of
date by that itself, and knows it, so that the node that serves never waits.

DRBD 9 compares with one peer at a time, and forgets what it has found when it is connected anew, or
compares with the next (tried, 9.3.3). There the node that serves goes from peer to peer, and sends
each what it has found before it goes on.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from sanctl.agents.cache import read_cache, write_cache
from sanctl.agents.publish import replica_state
from sanctl.agents.replica import parts, sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, kernel_log, node_attributes
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
from sanctl.plan.drbd import verify_schedule as plan
from sanctl.system import journal, state_files
from sanctl.system.files import read_text_or, write_atomically
from sanctl.system.runner import Runner

_KEPT = 100
# So long the standby waits to see the verify begin that it is to repair after.
_LEAD_S = 5.0


def attribute(name: str) -> str:
    """Return the node attribute that holds the latest verify of a device."""
    return f"sanctl.verify.{name}"


def begin(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Begin a verify if one was ordered or is due; return whether one began.

    Raises:
        SanctlError: DRBD refused; the next monitor tries again.
    """
    order, schedule = VerifyRequest.parse(device.verify), sync_policy.policy_of(device).verify
    if order is None and schedule is None:
        return False
    latest = _latest(device)
    now_s = int(time.time())
    if plan.is_order_open(order, latest, now_s):
        assert order is not None
        number = order.number
    elif plan.is_due(schedule, latest, time.localtime()):
        number = now_s
    else:
        return False
    if not plan.may_start_verify(state) or _has_been_done(runner, device, number):
        return False
    # What is on the disks is compared, not what is in RAM.
    read_cache.remove(runner, device)
    # Before it begins: what it finds is behind this record.
    before = _position(device.name).read()
    try:
        if drbdsetup.generation() >= 9:
            peers = sorted(peer.node_id for peer in state.peers if peer.node_id is not None)
            _mark(device.name, kernel_log.newest(), peers)
            drbdsetup.start_verify_with(runner, device.name, peers[0])
        else:
            _mark(device.name, kernel_log.newest())
            drbdsetup.start_verify(runner, device.minor)
    except SanctlError:
        _position(device.name).write(before)  # The end of another one may be behind that.
        raise
    _keep(runner, device, VerifyResult(number, RUNNING, now_s))
    _say(device, "verify begins")
    return True


def _has_been_done(runner: Runner, device: Device, number: int) -> bool:
    """Whether a node that served before has compared already, as was ordered; it is kept here, too.

    One that was interrupted, as by the move, is begun again.
    """
    here = os.uname().nodename
    for node in device.nodes:
        if node == here:
            continue
        try:
            told = parse_published(node_attributes.query(runner, attribute(device.name), node))
        except SanctlError:
            return True  # Not known: the next monitor asks again.
        if told is not None and plan.is_order_done_on_peer(
            told, VerifyRequest.parse(device.verify), number
        ):
            _keep(runner, device, told)
            return True
    return False


def needs_tracking(device: Device, state: ResourceState) -> bool:
    """Whether `attend` should be called for a device of which nothing is seen to run."""
    # With DRBD 9 no standby repairs.
    order = VerifyRequest.parse(device.verify) if drbdsetup.generation() < 9 else None
    return plan.needs_completion(order, _latest(device), state, int(time.time()))


def track(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Write down how a verify ended, repair what one found; return whether one runs or may.

    Raises:
        SanctlError: the cluster or DRBD did not answer.
    """
    latest = _latest(device)
    if latest is not None and latest.result in {RUNNING, REPAIRING}:
        # It may have been begun since `state` was looked at, and would seem to have ended.
        state = drbdsetup.observe(runner, device.name) or state
    if any(peer.is_verifying for peer in state.peers):
        return True
    if drbdsetup.generation() >= 9:
        return (
            latest is not None
            and latest.result in {RUNNING, REPAIRING}
            and _attend_several(runner, device, state, latest)
        )
    if latest is not None and latest.result == RUNNING:
        _end(runner, device, state, latest)
        return False
    order = VerifyRequest.parse(device.verify)
    now_s = int(time.time())
    is_repairing = latest is not None and latest.result == REPAIRING
    if latest is not None and is_repairing:
        if state.is_in_sync and not state.out_of_sync_kib:
            _keep(runner, device, latest._replace(result=REPAIRED, ended_s=now_s))
            _say(device, f"repaired: {latest.found_kib} KiB were sent anew")
            return False
        if state.is_primary or not plan.is_repair_still_ordered(order, latest, now_s):
            _break_off(runner, device, latest, "the repair is no longer wanted, or not here")
            return False
    if not plan.may_repair(order, latest, state, now_s):
        # The peer may still be at it.
        may_come = order is not None and order.is_repair and now_s - order.number < _LEAD_S
        return is_repairing or may_come
    assert order is not None
    told = parse_published(node_attributes.query(runner, attribute(device.name), _serving(device)))
    if not plan.has_peer_found_differences(order, told):
        return False
    found = state.out_of_sync_kib or 0
    _keep(runner, device, VerifyResult(order.number, REPAIRING, now_s, 0, found))
    _say(device, f"repairing: {found} KiB are sent anew by the node that serves")
    try:
        write_cache.disconnect_standby(runner, device, state)
    finally:
        drbdadm.adjust(runner, device.name)
    return True


def _attend_several(
    runner: Runner, device: Device, state: ResourceState, latest: VerifyResult
) -> bool:
    """Go on to the next peer, after the one before was repaired; return whether there is more."""
    since, left = _marked(device.name)
    now_s = int(time.time())
    peer = next((each for each in state.peers if left and each.node_id == left[0]), None)
    is_repairing = latest.result == REPAIRING
    if not state.is_primary:
        # What is sent anew is what this node has, and another may serve by now.
        _break_off(runner, device, latest, "this node serves no more")
        return False
    if peer is None or not peer.is_connected or not (peer.is_in_sync or is_repairing):
        _break_off(runner, device, latest, "the replicas lost contact")
        return False
    found_kib = peer.out_of_sync_kib or 0
    if is_repairing and (found_kib or not peer.is_in_sync):
        return True
    if not is_repairing and not _came_to_its_end(device, peer.name):
        _break_off(runner, device, latest, "DRBD has not told of its end")
        return False
    order = VerifyRequest.parse(device.verify)
    is_repair = order is not None and order.is_repair and order.number == latest.order
    if not is_repairing and found_kib:
        latest = latest._replace(
            found_kib=latest.found_kib + found_kib, ranges=tuple(dict.fromkeys(_ranges(device)))
        )
        if is_repair:
            _keep(runner, device, latest._replace(result=REPAIRING))
            _say(device, f"repairing: {found_kib} KiB are sent anew to {peer.name}")
            # It is no good copy meanwhile, and a Primary that is held does not let go of its last.
            write_cache.leave_write_back(runner, device.name)
            drbdsetup.resync_differences(runner, device.name, left[0])
            return True
    if len(left) > 1:
        read_cache.remove(runner, device)
        _mark(device.name, since, left[1:])
        _keep(runner, device, latest._replace(result=RUNNING))
        drbdsetup.start_verify_with(runner, device.name, left[1])
        return True
    _conclude(runner, device, latest._replace(ended_s=now_s), is_repaired=is_repair)
    return False


def _conclude(
    runner: Runner, device: Device, done: VerifyResult, *, is_repaired: bool = False
) -> None:
    result = REPAIRED if is_repaired else DIFFERS
    _keep(runner, device, done._replace(result=result if done.found_kib else SAME))
    if not done.found_kib:
        _say(device, "verify: the replicas are the same")
    elif is_repaired:
        _say(device, f"repaired: {done.found_kib} KiB were sent anew")
    else:
        where = ", ".join(done.ranges[:8]) + (" ..." if len(done.ranges) > 8 else "")
        _say(
            device,
            f"verify: {done.found_kib} KiB differ, at {where or 'places the log no longer has'}",
            priority=journal.ERROR,
        )


def _serving(device: Device) -> str:
    here = os.uname().nodename
    return next((node for node in device.nodes if node != here), here)


def _end(runner: Runner, device: Device, state: ResourceState, latest: VerifyResult) -> None:
    if not state.is_in_sync:
        _break_off(runner, device, latest, "the replicas lost contact")
        return
    if not _came_to_its_end(device):
        _break_off(runner, device, latest, "DRBD has not told of its end")
        return
    found = state.out_of_sync_kib or 0
    ranges = tuple(_ranges(device)) if found else ()
    done = latest._replace(ended_s=int(time.time()), found_kib=found, ranges=ranges)
    _conclude(runner, device, done)


def _break_off(runner: Runner, device: Device, latest: VerifyResult, why: str) -> None:
    _keep(runner, device, latest._replace(result=INTERRUPTED, ended_s=int(time.time())))
    _say(device, f"verify was interrupted: {why}")


def _came_to_its_end(device: Device, peer: str = "") -> bool:
    """Whether DRBD says so, behind the mark of the verify's beginning.

    Replicas in sync are not enough: contact may have been lost and a resync been made since, or
    this node crashed, which takes the mark with it.
    """
    since, _ = _marked(device.name)
    if since < 0:
        return False
    for number, text in kernel_log.records():
        told = parse_verify_done(text) if number > since else None
        if told is not None and told[:2] == (device.minor, peer):
            if told[2]:
                _say(device, f"{told[2]} KiB were being written to, and are not compared")
            return True
    return False


def _ranges(device: Device) -> list[str]:
    since, _ = _marked(device.name)
    found = (
        parse_out_of_sync_range(text) for number, text in kernel_log.records() if number > since
    )
    return [f"{first}+{length}" for minor, first, length in filter(None, found)
            if minor == device.minor]  # fmt: skip


def _mark(name: str, since: int, peers: Sequence[int] = ()) -> None:
    """Note where in the kernel's log a verify began, and the peers that are left to compare."""
    _position(name).write(" ".join(map(str, (since, *peers))))


def _marked(name: str) -> tuple[int, list[int]]:
    """Return what `_mark` noted; -1 where it has not, or not in this life of the replica."""
    words = _position(name).read().split()
    numbers = [int(word) for word in words if word.isdecimal()]
    return (numbers[0], numbers[1:]) if numbers else (-1, [])


def _position(name: str) -> state_files.StateFile:
    return state_files.of_device(name, "verify-position")


def history(device: Device) -> list[VerifyResult]:
    """Return the verifies that this node remembers of a device, the newest last."""
    path = parts.note_path(device, "verify")
    lines = [] if path is None else read_text_or(path, "").splitlines()
    return [entry for line in lines if (entry := VerifyResult.parse(line)) is not None]


def _latest(device: Device) -> VerifyResult | None:
    return next(iter(reversed(history(device))), None)


def _keep(runner: Runner, device: Device, entry: VerifyResult) -> None:
    """Write it down for good, then tell the cluster."""
    path = parts.note_path(device, "verify")
    if path is None:
        return
    before = [old for old in history(device) if old.order != entry.order]
    lines = [*before, entry][-_KEPT:]
    write_atomically(path, "".join(f"{line}\n" for line in lines))
    publish(runner, device)


def publish(runner: Runner, device: Device) -> None:
    """Tell the cluster the latest verify; what cannot be told now is told at the next start."""
    latest = _latest(device)
    if latest is None:
        return
    try:
        node_attributes.publish(runner, attribute(device.name), latest.published)
    except SanctlError as error:
        replica_state.log_failure(device.name, error)


def withdraw(runner: Runner, device: Device) -> None:
    """Take back what was told of a device that is stopped here; its history stays with its data."""
    with contextlib.suppress(SanctlError):
        node_attributes.delete(runner, attribute(device.name))


def _say(device: Device, text: str, *, priority: int = journal.NOTICE) -> None:
    journal.write(f"{device.name}: {text}", priority=priority, device=device.name, action="verify")
