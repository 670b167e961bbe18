# SPDX-License-Identifier: GPL-2.0-or-later
"""What this node has told the cluster's attribute daemon, so that it is told again when needed.

pacemaker-attrd holds transient attributes in memory. One that is started anew knows none, and has
what the CIB had of them wiped (docs/adr/0036-a-killed-attrd-moves-devices.md). A replica without a
score is no candidate: so what was told to a daemon that is gone was told to nobody. The notes lie
on tmpfs.
"""

from __future__ import annotations

import os

from sanctl.system import state_files
from sanctl.system.state_files import StateFile

#: All the kernel keeps of a program's name.
_DAEMON = "pacemaker-attrd"
_PROC = "/proc"
_REPEAT_S = 60.0
_WRITTEN_S = 5.0
_KIND = "attrd-cache"


def attrd_pid() -> str:
    """Return the process id of the attribute daemon; empty where none runs.

    Asked before something is told: if the daemon ends in between, the note is not believed.
    """
    note = state_files.of_node("attrd-pid")
    known = note.read()
    if known and _is_daemon(known):
        return known
    for entry in os.listdir(_PROC):
        if entry.isdigit() and _is_daemon(entry):
            note.write(entry)
            return entry
    return ""


def of_device(name: str) -> StateFile:
    """Return where it is kept what a device's agent has published."""
    return state_files.of_device(name, _KIND)


def of_pools() -> StateFile:
    """Return where it is kept what the pools' agent has published of the pools."""
    return state_files.of_node(f"{_KIND}.pools")


def of_votes() -> StateFile:
    """Return where it is kept what the pools' agent has published of the votes."""
    return state_files.of_node(f"{_KIND}.votes")


def is_current(cached: StateFile, to: str, text: str) -> bool:
    """Whether this daemon was told just this, within the last minute.

    A note from the future was written before the clock was put right, and is not believed.
    """
    age_s = cached.age_s()
    return age_s is not None and 0 <= age_s < _REPEAT_S and cached.read() == f"{to} {text}"


def must_be_in_cib(cached: StateFile, to: str) -> bool:
    """Whether this daemon was told something so long ago that the CIB must have it."""
    age_s = cached.age_s()
    is_old = age_s is not None and age_s >= _WRITTEN_S
    return is_old and bool(to) and cached.read().startswith(f"{to} ")


def record(cached: StateFile, to: str, text: str) -> None:
    """Keep what a daemon has been told."""
    cached.write(f"{to} {text}")


def published_fields(cached: StateFile) -> list[str]:
    """Return what was told last, in words; empty where nothing was."""
    return cached.read().split()


def _is_daemon(process: str) -> bool:
    try:
        with open(f"{_PROC}/{process}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip() == _DAEMON
    except OSError:
        return False
