# SPDX-License-Identifier: GPL-2.0-or-later
"""Log lines that no fault excuses: kernel bug, hung task, split brain, host I/O error. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: What a line reports -> its pattern.
FORBIDDEN: dict[str, re.Pattern[str]] = {
    "kernel bug": re.compile(
        r"kernel: .*(\bBUG\b|Oops|WARNING: CPU|Kernel panic|general protection)"
    ),
    "hung task": re.compile(r"kernel: .*blocked for more than \d+ seconds"),
    "split brain": re.compile(r"Split-Brain detected|split-brain detected", re.IGNORECASE),
    "unrelated data": re.compile(r"Unrelated data, aborting"),
    # DRBD's refusal of a second Primary ("Multiple primaries not allowed") is not forbidden.
    "two primaries": re.compile(r"kernel: .*drbd.*two primaries", re.IGNORECASE),
    # Not the one of receive_out_of_sync (drbd_receiver.c) on a connection that has just been given
    # up: it notes a block as out of sync all the same, and the next connection begins anew.
    "DRBD assertion": re.compile(
        r"kernel: .*drbd.*ASSERT"
        r"(?! FAILED cstate = (?:NetworkFailure|Timeout|BrokenPipe), expected: WFSyncUUID)"
    ),
    "agent's own error": re.compile(r"Traceback \(most recent call last\)"),
}

#: On hosts in addition: errors that a filesystem on a device would have seen.
FORBIDDEN_ON_INITIATORS: dict[str, re.Pattern[str]] = {
    "I/O error at a host": re.compile(
        r"kernel: .*(Buffer I/O error on dev dm-|I/O error, dev dm-|EXT4-fs error)"
    ),
}

#: In a planned reboot in addition: the node stops in order, so that no action fails, no fencing.
FORBIDDEN_IN_PLANNED_REBOOTS: dict[str, re.Pattern[str]] = {
    "action failed": re.compile(r"recorded for (?:stop|demote|promote) of"),
    "fencing": re.compile(r"pacemaker-fenced.*: Operation '(?:off|reboot)' targeting"),
}


def find(lines: Iterable[str], *, is_host: bool, is_orderly: bool = False) -> list[str]:
    """Return each forbidden line, with the name of its pattern in front.

    Args:
        lines: the lines of a journal.
        is_host: whether it is a host's journal, not a cluster node's.
        is_orderly: whether the only event in that time was a planned reboot.
    """
    events = FORBIDDEN | FORBIDDEN_ON_INITIATORS if is_host else FORBIDDEN
    events = events | FORBIDDEN_IN_PLANNED_REBOOTS if is_orderly else events
    return [
        f"{name}: {line.strip()}"
        for line in lines
        for name, pattern in events.items()
        if pattern.search(line)
    ]
