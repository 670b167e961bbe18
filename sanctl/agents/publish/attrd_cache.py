# SPDX-License-Identifier: GPL-2.0-or-later
"""What this node has told the cluster's attribute daemon, so that it is told again when needed.

pacemaker-attrd holds transient attributes in memory. One that is started anew knows none, and has
what the CIB had of them wiped (docs/adr/0036-a-killed-attrd-moves-devices.md). A replica without a
score is no candidate: so what was told to a daemon that is gone was told to nobody. The notes lie
on tmpfs.
"""

from __future__ import annotations

import contextlib
import os
import time

from sanctl.agents.replica.parts import RUNTIME
from sanctl.system.files import read_text_or

#: All the kernel keeps of a program's name.
_DAEMON = "pacemaker-attrd"
_PROC = "/proc"
_REPEAT_S = 60.0
_WRITTEN_S = 5.0


def listener() -> str:
    """Return the process id of the attribute daemon; empty where none runs.

    Asked before something is told: if the daemon ends in between, the note is not believed.
    """
    path = f"{RUNTIME}/attrd"
    known = read_text_or(path, "")
    if known and _is_daemon(known):
        return known
    for entry in os.listdir(_PROC):
        if entry.isdigit() and _is_daemon(entry):
            with open(path, "w", encoding="utf-8") as file:
                file.write(entry)
            return entry
    return ""


def is_known(name: str, to: str, text: str) -> bool:
    """Whether this daemon was told just this, within the last minute.

    A note from the future was written before the clock was put right, and is not believed.
    """
    try:
        age_s = time.time() - os.stat(_path(name)).st_mtime
    except FileNotFoundError:
        return False
    return 0 <= age_s < _REPEAT_S and read_text_or(_path(name), "") == f"{to} {text}"


def is_settled(name: str, to: str) -> bool:
    """Whether this daemon was told something so long ago that the CIB must have it."""
    try:
        age_s = time.time() - os.stat(_path(name)).st_mtime
    except FileNotFoundError:
        return False
    return age_s >= _WRITTEN_S and bool(to) and read_text_or(_path(name), "").startswith(f"{to} ")


def note(name: str, to: str, text: str) -> None:
    """Keep what a daemon has been told."""
    with open(_path(name), "w", encoding="utf-8") as file:
        file.write(f"{to} {text}")


def words(name: str) -> list[str]:
    """Return what was told last, in words; empty where nothing was."""
    return read_text_or(_path(name), "").split()


def forget(name: str) -> None:
    """Have it told again, whatever was told before."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_path(name))


def _path(name: str) -> str:
    return f"{RUNTIME}/told-{name}"


def _is_daemon(process: str) -> bool:
    try:
        with open(f"{_PROC}/{process}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip() == _DAEMON
    except OSError:
        return False
