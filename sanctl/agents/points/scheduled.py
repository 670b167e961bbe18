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
from sanctl.plan.device.point_schedule import attempt_of, due_rules
from sanctl.system import state_files
from sanctl.system.runner import Runner

_TIMEOUT_S = 5.0
#: So many units are started by one monitor: a hundred devices with one schedule are due at once.
_AT_ONCE = 4


def note_attempt(name: str, schedule: PointSchedule) -> None:
    """Note that the attempt of the present time is made; the next one follows after an interval."""
    _attempt_note(name).write(str(attempt_of(schedule, time.time())))


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
    for identifier, value in properties.items():
        schedule = PointSchedule.parse(value) if identifier.startswith(SCHEDULE_PREFIX) else None
        if schedule is None:
            continue
        name = identifier.removeprefix(SCHEDULE_PREFIX)
        its_own = [point for point in points if point.device == name]
        if (
            not due_rules(schedule, its_own, time.time())
            or has_attempted(name, schedule)
            # Only the active node's gate leads onto DRBD. The process looks closer.
            or not gate.gate_table(name).startswith("drbd")
        ):
            continue
        with contextlib.suppress(SanctlError):
            runner.run(
                ["systemctl", "start", "--no-block", f"sanctl-point@{name}.service"],
                timeout_s=_TIMEOUT_S,
            )
        left -= 1
        if not left:
            return
