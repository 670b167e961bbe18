# SPDX-License-Identifier: GPL-2.0-or-later
"""How much memory this machine has."""

from __future__ import annotations

import os


def total_bytes() -> int:
    """Return the memory that the kernel manages: `MemTotal` of proc_meminfo(5), by sysinfo(2)."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
