# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which ranges of a file are still to be copied, where a copy shares most of its blocks.

A filesystem that shares blocks never writes one that is shared. So where two files have the same
blocks at the same place they have the same content, and where they differ, or one has none, the
range is to be copied.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

#: A written range of a file: where it begins there, where on the disk, and how long it is, in
#: bytes. Lists of them are in order and without overlap; what is in none of them was never written.
Mapped = tuple[int, int, int]
Range = tuple[int, int]


def ranges_to_copy(
    origin: Sequence[Mapped],
    copy: Sequence[Mapped],
    in_copy: frozenset[Mapped],
    *,
    size_bytes: int,
    call_extents: int,
) -> list[Range]:
    """Return the ranges, begin and end in bytes, in which a copy differs from its origin.

    Args:
        origin: the blocks of the origin.
        copy: the blocks of the copy.
        in_copy: the same as a set, which takes time to make.
        size_bytes: the origin's size; no range goes beyond.
        call_extents: how many extents are copied in the time of one call more: two ranges with
            fewer extents between them are one.
    """
    if origin == copy:
        return []
    # The place in the list beside each: how many extents are between two of them.
    found = [(*each, at, at + 1) for at, each in enumerate(origin) if each not in in_copy]
    for each in in_copy.difference(origin):
        at = bisect.bisect_left(origin, each[0], key=_begin)
        found.append((*each, at, bisect.bisect_left(origin, each[0] + each[2], key=_begin)))
    merged: list[list[int]] = []
    for begin, _physical, length, first, after in sorted(found):
        end = min(begin + length, size_bytes)
        if merged and (begin <= merged[-1][1] or first - merged[-1][2] < call_extents):
            merged[-1][1] = max(merged[-1][1], end)
            merged[-1][2] = max(merged[-1][2], after)
        elif begin < end:
            merged.append([begin, end, after])
    return [(begin, end) for begin, end, _after in merged]


def first_slice(begin: int, end: int, origin: Sequence[Mapped], *, extents: int) -> int:
    """Return where a piece of a range ends that has at most so many extents of the origin."""
    # The one that begins before this place, and ends behind it, counts as well.
    first = max(0, bisect.bisect_right(origin, begin, key=_begin) - 1)
    after = first + extents
    return min(end, origin[after][0]) if after < len(origin) else end


def _begin(mapped: Mapped) -> int:
    return mapped[0]


def runs(blocks: Iterable[Mapped]) -> list[Mapped]:
    """Return the same blocks with those that follow each other, in file and on disk, as one."""
    made: list[Mapped] = []
    for begin, physical, length in blocks:
        if made:
            last_begin, last_physical, last = made[-1]
            if (last_begin + last, last_physical + last) == (begin, physical):
                made[-1] = (last_begin, last_physical, last + length)
                continue
        made.append((begin, physical, length))
    return made
