# SPDX-License-Identifier: GPL-2.0-or-later
"""Times of the lines that journalctl prints with `-o short-precise` (journalctl(1))."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

_LENGTH = len("Nov 28 05:57:46.465369")


def lines_since(lines: Iterable[str], since_s: float) -> list[str]:
    """Return the lines that are not older than a moment.

    `journalctl --since` finds its first line by bisection, and so may begin with old ones where the
    clock was once set back.

    Args:
        lines: as journalctl prints them, in UTC.
        since_s: the moment, in seconds since the epoch.

    Returns:
        The lines of that moment and later, and each line that begins with no time.
    """
    return [line for line in lines if not _is_before(line, since_s)]


def _is_before(line: str, since_s: float) -> bool:
    # The year is not printed: of the years around the moment the one that comes nearest to it.
    year = datetime.fromtimestamp(since_s, UTC).year
    found = []
    for each in (year - 1, year, year + 1):
        try:
            moment = datetime.strptime(f"{each} {line[:_LENGTH]}", "%Y %b %d %H:%M:%S.%f")
        except ValueError:
            continue
        found.append(moment.replace(tzinfo=UTC).timestamp())
    return bool(found) and min(found, key=lambda moment_s: abs(moment_s - since_s)) < since_s
