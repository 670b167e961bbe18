# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: of which restore points it is looked anew what they alone hold, and in which order.

The time to look grows with a file's extents, and there may be 256 files. A restore point's file
never changes. A block of it becomes its own when the last other file that has the block has another
there: the data file, as a host writes, if the point is the newest of its device, since every block
that an older one shares with the data file the newer ones share, too; or the next point of its
device, before it or after it, that is deleted. So what hosts write concerns the newest point alone.
Files that something else shares blocks with, as a copy of one, are looked at now and then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: How often the newest point of a device is looked at.
NEWEST_EVERY_S = 60.0
#: How often any point is.
ANY_EVERY_S = 3600.0


class PointOnDisk(NamedTuple):
    """A restore point's file.

    Attributes:
        token: the token of the attempt that made it.
        device: NAME.UUID of its device.
        made_ns: when it was made.
    """

    token: str
    device: str
    made_ns: int


class SeenSize(NamedTuple):
    """What a restore point alone held when that was looked at.

    Attributes:
        own_bytes: how much.
        seen_s: when, on the monotonic clock.
        between: its neighbours then (`neighbours`).
    """

    own_bytes: int
    seen_s: float
    between: str

    @classmethod
    def parse(cls, text: str) -> tuple[str, SeenSize] | None:
        """Read what `line` wrote: the token, and what was seen; None for anything else."""
        words = text.split(" ")
        try:
            return words[0], cls(int(words[1]), float(words[2]), words[3])
        except (IndexError, ValueError):
            return None

    def line(self, token: str) -> str:
        """Return it as text."""
        return f"{token} {self.own_bytes} {self.seen_s:.1f} {self.between}"


def neighbours(files: Sequence[PointOnDisk]) -> dict[str, str]:
    """Return `OLDER/NEWER` of each token: the points of the same device made before and after."""
    in_order = sorted(files, key=lambda each: (each.device, each.made_ns, each.token))
    found = {}
    for older, file, newer in zip((None, *in_order), in_order, (*in_order[1:], None), strict=False):
        before = older.token if older and older.device == file.device else ""
        after = newer.token if newer and newer.device == file.device else ""
        found[file.token] = f"{before}/{after}"
    return found


def due_sizes(
    files: Sequence[PointOnDisk], seen: Mapping[str, SeenSize], now_s: float
) -> tuple[str, ...]:
    """Return the tokens of the points that are to be looked at, the most urgent first."""
    urgent = []
    for token, between in neighbours(files).items():
        known = seen.get(token)
        is_newest = between.endswith("/")
        if known is None or known.between != between:
            urgent.append((0, 0.0 if known is None else known.seen_s, token))
        elif now_s - known.seen_s >= (NEWEST_EVERY_S if is_newest else ANY_EVERY_S):
            urgent.append((1 if is_newest else 2, known.seen_s, token))
    return tuple(token for _, _, token in sorted(urgent))
