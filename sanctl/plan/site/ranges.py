# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: which ranges of a restore point a copy of an earlier one lacks, and in which pieces.

A range is the same if both files have it at one place on the disk, or in neither anything is
written. Where the filesystem does not say where a range is, it counts as changed: to send what is
there already costs time, to leave out what is not would be found by the digests at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sanctl.model.extent import Extent

#: The most bytes of one piece, and the length of the chunks that digests are made of.
PIECE_BYTES = 1 << 20
#: The length of the blocks in which pieces are compared.
BLOCK_BYTES = 4096
_HOLE, _UNKNOWN = -1, -2


class Range(NamedTuple):
    """A range of a restore point that a copy lacks, in bytes.

    Attributes:
        begin: where it begins.
        end: where it ends.
        is_zero: nothing is written there: it is all zeros.
    """

    begin: int
    end: int
    is_zero: bool


def changed_ranges(
    base: Sequence[Extent], point: Sequence[Extent], size_bytes: int
) -> tuple[Range, ...]:
    """Return what differs between two restore points of a device by their extents, in order.

    Args:
        base: the extents of the earlier one; empty for none, as if it were all zeros.
        point: the extents of the later one.
        size_bytes: the size of the later one; it has no extent behind that.
    """
    edges = {0, size_bytes}
    for extent in (*base, *point):
        edges |= {min(extent.begin, size_bytes), min(extent.end, size_bytes)}
    in_order = sorted(edges)
    starts = in_order[:-1]
    found: list[Range] = []
    for begin, end, old, new in zip(
        starts, in_order[1:], _places(base, starts), _places(point, starts), strict=True
    ):
        if old == new and old != _UNKNOWN:
            continue
        last = found[-1] if found else None
        is_zero = new == _HOLE
        if last is not None and last.end == begin and last.is_zero == is_zero:
            found[-1] = last._replace(end=end)
        else:
            found.append(Range(begin, end, is_zero))
    return tuple(found)


def _places(extents: Sequence[Extent], starts: Iterable[int]) -> Iterator[int]:
    """Yield where each of some positions, in order, is on the disk."""
    number = 0
    for at in starts:
        while number < len(extents) and extents[number].end <= at:
            number += 1
        extent = extents[number] if number < len(extents) else None
        if extent is None or extent.begin > at:
            yield _HOLE
        elif extent.physical is None:
            yield _UNKNOWN
        else:
            yield extent.physical + at - extent.begin


def differing_runs(begin: int, new: bytes, old: bytes) -> Iterator[Range]:
    """Yield the runs of blocks that differ within a piece that two files have at one place.

    A block may be elsewhere on the disk with the same content: a resync after a failover writes
    blocks anew that had not changed.

    Args:
        begin: where the piece begins in the files.
        new: the piece of the later one.
        old: that of the earlier one; it may be shorter, if the file ends there.
    """
    if new == old:
        return
    found: Range | None = None
    for at in range(0, len(new), BLOCK_BYTES):
        end = min(at + BLOCK_BYTES, len(new))
        if new[at:end] == old[at:end]:
            continue
        if found is not None and found.end == begin + at:
            found = found._replace(end=begin + end)
            continue
        if found is not None:
            yield found
        found = Range(begin + at, begin + end, is_zero=False)
    if found is not None:
        yield found


def differing_chunks(own: bytes, other: bytes, digest_bytes: int) -> tuple[int, ...]:
    """Return the numbers of the chunks whose digests differ.

    Args:
        own: the digests of the chunks of one file, one behind the other.
        other: those of a file of the same size.
        digest_bytes: the length of one digest.
    """
    return tuple(
        at // digest_bytes
        for at in range(0, len(own), digest_bytes)
        if own[at : at + digest_bytes] != other[at : at + digest_bytes]
    )


def touched_chunks(ranges: Iterable[Range]) -> tuple[int, ...]:
    """Return the numbers of the chunks in which ranges are; the ranges are in order."""
    found: list[int] = []
    for each in ranges:
        first = max(each.begin // PIECE_BYTES, found[-1] + 1 if found else 0)
        found += range(first, -(-each.end // PIECE_BYTES))
    return tuple(found)


def chunk_ranges(numbers: Iterable[int], size_bytes: int) -> tuple[Range, ...]:
    """Return the ranges of chunks of a file of that size, by their numbers."""
    return tuple(
        Range(number * PIECE_BYTES, min((number + 1) * PIECE_BYTES, size_bytes), is_zero=False)
        for number in numbers
    )


def total_bytes(ranges: Iterable[Range]) -> int:
    """Return how many bytes ranges have together."""
    return sum(each.end - each.begin for each in ranges)


def pieces(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield ranges in pieces that are sent at once; of zeros one piece is as long as the range."""
    for each in ranges:
        step = each.end - each.begin if each.is_zero else PIECE_BYTES
        for begin in range(each.begin, each.end, step):
            yield Range(begin, min(begin + step, each.end), each.is_zero)
