# SPDX-License-Identifier: GPL-2.0-or-later
"""How many starts run at a time, how long one waits, and for what it makes way."""

from __future__ import annotations

import pytest

from sanctl.plan.device import start_turn
from sanctl.plan.device.start_turn import Wait

ALL, TWO = frozenset({"n1", "n2", "n3"}), frozenset({"n1", "n3"})


@pytest.mark.parametrize(("processors", "turns"), [(1, 16), (4, 16), (5, 20), (16, 64)])
def test_four_starts_for_each_processor_and_at_least_sixteen(processors: int, turns: int) -> None:
    assert start_turn.at_a_time(processors) == turns


@pytest.mark.parametrize(
    ("remaining_s", "wait_s"), [(178.0, 45.0), (100.0, 40.0), (60.0, 0.0), (1.0, 0.0)]
)
def test_a_start_keeps_a_minute_for_itself(remaining_s: float, wait_s: float) -> None:
    assert start_turn.longest_wait_s(remaining_s) == wait_s


@pytest.mark.parametrize(
    ("before", "now", "active", "wait"),
    [
        (ALL, TWO, "n1", Wait.GIVE_WAY),
        (ALL, TWO, "n2", Wait.NO_LONGER),  # The node that served is gone.
        (ALL, TWO, "", Wait.NO_LONGER),
        (ALL, ALL, "n1", Wait.ON),
        (TWO, ALL, "n1", Wait.ON),
        (ALL, None, "n1", Wait.ON),
        (None, TWO, "n1", Wait.ON),
    ],
)
def test_only_a_start_that_nobody_waits_for_makes_way(
    before: frozenset[str] | None, now: frozenset[str] | None, active: str, wait: Wait
) -> None:
    assert start_turn.after_look(before, now, active) is wait
