# SPDX-License-Identifier: GPL-2.0-or-later
"""Medians and ratios of two stacks measured in turns, and what counts as reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.lab.measure import peer_figures
from sanctl.lab.measure.peer_figures import MonitorCost, PeerTrial


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


def monitor(stack: str, program: str, cpu_s: float, per_minute: int) -> MonitorCost:
    return MonitorCost(stack=stack, program=program, cpu_s=cpu_s, wall_s=1.0, per_minute=per_minute)


MONITORS = [
    monitor("ours", "short", 0.02, 5),
    monitor("ours", "whole", 0.3, 1),
    monitor("stock", "ocf:heartbeat:IPaddr2", 0.5, 6),
    monitor("stock", peer_figures.STOCK_MONITOR, 1.0, 6),
]


def test_a_minute_has_each_monitor_as_often_as_it_runs() -> None:
    assert peer_figures.per_minute_s(MONITORS, "ours") == pytest.approx(0.4)
    assert peer_figures.per_minute_s(MONITORS, "stock") == pytest.approx(9.0)


def test_each_monitor_is_compared_with_the_stock_drbd_agents() -> None:
    found = peer_figures.of_stock_monitor(MONITORS)
    assert found == pytest.approx(
        {"short": 0.02, "whole": 0.3, "ocf:heartbeat:IPaddr2": 0.5, peer_figures.STOCK_MONITOR: 1.0}
    )


def test_a_minute_is_compared_with_that_of_the_stock_drbd_agent_alone() -> None:
    assert peer_figures.minute_of_stock_monitor(MONITORS, "ours") == pytest.approx(0.4 / 6)
    assert peer_figures.minute_of_stock_monitor(MONITORS, "stock") == pytest.approx(1.5)


def test_the_chart_is_drawn(tmp_path: Path) -> None:
    found = peer_figures.compare(TRIALS, "ours", "stock")
    for path in peer_figures.draw(found, ("ours", "stock"), "title", tmp_path / "peers"):
        assert path.stat().st_size > 1000
