# SPDX-License-Identifier: GPL-2.0-or-later
"""What the pool agent publishes of the node's own disk and of /run: unwritten CIB, little room.

After one write that failed Pacemaker writes the CIB no more, and says so in its log alone; marks
are in memory then (sanctl/plan/health/own_disk_health.py). It is told to go on (cib_writes.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sanctl.agents.node import cib_writes
from sanctl.drivers import own_disk
from sanctl.errors import SanctlError
from sanctl.plan.health.own_disk_limits import is_behind, is_low
from sanctl.system import journal, state_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from sanctl.system.runner import Runner

#: Between two looks. A write takes a moment: a file that is behind at two of them is not written.
_EVERY_S = 60.0
_WRITTEN, _UNWRITTEN, _BEHIND = "written", "unwritten", "behind"
#: What is published must not change with each block. /run is smaller.
_STEP_BYTES, _RUN_STEP_BYTES = 64 << 20, 4 << 20


def fields(runner: Runner) -> str:
    """Return what is published, each after a blank; empty where all is well.

    A file of the CIB that cannot be read counts as behind. What else cannot be found out is logged:
    nothing is published of it, or what was found out last.
    """
    found = " cib=unwritten" if _is_cib_unwritten(runner) else ""
    found += _low_field("own-disk", own_disk.space_bytes, _STEP_BYTES)
    return found + _low_field("run-free", own_disk.run_space_bytes, _RUN_STEP_BYTES)


def _low_field(key: str, space_bytes: Callable[[], tuple[int, int]], step_bytes: int) -> str:
    try:
        total, free = space_bytes()
    except OSError as error:
        _log(f"the room on the node's own filesystems is not known: {error}", journal.WARNING)
        return ""
    return f" {key}={free // step_bytes * step_bytes}" if is_low(total, free) else ""


def _is_cib_unwritten(runner: Runner) -> bool:
    """Whether the file was behind at the last two looks, and the same at both."""
    was_unwritten = False
    try:
        note = state_files.of_node("cib-on-disk")
        age_s, before = note.age_s(), note.read()
        was_unwritten = before == _UNWRITTEN
        if age_s is not None and 0.0 <= age_s < _EVERY_S:
            return was_unwritten
        now = _look(runner, before)
        note.write(now)
        if was_unwritten and now == _WRITTEN:
            cib_writes.succeeded()
    except (SanctlError, OSError) as error:
        _log(f"whether the CIB is written to disk is not known: {error}", journal.WARNING)
        return was_unwritten
    if now == _UNWRITTEN:
        try:
            cib_writes.resume(runner)
        except (SanctlError, OSError) as error:
            _log(f"Pacemaker was not told to write the CIB to disk: {error}", journal.WARNING)
    return now == _UNWRITTEN


def _look(runner: Runner, before: str) -> str:
    """Return what the note is to say.

    Raises:
        SanctlError, OSError: not known.
    """
    live = own_disk.live_cib_version(runner)
    if live is None:
        return before
    try:
        written = own_disk.written_cib_version()
    except OSError as error:
        # A boot would find no more in it than this does.
        found, seen = f"{_BEHIND} {error.errno}", f"cannot be read: {error}"
    else:
        if not is_behind(written, live):
            return _WRITTEN
        # The file of a CIB that changes all the time may be behind at each look, and grows.
        found, seen = f"{_BEHIND} {written}", f"{written}"
    if before not in (found, _UNWRITTEN):
        return found
    _log(
        f"the CIB is not written to disk: Pacemaker has {live}, the file {seen}",
        journal.ERROR,
    )
    return _UNWRITTEN


def _log(text: str, priority: int) -> None:
    journal.write(text, priority=priority, action="own-disk")
