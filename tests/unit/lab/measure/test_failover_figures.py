# SPDX-License-Identifier: GPL-2.0-or-later
"""Medians of crashes of many devices, the ratio to one device, and what counts as missed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sanctl.lab.measure import failover_figures
from sanctl.lab.measure.cpu_cost import NodeCpu
from sanctl.lab.measure.failover_figures import Crash, Summary


def crash(*pauses_s: float, whole_s: float = 90.0, problem: str = "") -> Crash:
    return Crash(
        pauses_s=pauses_s,
        whole_s=whole_s,
        errors=0,
        is_another_fenced=False,
        cib_changes=5,
        cib_cpu_s=3.2,
        cpu={},
        problem=problem,
    )


def twenty(last_s: float) -> Crash:
    return crash(7.0, *[9.0] * 18, last_s)


def summary_of(count: int, *crashes: Crash) -> Summary:
    (found,) = (each for each in failover_figures.summaries(crashes) if each.devices == count)
    return found


def test_each_number_has_medians_of_its_crashes() -> None:
    found = summary_of(3, crash(5, 6, 9), crash(4, 8, 30), crash(7, 7, 11), crash(8.0))
    assert (found.crashes, found.first_s, found.median_s, found.last_s) == (3, 5, 7, 11)
    assert found.slowest_s == 30


def test_numbers_come_in_their_order_whatever_the_order_of_crashes() -> None:
    found = failover_figures.summaries([twenty(10.0), crash(8.0), crash(5, 6), crash(8.0)])
    assert [(each.devices, each.crashes) for each in found] == [(1, 2), (2, 1), (20, 1)]


def test_the_last_is_compared_with_the_median_of_one_device() -> None:
    alone = [crash(6.0), crash(7.0), crash(50.0)]
    assert summary_of(20, *alone, twenty(14.0)).ratio == 2.0


@pytest.mark.parametrize(
    ("last_s", "judgement"), [(13.9, "2: reached"), (14.0, "2: reached"), (14.1, "2: missed")]
)
def test_twenty_may_wait_twice_as_long(last_s: float, judgement: str) -> None:
    found = summary_of(20, crash(7.0), twenty(last_s))
    assert (found.judgement, found.is_missed) == (judgement, judgement == "2: missed")


def test_the_median_of_the_repeats_is_judged() -> None:
    assert not summary_of(20, crash(7.0), twenty(13.0), twenty(99.0), twenty(14.0)).is_missed
    assert summary_of(20, crash(7.0), twenty(13.0), twenty(99.0), twenty(15.0)).is_missed


@pytest.mark.parametrize(
    ("devices", "goal"), [(1, None), (2, 2.0), (20, 2.0), (21, 3.0), (50, 3.0), (51, None)]
)
def test_each_number_has_its_goal(devices: int, goal: float | None) -> None:
    assert failover_figures.goal_of(devices) == goal


def test_without_one_device_nothing_is_judged() -> None:
    found = summary_of(20, twenty(1000.0))
    assert (found.ratio, found.is_missed, found.judgement) == (None, False, "2: not judged")
    assert summary_of(1, crash(8.0)).judgement == ""


def test_once_too_late_is_no_time_until_all_were_whole() -> None:
    assert summary_of(1, crash(8, whole_s=80), crash(8, whole_s=90)).whole_s == 85
    assert summary_of(1, crash(8), crash(8, problem="waited 900 s")).whole_s is None


@pytest.mark.parametrize(
    "change", [{"errors": 1}, {"is_another_fenced": True}, {"problem": "waited 900 s"}], ids=str
)
def test_a_crash_is_good_only_if_nobody_else_suffered(change: dict[str, Any]) -> None:
    assert crash(8.0).is_good
    assert not dataclasses.replace(crash(8.0), **change).is_good


def test_processors_count_of_nodes_that_did_not_reboot() -> None:
    figures = "100.0\n1000\n2000000\n3000000\n"
    later = "160.0\n4000\n7000000\n13000000\n"
    before = {node: f"boot-{node}\n{figures}" for node in ("n1", "n3", "n4")}
    after = {"n1": f"boot-n1\n{later}", "n3": f"another\n{later}", "n4": ""}
    assert failover_figures.cpu_of_survivors(before, after) == {"n1": NodeCpu(60, 30, 5, 10)}


def test_more_devices_than_fail_over_in_one_step_are_told_of_before() -> None:
    (text,) = failover_figures.limit_warnings((1, 50, 20, 23), 23)
    assert "node-action-limit is 23: of 50 devices 27 fail over in a second step" in text
    assert failover_figures.limit_warnings((1, 20), 20) == []


def test_no_limit_at_all_is_told_of_before() -> None:
    (text,) = failover_figures.limit_warnings((1, 5), None)
    assert "the CIB has no node-action-limit" in text


def test_a_run_that_is_not_judged_is_told_of_before() -> None:
    (text,) = failover_figures.limit_warnings((5, 20), 64)
    assert "nothing is judged without crashes of one device" in text
    assert failover_figures.limit_warnings((60,), 64) == []


@pytest.mark.parametrize(
    "crashes",
    [
        [crash(8.0)],
        [twenty(16.0), twenty(19.0)],
        [crash(8.0), crash(5, 6, 7), twenty(16.0), crash(8.0, problem="waited 900 s")],
    ],
    ids=["one", "no comparison", "several"],
)
def test_the_chart_is_drawn(tmp_path: Path, crashes: list[Crash]) -> None:
    found = failover_figures.summaries(crashes)
    for path in failover_figures.draw(found, crashes, tmp_path / "failover"):
        assert path.stat().st_size > 1000
