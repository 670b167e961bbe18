# SPDX-License-Identifier: GPL-2.0-or-later
"""How SBD runs on this node, by its processes: its file may have been written since."""

from __future__ import annotations

import re

from sanctl.model.sbd_mode import DISK, DISKLESS, OFF
from sanctl.system.files import exists, read_text_or

_CGROUPS = "/sys/fs/cgroup"
#: Of sbd.service (PIDFile).
_PID_FILE = "/run/sbd.pid"
#: The title of a process that watches a disk (sbd-inquisitor.c); others watch Pacemaker, Corosync.
_WATCHER = re.compile(r"sbd: watcher: /")


def mode() -> str:
    """Return how SBD runs here, a word of sanctl.model.sbd_mode; empty: not known.

    A watcher whose disk gives errors ends, and is started again: where all have ended it is
    `DISKLESS` for a moment.

    Raises:
        OSError: it cannot be read.
    """
    # As one service, with cgroup v2: a node has hundreds of other processes.
    processes = read_text_or(f"{_CGROUPS}/system.slice/sbd.service/cgroup.procs", "").split()
    if not processes:
        # It may have moved to the root cgroup (SBD_MOVE_TO_ROOT_CGROUP): then not known.
        is_elsewhere = bool(_title(read_text_or(_PID_FILE, "").strip() or "none"))
        return OFF if exists(f"{_CGROUPS}/cgroup.controllers") and not is_elsewhere else ""
    return DISK if any(map(_WATCHER.match, map(_title, processes))) else DISKLESS


def _title(pid: str) -> str:
    try:
        return read_text_or(f"/proc/{pid}/cmdline", "")
    except ProcessLookupError:  # it has just ended
        return ""
