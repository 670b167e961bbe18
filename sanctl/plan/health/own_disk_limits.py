# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules on a node's own disk: whether the CIB's file is behind, and whether there is little room.

For the pool agent, which imports nothing of the findings (own_disk_health.py).
"""

from __future__ import annotations

#: Less than so much of it. A large disk has enough with less, and a small one is full with more.
_LOW_PERCENT = 5
_MOST_BYTES = 10 << 30
_LEAST_BYTES, _LEAST_PART = 500 << 20, 4


def is_behind(written: tuple[int, int] | None, live: tuple[int, int]) -> bool:
    """Whether the file of the CIB is older than the CIB that Pacemaker has; None: no such file."""
    return written is None or written < live


def is_low(total_bytes: int, free_bytes: int) -> bool:
    """Whether a node's own filesystem has little room left; one without a size has none to say."""
    share = min(total_bytes * _LOW_PERCENT // 100, _MOST_BYTES)
    return total_bytes > 0 and free_bytes < max(
        share, min(_LEAST_BYTES, total_bytes // _LEAST_PART)
    )
