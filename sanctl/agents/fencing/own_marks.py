# SPDX-License-Identifier: GPL-2.0-or-later
"""Marks the replicas here that nothing else would show to be behind, in one change of the CIB.

A Primary whose disk DRBD has dropped is served from the peer's, and nothing on its own disk says
that it is behind; so its monitor marks it. Where a pool fails, DRBD drops the disks of all devices
that are active in it within seconds. Each change of the CIB ends the transition that is under way,
so the first of their monitors marks them all, and the others find their marks there.

No monitor asks another one, as handlers do (shared_marks.py). The process that marks holds both
locks of each device that it marks, from before it looks at DRBD until it has read the mark back, as
the device's own monitor would. So each device is judged by what is seen under its own locks; a mark
cannot come after a demotion; a process that dies gives all locks back; and there is no answer that
could be late, or another's. A device whose locks are taken is left to its own monitor.

When a replica is marked: sanctl/plan/failover/fence_rules.py, dropped_disk.py.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from typing import NamedTuple

from sanctl.agents.fencing import outdate
from sanctl.agents.replica import resource_file
from sanctl.drivers import corosync, drbd_kernel, drbdsetup, outdated_marks
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.plan.failover import dropped_disk, fence_rules
from sanctl.system import journal, state_files
from sanctl.system.runner import DeadlineRunner, Runner

# Twice in a monitor, before the disk is attached again and before the state is published.
_TIME_S = 8.0
#: How long a monitor waits for another one that marks; what is left then is enough to mark itself.
_WAIT_S = 4.0
#: Monitors that wait hold the turn together, for as long as it takes to give it back.
_TURN_S = 0.1
#: How long the locks of other devices are waited for, all in all: their monitors look now, too.
_LOCKS_S = 1.0
#: The other devices must not take the time of the own one.
_STATES_S = 2.0
_SILENCE = "SAN-CMD-002"


class _Due(NamedTuple):
    """The replicas that are to be marked, and what was seen of the CIB before."""

    devices: tuple[str, ...]
    seen: outdated_marks.SeenMarks


def mark_served_from_peer(runner: Runner, device: str, others: Collection[str]) -> None:
    """Mark the replica here, if it is a Primary without a disk and its peer has good data.

    Under the device's locks, for which a demotion waits: the peer is not Primary before the mark is
    set, and clears it once the replica here is in sync. A disk that another process attaches
    meanwhile is marked by the source of its resync all the same. Each monitor asks, as for a peer.

    The other devices of this node in the same state are marked by the same change.

    The cluster moves the devices to the peer then, as it does by the scores.

    `others` are the nodes of the other replicas.

    Raises:
        SanctlError: the cluster or DRBD did not answer, or another monitor marks and is slow; the
            next monitor tries again.
    """
    begin_s = time.monotonic()
    runner = DeadlineRunner(runner, begin_s + _TIME_S)
    while not _is_settled(runner, device, others):
        # The other monitor marks this device, too, unless this process had its locks.
        left_s = begin_s + _WAIT_S - time.monotonic()
        with _turn(wait_s=max(left_s, 0.0), shared=True) as has_ended:
            pass
        if not has_ended or left_s <= 0:
            raise CommandError(
                Problem("SAN-AGENT-014", "another monitor marks replicas of this node, and is slow")
            )


def _is_settled(runner: Runner, device: str, others: Collection[str]) -> bool:
    """Mark the replica here if that is due; False: another monitor is at it."""
    with contextlib.ExitStack() as held:
        if not held.enter_context(outdate.locked_against_marks(device, wait_s=0.0)):
            with _turn(wait_s=0.0, shared=True) as is_free:
                return is_free  # by a handler, or a demotion: the next monitor asks
        here = os.uname().nodename
        state = drbdsetup.observe(runner, device)
        if state is None or not fence_rules.serves_from_peer(state, others=others):
            return True
        is_quorate = corosync.membership(runner).is_quorate
        seen = outdated_marks.read_device(runner, device)
        if not fence_rules.may_mark_own(
            state,
            is_quorate=is_quorate,
            here=here,
            others=others,
            marked=seen.devices[device].nodes(),
        ):
            return True
        try:
            if not held.enter_context(_turn(wait_s=_TURN_S)):
                return False
        except OSError:
            all_due = None  # no room for the lock's file: each monitor marks for itself
        else:
            all_due = _due_with_others(runner, device, others, held)
        due = _Due((device,), seen) if all_due is None else all_due
        for name, is_certain in _mark_all(runner, device, due, here):
            _log(name, "its disk here is lost, and it is served from the peer's", is_certain)
        return True


def _turn(*, wait_s: float, shared: bool = False) -> contextlib.AbstractContextManager[bool]:
    """Hold the lock of the monitor that marks for all devices here; yields whether it is held.

    It is there to share, not to protect: what protects a device are its own locks.
    """
    return state_files.locked(state_files.node_lock("own-marks"), wait_s=wait_s, shared=shared)


def _due_with_others(
    runner: Runner, device: str, others: Collection[str], held: contextlib.ExitStack
) -> _Due | None:
    """Return all replicas here that are to be marked, their locks held; None: only this one's.

    What is seen of them, and of this one, is seen under the locks. Of another device less is known
    than its own monitor knows: whatever mark it has, it is left to that.
    """
    try:
        found = _lock_others(runner, device, held)
        if not found:
            return None
        states = drbdsetup.observe_all(runner, timeout_s=_STATES_S)
        is_quorate = corosync.membership(runner).is_quorate
        seen = outdated_marks.read(runner, [device, *found])
    except (SanctlError, OSError):
        return None
    here = os.uname().nodename
    due = tuple(
        name
        for name, marks in seen.devices.items()
        if not (name != device and marks.nodes())
        and fence_rules.may_mark_own(
            states.get(name),
            is_quorate=is_quorate,
            here=here,
            others=others if name == device else found[name],
            marked=marks.nodes(),
        )
    )
    return _Due(due, seen)


def _lock_others(runner: Runner, device: str, held: contextlib.ExitStack) -> dict[str, list[str]]:
    """Hold the locks of the other devices that seem to be served from their peer's disk.

    Returns:
        The nodes of their other replicas.
    """
    # Without a process with DRBD 8.4; 9 does not say it in a file.
    if drbd_kernel.generation() < 9 and drbd_kernel.count_primaries_without_disk() < 2:
        return {}
    deadline_s = time.monotonic() + _LOCKS_S
    here = os.uname().nodename
    locked = {}
    for name, state in drbdsetup.observe_all(runner, timeout_s=_STATES_S).items():
        nodes = resource_file.replica_nodes(name) if name != device else []
        peers = [node for node in nodes if node != here]
        # Not a resource of somebody else.
        if here in nodes and fence_rules.serves_from_peer(state, others=peers):
            left_s = max(deadline_s - time.monotonic(), 0.0)
            with contextlib.ExitStack() as attempt:
                if attempt.enter_context(outdate.locked_against_marks(name, wait_s=left_s)):
                    held.push(attempt.pop_all())
                    locked[name] = peers
    return locked


def _mark_all(runner: Runner, device: str, due: _Due, here: str) -> list[tuple[str, bool]]:
    """Mark replicas in one change; return of each whether that is certain.

    Raises:
        SanctlError: refused, or the cluster did not answer; the marks may have been set.
    """
    names = due.devices
    if not names:
        return []
    try:
        outdated_marks.set_marks(runner, names, here, due.seen)
    except CommandError as error:
        if error.problems[0].code == _SILENCE or device not in names or len(names) == 1:
            raise
        # It may be another device's fault: one that is being deleted, say.
        names = (device,)
        outdated_marks.set_marks(runner, names, here, due.seen)
    # As after each mark: partitions that joined meanwhile may have agreed on another CIB.
    is_quorate = corosync.membership(runner).is_quorate
    after = outdated_marks.read(runner, names).devices
    return [(name, is_quorate and name in after and here in after[name].nodes()) for name in names]


def mark_of_all_lost(runner: Runner, device: str, *, peers: int) -> bool:
    """Mark the replica here before its disk is attached where no replica has one.

    Which one lost its disk last is not known. Another node may be promoted only with a disk, which
    its replica gets under its own mark. Each replica by itself: whether its disk is to be attached
    its own monitor alone knows.

    Args:
        runner: runs programs.
        device: the device.
        peers: how many other replicas it has.

    Returns:
        Whether the mark is certain: it is there, and the node has quorum.

    Raises:
        SanctlError: the cluster or DRBD did not answer; the next monitor tries again.
    """
    runner = DeadlineRunner(runner, time.monotonic() + _TIME_S)
    here = os.uname().nodename
    with outdate.locked_against_marks(device, wait_s=0.0) as is_mine:
        state = drbdsetup.observe(runner, device) if is_mine else None
        if state is None or not dropped_disk.are_all_lost(state, peers=peers):
            return False
        is_quorate = corosync.membership(runner).is_quorate
        seen = outdated_marks.read_device(runner, device)
        if not is_quorate or here in seen.devices[device].nodes():
            return is_quorate
        ((_, is_certain),) = _mark_all(runner, device, _Due((device,), seen), here)
    _log(device, "no replica has its disk, and the one here is to be attached", is_certain)
    return is_certain


def _log(device: str, why: str, is_certain: bool) -> None:
    journal.write(
        f"{device}: {why}: the replica on {os.uname().nodename} "
        + ("is marked as outdated" if is_certain else "is not certain to be marked yet"),
        priority=journal.WARNING,
        device=device,
        action="mark",
        step="own",
    )
