# SPDX-License-Identifier: GPL-2.0-or-later
"""What is copied again is all that differs, whatever hosts wrote and trimmed, and not much more."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping

import pytest

from sanctl.plan.device import copied_ahead
from sanctl.plan.device.copied_ahead import Mapped, first_slice, runs

BLOCK, BLOCKS = 4096, 200
SIZE = BLOCK * BLOCKS


def ranges_to_copy(
    origin: list[Mapped], copy: list[Mapped], *, size_bytes: int, call_extents: int
) -> list[tuple[int, int]]:
    return copied_ahead.ranges_to_copy(
        origin, copy, frozenset(copy), size_bytes=size_bytes, call_extents=call_extents
    )


def _slices(
    ranges: list[tuple[int, int]], origin: list[Mapped], *, extents: int
) -> Iterator[tuple[int, int]]:
    for begin, end in ranges:
        at = begin
        while at < end:
            cut = first_slice(at, end, origin, extents=extents)
            yield at, cut
            at = cut


def _extents(blocks: Mapping[int, int], chance: random.Random | None = None) -> list[Mapped]:
    """The blocks of a file, from places in it to places on the disk, as extents; cut by chance."""
    found: list[Mapped] = []
    for at in sorted(blocks):
        place = (at * BLOCK, blocks[at] * BLOCK, BLOCK)
        cut = chance is not None and chance.random() < 0.1
        if found and not cut:
            begin, physical, length = found[-1]
            if (begin + length, physical + length) == place[:2]:
                found[-1] = (begin, physical, length + BLOCK)
                continue
        found.append(place)
    return found


def _copied(
    origin: Mapping[int, int], copy: Mapping[int, int], ranges: list[tuple[int, int]]
) -> dict[int, int]:
    made = dict(copy)
    for begin, end in ranges:
        for at in range(begin // BLOCK, -(-end // BLOCK)):
            made.pop(at, None)
            if at in origin:
                made[at] = origin[at]
    return made


@pytest.mark.parametrize("seed", range(60))
def test_the_copy_is_the_same_afterwards(seed: int) -> None:
    """Written, written anew, trimmed, in fragments or in one; extents are cut anyhow."""
    chance = random.Random(seed)
    origin = {at: 1000 + at for at in range(BLOCKS) if chance.random() < 0.8}
    copy = dict(origin)
    disk = 5000
    for _ in range(chance.randrange(30)):
        at, length = chance.randrange(BLOCKS), chance.choice((1, 1, 1, 20))
        for block in range(at, min(BLOCKS, at + length)):
            if chance.random() < 0.3:
                origin.pop(block, None)
            else:
                origin[block] = disk = disk + chance.choice((1, 1, 2))
    ranges = ranges_to_copy(
        _extents(origin, chance),
        _extents(copy, chance),
        size_bytes=SIZE,
        call_extents=chance.choice((1, 8, 1000)),
    )
    assert _copied(origin, copy, ranges) == origin
    assert all(begin < end <= SIZE for begin, end in ranges)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(ranges))


def test_nothing_is_copied_twice() -> None:
    same = _extents({at: at * 3 for at in range(BLOCKS)})
    assert ranges_to_copy(same, same, size_bytes=SIZE, call_extents=8) == []


def test_one_write_in_the_middle_copies_that_block_of_a_fragmented_file() -> None:
    blocks = {at: at * 3 for at in range(BLOCKS)}
    written = {**blocks, 77: 9000}
    ranges = ranges_to_copy(_extents(written), _extents(blocks), size_bytes=SIZE, call_extents=8)
    assert ranges == [(77 * BLOCK, 78 * BLOCK)]


@pytest.mark.parametrize(("call_extents", "calls"), [(1, 2), (10, 2), (11, 1), (500, 1)])
def test_few_extents_between_two_ranges_are_copied_with_them(call_extents: int, calls: int) -> None:
    """Each call has costs of its own: of a synchronous file a flush of the journal."""
    blocks = {at: at * 3 for at in range(BLOCKS)}
    written = {**blocks, 50: 9000, 61: 9100}
    ranges = ranges_to_copy(
        _extents(written), _extents(blocks), size_bytes=SIZE, call_extents=call_extents
    )
    assert len(ranges) == calls


def test_what_was_trimmed_is_copied_as_a_hole() -> None:
    blocks = {at: at * 3 for at in range(BLOCKS)}
    trimmed = {at: place for at, place in blocks.items() if not 20 <= at < 30}
    ranges = ranges_to_copy(_extents(trimmed), _extents(blocks), size_bytes=SIZE, call_extents=1)
    assert ranges == [(20 * BLOCK, 30 * BLOCK)]
    everything = ranges_to_copy([], _extents(blocks), size_bytes=SIZE, call_extents=1)
    assert everything == [(0, SIZE)]


def test_no_range_goes_beyond_the_file() -> None:
    ranges = ranges_to_copy([(0, 8192, 2 * BLOCK)], [], size_bytes=BLOCK + 512, call_extents=1)
    assert ranges == [(0, BLOCK + 512)]


@pytest.mark.parametrize("extents", [1, 7, 64, 1000])
def test_slices_are_all_of_the_ranges_in_few_extents_each(extents: int) -> None:
    origin = _extents({at: at * 3 for at in range(BLOCKS) if at % 10})
    ranges = [(0, 50 * BLOCK), (70 * BLOCK + 512, SIZE)]
    found = list(_slices(ranges, origin, extents=extents))
    for begin, end in ranges:
        inside = [each for each in found if begin <= each[0] < end]
        assert inside[0][0] == begin and inside[-1][1] == end
        assert all(a[1] == b[0] for a, b in itertools.pairwise(inside))
    for begin, end in found:
        assert begin < end
        assert (
            sum(1 for each in origin if each[0] < end and begin < each[0] + each[2]) <= extents + 1
        )


def test_slices_of_a_file_without_blocks() -> None:
    assert list(_slices([(0, SIZE)], [], extents=4)) == [(0, SIZE)]


@pytest.mark.parametrize("seed", range(10))
def test_the_same_blocks_are_the_same_runs_however_they_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    disk, blocks = 0, {}
    for at in range(BLOCKS):
        disk += chance.choice((1, 1, 1, 5))
        if chance.random() < 0.9:
            blocks[at] = disk
    assert runs(_extents(blocks, chance)) == _extents(blocks)
