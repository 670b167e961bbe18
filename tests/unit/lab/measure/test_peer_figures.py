# SPDX-License-Identifier: GPL-2.0-or-later
"""Medians and ratios of two stacks measured in turns, and what counts as reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.lab.measure import peer_figures
from sanctl.lab.measure.peer_figures import PeerTrial


def trial(stack: str, kind: str, *pauses_s: float) -> PeerTrial:
    return PeerTrial(stack=stack, kind=kind, pauses_s=pauses_s, errors=0)


TRIALS = [
    trial("ours", "crash", 8.0),
    trial("ours", "planned move", 2.0),
    trial("stock", "crash", 30.0),
    trial("stock", "planned move", 19.0),
    trial("ours", "crash", 10.0),
    trial("stock", "crash", 24.0),
]


def test_the_ratio_is_that_of_the_medians() -> None:
    crash, move = peer_figures.compare(TRIALS, "ours", "stock")
    assert (crash.ours_median_s, crash.stock_median_s, crash.ratio) == (9.0, 27.0, 3.0)
    assert move.ratio == 9.5


def test_a_goal_is_reached_by_its_own_ratio() -> None:
    crash, move = peer_figures.compare(TRIALS, "ours", "stock")
    assert crash.is_reached
    assert not move.is_reached


def test_of_several_devices_the_last_one_served_counts() -> None:
    several = [trial("ours", "crash", 5.0, 6.0), trial("stock", "crash", 7.0, 9.0)]
    (crash,) = peer_figures.compare(several, "ours", "stock")
    assert (crash.ours_s, crash.stock_s) == ((6.0,), (9.0,))


def test_a_kind_that_only_one_stack_has_is_not_compared() -> None:
    assert peer_figures.compare(TRIALS[:2], "ours", "stock") == []


def test_monitors_are_added_up_over_a_minute() -> None:
    assert peer_figures.per_minute_s({"a": 0.25, "b": 0.5}, 10.0) == pytest.approx(4.5)


def test_the_chart_is_drawn(tmp_path: Path) -> None:
    found = peer_figures.compare(TRIALS, "ours", "stock")
    for path in peer_figures.draw(found, ("ours", "stock"), "title", tmp_path / "peers"):
        assert path.stat().st_size > 1000
