# SPDX-License-Identifier: GPL-2.0-or-later
"""How often DRBD has dropped a replica's disk that was attached again, as its node notes it.

A word in the state that a replica's agent publishes, such as `3:1790000000:1790040000`. It changes
with a drop alone: each change costs a message to all nodes. Light: the agents import it.
"""

from __future__ import annotations

from typing import NamedTuple

#: The kind of the note that holds the word, and the word's key in the published state.
NOTE_KIND = KEY = "disk-drops"
#: Drops further apart than this are not counted together, and older ones are not told.
KEPT_S = 86400
#: Later moments are not read: no date may be made of them (datetime.MAXYEAR).
_LATEST_S = 1 << 37


class DiskDrops(NamedTuple):
    """Drops of a disk that was attached again after each.

    Attributes:
        times: how many.
        first_s: when it was attached after the first one, in seconds since 1970.
        last_s: when it was attached after the last one.
    """

    times: int
    first_s: int
    last_s: int

    @property
    def word(self) -> str:
        """It as it is noted and published."""
        return f"{self.times}:{self.first_s}:{self.last_s}"


def is_kept(drops: DiskDrops, now_s: int) -> bool:
    """Whether the last one is to be told still; also where the clock was put back since."""
    return abs(now_s - drops.last_s) < KEPT_S


def with_one_more(before: DiskDrops | None, now_s: int) -> DiskDrops:
    """Return the drops with one after which the disk was attached just now."""
    if before is None or not is_kept(before, now_s):
        return DiskDrops(1, now_s, now_s)
    return DiskDrops(before.times + 1, before.first_s, now_s)


def parse_drops(word: str) -> DiskDrops | None:
    """Read `DiskDrops.word`; None for anything else, which says nothing."""
    parts = word.split(":")
    if len(parts) != 3 or not all(each.isascii() and each.isdecimal() for each in parts):
        return None
    times, first_s, last_s = map(int, parts)
    if times == 0 or max(first_s, last_s) > _LATEST_S:
        return None
    return DiskDrops(times, first_s, last_s)
