# SPDX-License-Identifier: GPL-2.0-or-later
"""Has a verify that is due by schedule wait for its turn (rule: sanctl/plan/drbd/verify_turns.py).

Each device that waits has a note of the node, which its monitors renew; all decide by the same
notes, one at a time. The notes go with the boot, and nothing is lost with them but the turn: in its
hour a verify is due all the same, and after that it is with the next one.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup
from sanctl.errors import SanctlError
from sanctl.model.sync_policy import Schedule
from sanctl.plan.drbd import verify_turns as plan
from sanctl.system import state_files
from sanctl.system.runner import Runner

_WAITS, _RUNNING = "verify-waits", "verify-running"
#: Of many that wait one asks DRBD for all.
_LOOK_EVERY_S = 5.0
_LOCK_WAIT_S = 1.0


class _Note(NamedTuple):
    """That a device waits.

    Attributes:
        due_s: since when its verify is due, in seconds since 1970.
        began_s: since when it waits, on the monotonic clock.
        compared_s: by when it is ordered, in seconds since 1970.
        schedule: by which it is due.
    """

    due_s: int
    began_s: float
    compared_s: int
    schedule: str


def due_since_s(device: Device, schedule: Schedule | None) -> int | None:
    """Return since when a device's verify waits for its turn, in seconds since 1970.

    None: it does not wait, or by a schedule that the device does not have any more.
    """
    note = _read(device.name)
    return note.due_s if note is not None and note.schedule == str(schedule) else None


def forget(device: Device) -> None:
    """Wait no longer."""
    _file(device.name).remove()


@contextlib.contextmanager
def taken(runner: Runner, device: Device, schedule: Schedule, *, compared_s: int) -> Iterator[bool]:
    """Yield whether the device's verify may begin; if so, it has to before the context's end.

    It may, too, where there can be no notes, as on a full /run: to compare at a bad time is better
    than never.

    Args:
        runner: runs programs.
        device: the device.
        schedule: by which its verify is due.
        compared_s: when the verify before began, in seconds since 1970; 0: there was none.

    Raises:
        SanctlError: DRBD did not answer.
    """
    with contextlib.ExitStack() as held:
        try:
            lock = state_files.node_lock("verify-turn")
            if not held.enter_context(state_files.locked(lock, wait_s=_LOCK_WAIT_S)):
                may_begin = False
            else:
                _note(device, schedule, compared_s)
                may_begin = plan.may_begin(device.name, _waiting(), _running(runner))
                if may_begin:
                    _add_running(device.name)
        except OSError:
            may_begin = True
        try:
            yield may_begin
        except SanctlError:
            with contextlib.suppress(OSError):
                _go_last(device, schedule)
            raise


def _go_last(device: Device, schedule: Schedule) -> None:
    """Let all others begin first that wait now: DRBD has refused the verify, and may again."""
    _note(device, schedule, int(time.time()))


def _note(device: Device, schedule: Schedule, compared_s: int) -> None:
    """Note that a device waits, and since when."""
    note = _read(device.name)
    if note is None or note.schedule != str(schedule):
        note = _Note(int(time.time()), time.monotonic(), compared_s, str(schedule))
    else:
        note = note._replace(compared_s=max(compared_s, note.compared_s))
    _file(device.name).write(" ".join(map(str, note)))


def _waiting() -> list[plan.Waiting]:
    found, now_s = [], time.monotonic()
    for name in state_files.node_suffixes(_WAITS):
        note, silent_s = _read(name), _file(name).age_s()
        if note is not None and silent_s is not None:
            waits_s = now_s - note.began_s
            found.append(plan.Waiting(name, note.compared_s, waits_s, silent_s))
    return found


def _read(name: str) -> _Note | None:
    """Return the note of a device; None without one, and for anything else."""
    words = _file(name).read().split()
    try:
        return _Note(int(words[0]), float(words[1]), int(words[2]), words[3])
    except (IndexError, ValueError):
        return None


def _file(name: str) -> state_files.StateFile:
    return state_files.of_node(f"{_WAITS}.{name}")


def _running(runner: Runner) -> list[float]:
    """Return for how long each verify has been seen that runs with this node."""
    note, now_s = state_files.of_node(_RUNNING), time.monotonic()
    looked, *lines = note.read().split("\n")
    try:
        looked_s = float(looked)
        begun = {name: float(at) for name, at in (line.split() for line in lines)}
    except ValueError:
        looked_s, begun = -math.inf, {}
    if not 0 <= now_s - looked_s < _LOOK_EVERY_S:
        states = drbdsetup.observe_all(runner)
        names = [name for name, state in states.items() if any(p.is_verifying for p in state.peers)]
        begun = {name: begun.get(name, now_s) for name in names}
        _write_running(now_s, begun)
    return [now_s - at for at in begun.values()]


def _add_running(name: str) -> None:
    """Count a verify that is about to begin, also by a look of a moment ago."""
    note = state_files.of_node(_RUNNING)
    note.write(f"{note.read()}\n{name} {time.monotonic()}")


def _write_running(looked_s: float, begun: dict[str, float]) -> None:
    text = "\n".join([str(looked_s), *(f"{name} {at}" for name, at in begun.items())])
    state_files.of_node(_RUNNING).write(text)
