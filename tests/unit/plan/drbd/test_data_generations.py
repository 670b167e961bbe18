# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.plan.drbd.data_generations import (
    Generations,
    Relation,
    compare_generations,
    parse_generations,
)

A, B, C, D, E, F = 0xA0, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0


def test_reads_what_drbdsetup_prints() -> None:
    text = "5BAD18F73E73B74F:0000000000000000:FC6B8DD70B9C4ED1:FC6A8DD70B9C4ED1:1:1:1:1:0:0:0\n"
    found = parse_generations(text)
    history = (0xFC6B8DD70B9C4ED0, 0xFC6A8DD70B9C4ED0)
    assert found == Generations(0x5BAD18F73E73B74E, 0, history, was_primary=True)
    crashed = parse_generations(text.replace(":1:1:1:1:0:0:0", ":1:1:0:0:0:0:1"))
    assert crashed is not None and crashed.was_primary
    secondary = parse_generations(text.replace(":1:1:1:1:0:0:0", ":1:1:0:1:0:1:0"))
    assert secondary is not None and not secondary.was_primary
    published = parse_generations(text[:67])
    assert published is not None and not published.was_primary
    assert found.name == "5BAD18F73E73B74E"


@pytest.mark.parametrize("text", ["", "?", "5BAD:0:0:0", "5BAD18F73E73B74F", "x" * 67])
def test_anything_else_is_unknown(text: str) -> None:
    assert parse_generations(text) is None


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ((A, 0, (B, C)), (A, 0, (B, C)), Relation.SAME),
        # The other went on alone, or was sent my data before.
        ((A, 0, (B, C)), (D, A, (B, C)), Relation.BEHIND),
        ((D, A, (B, C)), (A, 0, (B, C)), Relation.AHEAD),
        ((A, 0, (B, C)), (D, E, (A, B)), Relation.BEHIND),
        ((D, E, (A, B)), (A, 0, (B, C)), Relation.AHEAD),
        # Both went on alone from A.
        ((D, A, (B, C)), (E, A, (B, C)), Relation.DIVERGED),
        # Both went on, and one bitmap does not count from where they parted.
        ((D, F, (A, B)), (E, A, (B, C)), Relation.UNRELATED),
        ((D, 0, (A, B)), (E, 0, (A, B)), Relation.UNRELATED),
        ((A, 0, (0, 0)), (B, 0, (0, 0)), Relation.UNRELATED),
        # A replica that has never held data.
        ((4, 0, (0, 0)), (A, 0, (B, C)), Relation.BEHIND),
        ((A, 0, (B, C)), (0, 0, (0, 0)), Relation.AHEAD),
        ((4, 0, (0, 0)), (4, 0, (0, 0)), Relation.SAME),
    ],
)
def test_relation(
    mine: tuple[int, int, tuple[int, int]],
    theirs: tuple[int, int, tuple[int, int]],
    expected: Relation,
) -> None:
    assert compare_generations(Generations(*mine), Generations(*theirs)) is expected


_IDS = st.sampled_from([0, 4, A, B, C, D, E])
_GENERATIONS = st.builds(Generations, _IDS, _IDS, st.tuples(_IDS, _IDS))


@given(_GENERATIONS, _GENERATIONS)
def test_both_sides_come_to_the_same_view(one: Generations, two: Generations) -> None:
    """Never do both call themselves ahead, nor one diverged and the other not.

    Generations that name each other as their past cannot come to be; both are called behind then,
    which discards nothing.
    """
    mirrored = {Relation.AHEAD: Relation.BEHIND, Relation.BEHIND: Relation.AHEAD}
    there, back = compare_generations(one, two), compare_generations(two, one)
    assert back is mirrored.get(there, there) or {there, back} == {Relation.BEHIND}
