# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a restore point is sent: never less than what differs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.extent import Extent
from sanctl.plan.site.ranges import (
    BLOCK_BYTES,
    PIECE_BYTES,
    Range,
    changed_ranges,
    chunk_ranges,
    differing_chunks,
    differing_runs,
    pieces,
    total_bytes,
    touched_chunks,
)

K, MIB = 1024, 1 << 20


def at(begin: int, end: int, physical: int | None, *, shared: bool = True) -> Extent:
    physical = physical if physical is None else physical * K
    return Extent(begin * K, end * K, physical, shared)


@pytest.mark.parametrize(
    ("base", "point", "wanted"),
    [
        pytest.param([], [], [], id="nothing written"),
        pytest.param([at(0, 8, 100)], [at(0, 8, 100)], [], id="the same"),
        pytest.param([], [at(2, 4, 100)], [(2, 4, False)], id="new data"),
        pytest.param([at(2, 4, 100)], [], [(2, 4, True)], id="discarded"),
        pytest.param(
            [at(0, 8, 100)],
            [at(0, 2, 100), at(2, 4, 300), at(4, 8, 104)],
            [(2, 4, False)],
            id="a part is elsewhere",
        ),
        pytest.param([at(0, 4, 100), at(4, 8, 104)], [at(0, 8, 100)], [], id="cut in another way"),
        pytest.param([at(0, 8, 100)], [at(0, 8, 101)], [(0, 8, False)], id="a little elsewhere"),
        pytest.param([at(0, 4, None)], [at(0, 4, None)], [(0, 4, False)], id="where is not known"),
        pytest.param(
            [at(0, 4, 100)],
            [at(0, 2, 100), at(2, 4, 500), at(4, 6, 700)],
            [(2, 6, False)],
            id="neighbours are one range",
        ),
        pytest.param(
            [at(0, 2, 100), at(2, 4, 102)],
            [at(2, 4, 300)],
            [(0, 2, True), (2, 4, False)],
            id="zeros and data are two",
        ),
        pytest.param([at(0, 12, 100)], [at(0, 8, 100)], [], id="the base is longer than the point"),
    ],
)
def test_ranges(
    base: Sequence[Extent], point: Sequence[Extent], wanted: list[tuple[int, int, bool]]
) -> None:
    found = changed_ranges(base, point, 8 * K)
    assert found == tuple(Range(begin * K, end * K, zero) for begin, end, zero in wanted)


def extents(places: Sequence[int]) -> list[Extent]:
    """Return extents for the place of each block: 0 for a hole, 9 for one that is not known."""
    return [
        Extent(number, number + 1, None if place == 9 else place * 100 + number, is_shared=False)
        for number, place in enumerate(places)
        if place
    ]


@given(
    st.lists(st.tuples(st.sampled_from((0, 1, 2, 9)), st.sampled_from((0, 1, 2, 9))), max_size=12)
)
def test_each_block_that_differs_is_in_one_range_and_no_other(
    places: list[tuple[int, int]],
) -> None:
    found = changed_ranges(
        extents([old for old, _ in places]), extents([new for _, new in places]), len(places)
    )
    sent = [number for each in found for number in range(each.begin, each.end)]
    wanted = [n for n, (old, new) in enumerate(places) if old != new or 9 in {old, new}]
    assert sent == wanted
    zeros = {n for each in found if each.is_zero for n in range(each.begin, each.end)}
    assert zeros == {n for n in wanted if places[n][1] == 0}


def test_pieces_are_what_the_ranges_are() -> None:
    ranges = (Range(5, 5 + 2 * PIECE_BYTES, False), Range(9 * PIECE_BYTES, 99 * PIECE_BYTES, True))
    assert list(pieces(ranges)) == [
        Range(5, 5 + PIECE_BYTES, False),
        Range(5 + PIECE_BYTES, 5 + 2 * PIECE_BYTES, False),
        ranges[1],
    ]
    assert total_bytes(ranges) == 92 * PIECE_BYTES
    assert list(pieces(())) == []


def test_blocks_that_differ_within_a_piece() -> None:
    old = bytes(5 * BLOCK_BYTES)
    new = bytearray(old)
    new[BLOCK_BYTES + 7] = new[3 * BLOCK_BYTES - 1] = new[-1] = 1
    assert list(differing_runs(100, bytes(new), old)) == [
        Range(100 + BLOCK_BYTES, 100 + 3 * BLOCK_BYTES, False),
        Range(100 + 4 * BLOCK_BYTES, 100 + 5 * BLOCK_BYTES, False),
    ]
    assert list(differing_runs(100, old, old)) == []
    # The earlier file ends within the piece: what is behind that counts as changed.
    assert list(differing_runs(0, old, old[:-1])) == [
        Range(4 * BLOCK_BYTES, 5 * BLOCK_BYTES, False)
    ]
    assert list(differing_runs(0, old, b"")) == [Range(0, 5 * BLOCK_BYTES, False)]


def test_chunks_that_differ() -> None:
    assert differing_chunks(b"aabbcc", b"aaxxcd", 2) == (1, 2)
    assert differing_chunks(b"", b"", 2) == ()
    size = 2 * PIECE_BYTES + 7
    assert chunk_ranges((0, 2), size) == (
        Range(0, PIECE_BYTES, False),
        Range(2 * PIECE_BYTES, size, False),
    )


@pytest.mark.parametrize(
    ("ranges", "wanted"),
    [
        ((), ()),
        (((0, 1),), (0,)),
        (((0, MIB),), (0,)),
        (((MIB - 1, MIB + 1),), (0, 1)),
        (((5, 6), (7, MIB), (MIB, MIB + 1), (4 * MIB, 5 * MIB + 1)), (0, 1, 4, 5)),
        (((0, 3 * MIB), (3 * MIB, 3 * MIB + 5)), (0, 1, 2, 3)),
    ],
)
def test_the_chunks_that_ranges_touch(
    ranges: tuple[tuple[int, int], ...], wanted: tuple[int, ...]
) -> None:
    given = [Range(begin, end, is_zero=begin % 2 == 1) for begin, end in ranges]
    assert touched_chunks(given) == wanted
