# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads how far apart the moments of a calendar event are, as systemd-analyze lists them.

By this `sanctl status` knows when a timer's backups have stopped (SAN-HLT-169).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise

#: `Next elapse: Mon 2026-11-30 02:00:00 UTC`, then `Iter. #2: ...`, or `Iteration #2: ...`.
_MOMENT = re.compile(
    r"^ *(?:Next elapse|Iter[^:]*): \w+ (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? UTC$",
    re.MULTILINE,
)


def longest_gap_s(listed: str) -> int:
    """Return the longest time between two moments in seconds; 0 where fewer than two are listed.

    Args:
        listed: what `systemd-analyze calendar --iterations=N` prints with TZ=UTC and LC_ALL=C: in
            UTC an event of each day has a day of the same length each time.
    """
    moments = [
        datetime.strptime(each, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        for each in _MOMENT.findall(listed)
    ]
    gaps = (int((after - before).total_seconds()) for before, after in pairwise(moments))
    return max(gaps, default=0)
