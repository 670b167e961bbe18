# SPDX-License-Identifier: GPL-2.0-or-later
"""Log lines that no fault excuses: kernel bug, hung task, split brain, host I/O error. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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

#: What DRBD 9 says of both sides before it decides: a connection, and flags in hexadecimal.
_HANDSHAKE = re.compile(
    r"drbd (\S+/\d+ \S+ \S+): (drbd_sync_handshake|self|peer)\b(?:.* flags:([0-9A-Fa-f]+))?"
)
_SPLIT_BRAIN = re.compile(r"drbd (\S+/\d+ \S+ \S+): Split-Brain detected")
#: UUID_FLAG_INCONSISTENT of drbd_protocol.h: that side is the target of a resync.
_INCONSISTENT = 1 << 2


def _without_half_filled(lines: Iterable[str]) -> Iterator[str]:
    """Leave out what DRBD 9 takes for a split brain between a whole replica and a half filled one.

    A replica in the middle of a resync may be told of the generation that the Primary begins, and
    not that it comes from the one before: a standby that has not heard of it yet is then "diverged"
    from it (9.3.3, seen: history-both, and in sync seconds later). What is half filled is no copy
    of its own, so nothing has diverged.
    """
    half_filled: dict[str, bool] = {}
    for line in lines:
        said = _HANDSHAKE.search(line)
        if said is not None:
            pair, what, flags = said.groups()
            before = half_filled.get(pair, False) and what != "drbd_sync_handshake"
            half_filled[pair] = before or bool(int(flags or "0", 16) & _INCONSISTENT)
        found = _SPLIT_BRAIN.search(line)
        if found is None or not half_filled.get(found[1]):
            yield line


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
        for line in _without_half_filled(lines)
        for name, pattern in events.items()
        if pattern.search(line)
    ]
