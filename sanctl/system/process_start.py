# SPDX-License-Identifier: GPL-2.0-or-later
"""When a process of this machine began (proc(5)): tells two of one number apart, and its age."""

from __future__ import annotations

import os
import time

from sanctl.system.files import read_text

_NOT_RUNNING = frozenset("ZX")


def ticks(pid: int) -> str:
    """Return when a process began, in ticks since the boot; empty: it does not run."""
    try:
        fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in _NOT_RUNNING else fields[19]


def age_s(pid: int) -> float:
    """Return for how long a process runs, whatever it has executed since; 0 where it does not."""
    started = ticks(pid)
    if not started:
        return 0.0
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0.0, since_boot_s - int(started) / os.sysconf("SC_CLK_TCK"))
