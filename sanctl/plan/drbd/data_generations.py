# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which of two replicas is ahead by DRBD's generation UUIDs, or that they diverged.

DRBD gives the data a new generation UUID whenever a Primary goes on without a peer. A replica knows
its current UUID, the one its bitmap counts from (0: it is in sync), and two older ones. The rules
are those of drbd_uuid_compare() in DRBD 8.4 (drbd_receiver.c), with one difference: what DRBD
resolves by bitmaps whose starting points differ counts here as unrelated, which is answered by a
full resync. NamedTuples, as agents import this.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

#: In place of a generation in an order for a device's only replica: DRBD 9 keeps one for each peer,
#: and there is no other replica to mistake it for.
ONLY_REPLICA = "only"
# DRBD keeps in a UUID's last bit that it was written as a Primary.
_IDENTITY = ~1
_JUST_CREATED = 4
_TEXT = re.compile(r"[0-9A-Fa-f]{16}(:[0-9A-Fa-f]{16}){3}")


class Generations(NamedTuple):
    """The generation UUIDs of one replica's data.

    Attributes:
        current: of the data as it is.
        bitmap: of the data from which its bitmap counts; 0 while a peer is in sync.
        history: the two before, 0 where there is none.
        was_primary: the replica's node is Primary, or was when it crashed.
    """

    current: int
    bitmap: int
    history: tuple[int, int]
    was_primary: bool = False

    @property
    def is_blank(self) -> bool:
        """Whether the replica has never held data."""
        return self.current in {0, _JUST_CREATED}

    @property
    def name(self) -> str:
        """The current UUID, as 16 hex digits."""
        return f"{self.current:016X}"


class Relation(StrEnum):
    """How one replica's data relates to another's."""

    SAME = "same"
    AHEAD = "ahead"
    BEHIND = "behind"
    DIVERGED = "diverged"
    """Both went on from one common generation, and both bitmaps count from it."""
    UNRELATED = "unrelated"
    """No common generation from which both bitmaps count: it takes a full resync."""


def parse_generations(text: str) -> Generations | None:
    """Read `CURRENT:BITMAP:HISTORY:HISTORY` with what follows; None for anything else.

    The form of `drbdsetup get-gi`, and of what agents publish.
    """
    found = _TEXT.match(text.strip())
    if found is None:
        return None
    current, bitmap, young, old = (int(word, 16) & _IDENTITY for word in found[0].split(":"))
    # Of the seven flags of get-gi the third says Primary, the last crashed Primary.
    flags = text.strip()[found.end() :].split(":")[1:]
    return Generations(current, bitmap, (young, old), was_primary="1" in (*flags[2:3], *flags[6:7]))


def compare_generations(mine: Generations, theirs: Generations) -> Relation:
    """Return how the first replica's data relates to the second's."""
    if mine.is_blank or theirs.is_blank:
        if mine.is_blank and theirs.is_blank:
            return Relation.SAME
        return Relation.BEHIND if mine.is_blank else Relation.AHEAD
    if mine.current == theirs.current:
        return Relation.SAME
    if mine.current in {theirs.bitmap, *theirs.history}:
        return Relation.BEHIND
    if theirs.current in {mine.bitmap, *mine.history}:
        return Relation.AHEAD
    if mine.bitmap == theirs.bitmap != 0:
        return Relation.DIVERGED
    return Relation.UNRELATED
