# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines that must not stand in any log, whatever was broken. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: What was found -> what the line looks like.
EVENTS: dict[str, re.Pattern[str]] = {
    "kernel bug": re.compile(
        r"kernel: .*(\bBUG\b|Oops|WARNING: CPU|Kernel panic|general protection)"
    ),
    "hung task": re.compile(r"kernel: .*blocked for more than \d+ seconds"),
    "split brain": re.compile(r"Split-Brain detected|split-brain detected", re.IGNORECASE),
    "unrelated data": re.compile(r"Unrelated data, aborting"),
    # DRBD's refusal of a second Primary ("Multiple primaries not allowed") is none.
    "two primaries": re.compile(r"kernel: .*drbd.*two primaries", re.IGNORECASE),
    "DRBD assertion": re.compile(r"kernel: .*drbd.*ASSERT"),
    "agent's own error": re.compile(r"Traceback \(most recent call last\)"),
}

#: On hosts besides: what a filesystem on a device would have seen.
HOST_EVENTS: dict[str, re.Pattern[str]] = {
    "I/O error at a host": re.compile(
        r"kernel: .*(Buffer I/O error on dev dm-|I/O error, dev dm-|EXT4-fs error)"
    ),
}

#: While nothing is broken but a node is told to reboot: it leaves in order, and nobody ends it.
ORDERLY_EVENTS: dict[str, re.Pattern[str]] = {
    "action failed": re.compile(r"recorded for (?:stop|demote|promote) of"),
    "fencing": re.compile(r"pacemaker-fenced.*: Operation '(?:off|reboot)' targeting"),
}


def find(lines: Iterable[str], *, is_host: bool, is_orderly: bool = False) -> list[str]:
    """Return each forbidden line, after what it is.

    Args:
        lines: of a journal.
        is_host: whose journal it is.
        is_orderly: nothing was broken meanwhile.
    """
    events = EVENTS | HOST_EVENTS if is_host else EVENTS
    events = events | ORDERLY_EVENTS if is_orderly else events
    return [
        f"{name}: {line.strip()}"
        for line in lines
        for name, pattern in events.items()
        if pattern.search(line)
    ]
