# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts sanctl-copy@DEVICE.SITE.service on a standby where a copy by schedule is due.

And sanctl-sites.service, which asks the sites who has taken devices over.

What is due follows from the CIB (sanctl/plan/site/schedule.py), which the pool's monitor has read
anyway; the unit's process (program.py) decides again, and which standby it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

from sanctl.drivers import gate
from sanctl.errors import SanctlError
from sanctl.model.point_schedule import Rule
from sanctl.model.site import COPY_PREFIX, COPY_SCHEDULE_PREFIX, CopyRecord, CopySchedule
from sanctl.model.site_group import GroupRecord
from sanctl.plan.site.group_record import is_group_due
from sanctl.plan.site.schedule import attempt_of, is_due
from sanctl.system import state_files
from sanctl.system.runner import Runner

#: What the instance of a group's unit ends with.
GROUP = "group"
_TIMEOUT_S = 5.0
#: How often sites are asked, in seconds.
_LOOK_S = 600


class Turn(NamedTuple):
    """What a unit copies by schedule: a device, or several as they are at one moment.

    Attributes:
        name: the unit's instance: DEVICE.SITE, or DEVICE.SITE.group, the first device of a group.
        devices: the names of the devices.
        rule: how often.
    """

    name: str
    devices: tuple[str, ...]
    rule: Rule

    @classmethod
    def of_device(cls, schedule: CopySchedule) -> Turn:
        """Return that of a device alone."""
        return cls(f"{schedule.device}.{schedule.site}", (schedule.device,), schedule.rule)

    @classmethod
    def of_group(cls, group: GroupRecord, rule: Rule) -> Turn:
        """Return that of a group."""
        return cls(f"{group.devices[0]}.{group.site}.{GROUP}", group.devices, rule)


def note_attempt(turn: Turn) -> None:
    """Note that the attempt of the present time is made; the next one follows after an interval."""
    _note(turn).write(str(attempt_of(turn.rule, time.time())))


def has_attempted(turn: Turn) -> bool:
    """Whether this node has made the attempt of the present time."""
    return _note(turn).read() == str(attempt_of(turn.rule, time.time()))


def note_wait(turn: Turn, why: str) -> bool:
    """Note why a copy that is due is not made here now, empty: it is; return whether that is new.

    Each monitor asks anew, so what is said is said once.
    """
    note = state_files.of_node(f"copy-waits.{turn.name}")
    if note.read() == why:
        return False
    try:
        note.write(why)
    except OSError:
        # Without room for the note each monitor would say it.
        return False
    return True


def lock_path() -> str:
    """Return the path of the lock that a copy's process holds while it runs."""
    return state_files.node_lock("copy")


def _note(turn: Turn) -> state_files.StateFile:
    return state_files.of_node(f"copy-attempt.{turn.name}")


def start_look(runner: Runner, properties: dict[str, str]) -> None:
    """Have the sites asked who has taken devices over: after each boot, and every ten minutes.

    Only where devices have been copied. An error is left to the next monitor.

    Args:
        runner: runs programs.
        properties: among them what is known of copies, as the CIB has them.
    """
    slot, note = str(int(time.time()) // _LOOK_S), state_files.of_node("sites-asked")
    if note.read() == slot or not any(name.startswith(COPY_PREFIX) for name in properties):
        return
    # Without room for the note it is started again by the next monitor.
    with contextlib.suppress(SanctlError, OSError):
        runner.run(
            ["systemctl", "start", "--no-block", "sanctl-sites.service"], timeout_s=_TIMEOUT_S
        )
        note.write(slot)


def start_due(runner: Runner, properties: dict[str, str]) -> None:
    """Start the unit of one device or group of which a copy is due, and which is a standby here.

    One for each monitor, and none while a copy is under way: a node makes one at a time. The one
    that was started longest ago is first. So no device waits for ever behind one that its process
    leaves alone, as its replica here is not in sync, nor behind those that are due again already.

    An error is left to the next monitor.

    Args:
        runner: runs programs.
        properties: among them the schedules and what is known of copies, as the CIB has them.
    """
    waiting = [each for each in _due(properties) if not has_attempted(each)]
    if not waiting or _is_copying():
        return
    for turn in sorted(waiting, key=_started_ns):
        # A standby's gate leads nowhere; where there is no replica there is no gate.
        if any(gate.gate_table(device) != "error" for device in turn.devices):
            continue
        # Without room for the note it is first again.
        with contextlib.suppress(OSError):
            _started_note(turn).write(str(time.monotonic_ns()))
        unit = f"sanctl-copy@{turn.name}.service"
        with contextlib.suppress(SanctlError):
            runner.run(["systemctl", "start", "--no-block", unit], timeout_s=_TIMEOUT_S)
        return


def _due(properties: dict[str, str]) -> Iterator[Turn]:
    for identifier, value in properties.items():
        group = GroupRecord.parse(identifier, value)
        if group is not None and group.rule and is_group_due(group, time.time()):
            yield Turn.of_group(group, group.rule)
        if not identifier.startswith(COPY_SCHEDULE_PREFIX):
            continue
        schedule = CopySchedule.parse(identifier, value)
        if schedule is not None:
            known = f"{COPY_PREFIX}{schedule.device}.{schedule.site}"
            record = CopyRecord.parse(known, properties.get(known, ""))
            if is_due(schedule, record, time.time()):
                yield Turn.of_device(schedule)


def _is_copying() -> bool:
    # Shared, and a copy's process waits for the lock: this look must not keep it from beginning.
    with state_files.locked(lock_path(), wait_s=0.0, shared=True) as is_free:
        return not is_free


def _started_ns(turn: Turn) -> int:
    """Return when a copy was started here last, since the boot; 0: never."""
    text = _started_note(turn).read()
    return int(text) if text.isdecimal() else 0


def _started_note(turn: Turn) -> state_files.StateFile:
    return state_files.of_node(f"copy-started.{turn.name}")
