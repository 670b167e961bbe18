# SPDX-License-Identifier: GPL-2.0-or-later
"""Outdated marks as R1 needs them: which count, set where one is missing, removed with a note.

A removal that a process has sent may come after the process has died: a mark that was read counts
only if no removal of it may be under way. So a note is written before a mark is removed, and goes
once the removal is known to have ended, or the mark was set anew: the requests of one node to the
CIB are not overtaken by its later ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sanctl.agents.device_log import DeviceLog
from sanctl.agents.fencing import outdate
from sanctl.drivers import corosync, drbdsetup, outdated_marks
from sanctl.plan.failover import fence_rules
from sanctl.system import state_files
from sanctl.system.runner import Runner

#: A handler that marks the same peer has the lock for a moment.
_LOCK_S = 5.0
#: Of the node, not of the device: a removal outlives a stop of the replica as well.
_REMOVING = "reservations-unmarking"
_log = DeviceLog("reservations")


def read(runner: Runner, device: str) -> frozenset[str]:
    """Return the nodes whose replica is marked, as read back with quorum; none without it.

    Raises:
        SanctlError: the cluster did not answer.
    """
    # Before and after: partitions that joined in between may have agreed on another CIB.
    if not corosync.membership(runner).is_quorate:
        return frozenset()
    marked = outdated_marks.read_device(runner, device).devices[device].nodes()
    return marked if corosync.membership(runner).is_quorate else frozenset()


def mark(runner: Runner, device: str, node: str) -> bool:
    """Mark a node's replica, set anew where it is marked; return whether that is certain.

    Raises:
        SanctlError: the cluster or DRBD did not answer.
    """
    with outdate.locked(device, wait_s=_LOCK_S) as is_mine:
        if not is_mine:
            return False
        state = drbdsetup.observe(runner, device)
        if not fence_rules.may_mark(state and state.with_only_peer(node), is_promoting=False):
            return False
        membership = outdate.mark_outdated(runner, device, node, may_lead_alone=False)
    if not fence_rules.is_certain(membership):
        return False
    _note(device, node).remove()
    return True


def is_clearing(device: str, node: str) -> bool:
    """Whether a removal of a node's mark was begun here and is not known to have ended."""
    try:
        return _note(device, node).exists()
    except OSError:
        return True  # not known


@contextlib.contextmanager
def removing(device: str, node: str) -> Iterator[None]:
    """Note that a mark is being removed; what ends by an error, or never, stays noted.

    Raises:
        OSError: /run has no room: the mark must stay.
    """
    note = _note(device, node)
    note.write()
    yield
    try:
        note.remove()
    except OSError as error:
        _log(device, f"the note of a mark's removal stays, and costs a mark more: {error}")


def _note(device: str, node: str) -> state_files.StateFile:
    return state_files.of_node(f"{_REMOVING}.{device}.{node}")
