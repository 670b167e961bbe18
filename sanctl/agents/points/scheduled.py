# SPDX-License-Identifier: GPL-2.0-or-later
"""Restore points by schedule: whose units the pool agent starts, one attempt for a slot.

What is due follows from the CIB (sanctl/plan/device/point_schedule.py), which the pool's monitor
has read anyway; the unit's process decides again, on what the CIB has then.
"""

from __future__ import annotations

import contextlib
import time

from sanctl.drivers import gate
from sanctl.errors import SanctlError
from sanctl.model.point_schedule import SCHEDULE_PREFIX, PointSchedule
from sanctl.model.restore_point import RestorePoint
from sanctl.plan.device.point_schedule import attempt_of
from sanctl.plan.device.scheduled_group import rules_due_of_all
from sanctl.system import state_files
from sanctl.system.runner import Runner

_TIMEOUT_S = 5.0
#: The units of so many devices, or groups, are started by one monitor: a hundred devices with one
#: schedule are due at once.
_AT_ONCE = 4


def note_attempt(name: str, schedule: PointSchedule, began_s: float) -> None:
    """Note that the attempt of a time is made; the next one follows after an interval.

    Args:
        name: the device.
        schedule: its schedule.
        began_s: when the attempt began, in seconds since 1970.
    """
    _attempt_note(name).write(str(attempt_of(schedule, began_s)))


def has_attempted(name: str, schedule: PointSchedule) -> bool:
    """Whether this node has made the attempt of the present time."""
    return _attempt_note(name).read() == str(attempt_of(schedule, time.time()))


def _attempt_note(name: str) -> state_files.StateFile:
    return state_files.of_node(f"point-attempt.{name}")


def start_due(runner: Runner, properties: dict[str, str], points: list[RestorePoint]) -> None:
    """Start the units of devices that this node serves and that a schedule has a point due of.

    An error is left to the next monitor.

    Args:
        runner: runs programs.
        properties: among them the schedules, as the CIB has them.
        points: all restore points.
    """
    left = _AT_ONCE
    schedules = {
        identifier.removeprefix(SCHEDULE_PREFIX): schedule
        for identifier, value in properties.items()
        if identifier.startswith(SCHEDULE_PREFIX)
        and (schedule := PointSchedule.parse(value)) is not None
    }
    seen: set[str] = set()
    for name, schedule in schedules.items():
        # The processes of a group wait for each other: they are started together.
        members = [each for each in schedule.group if each in schedules] or [name]
        if name in seen:
            continue
        seen.update(members)
        own = {each: [point for point in points if point.device == each] for each in members}
        if not rules_due_of_all(schedule, own, time.time()):
            continue
        # Only the active node's gate leads onto DRBD. The process looks closer.
        here = [
            each
            for each in members
            if not has_attempted(each, schedule) and gate.gate_table(each).startswith("drbd")
        ]
        for each in here:
            with contextlib.suppress(SanctlError, OSError):
                runner.run(
                    ["systemctl", "start", "--no-block", f"sanctl-point@{each}.service"],
                    timeout_s=_TIMEOUT_S,
                )
        left -= bool(here)
        if not left:
            return
