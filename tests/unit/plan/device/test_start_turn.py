# SPDX-License-Identifier: GPL-2.0-or-later
"""How many starts run at a time, how long one waits, and for what it makes way."""

from __future__ import annotations

import pytest

from sanctl.plan.device import start_turn


@pytest.mark.parametrize(("processors", "turns"), [(1, 16), (4, 16), (5, 20), (16, 64)])
def test_four_starts_for_each_processor_and_at_least_sixteen(processors: int, turns: int) -> None:
    assert start_turn.at_a_time(processors) == turns


@pytest.mark.parametrize(("remaining_s", "wait_s"), [(238.0, 178.0), (60.0, 0.0), (1.0, 0.0)])
def test_a_start_keeps_a_minute_for_itself(remaining_s: float, wait_s: float) -> None:
    assert start_turn.longest_wait_s(remaining_s) == wait_s


@pytest.mark.parametrize(
    ("before", "now", "lost"),
    [
        ({"n1", "n2", "n3"}, {"n1", "n3"}, {"n2"}),
        ({"n1", "n2"}, {"n1", "n2", "n3"}, set()),
        ({"n1", "n2"}, None, set()),
        (None, {"n1"}, set()),
    ],
)
def test_only_a_node_that_was_seen_there_is_lost(
    before: set[str] | None, now: set[str] | None, lost: set[str]
) -> None:
    def members(names: set[str] | None) -> frozenset[str] | None:
        return None if names is None else frozenset(names)

    assert start_turn.lost_nodes(members(before), members(now)) == lost
