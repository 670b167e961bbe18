# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl bench cost`: a minute of monitors is judged, not one of them."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from click.testing import CliRunner, Result

from sanctl.lab.bench import commands, monitor_cost
from sanctl.lab.harness import collect
from sanctl.lab.measure.cpu_cost import Cost, NodeCpu, Program
from tests.support.json_contract import breaches


def run(monkeypatch: pytest.MonkeyPatch, *words: str, short_s: float, whole_s: float) -> Result:
    """Run the command where the stock monitor takes a second of processor time."""
    costs = {
        "ocf:sanctl:device": short_s,
        "ocf:sanctl:device, a whole one": whole_s,
        "ocf:sanctl:device, a whole one, without its service": 2.0,
        "ocf:linbit:drbd": 1.0,
        "sanctl status": 0.6,
        "crm_mon -1": 0.3,
    }

    def measure(
        _bed: object, node: str, programs: Mapping[str, Program], repeat: int
    ) -> dict[str, Cost]:
        assert (node, set(programs)) == ("n1", set(costs))
        return {name: Cost(cpu_s=costs[name], wall_s=3.0, runs=repeat) for name in programs}

    monkeypatch.setattr(commands, "LabSession", lambda _name: None)
    monkeypatch.setattr(monitor_cost, "device_parameters", lambda _bed: {"vol1": {"size": "1"}})
    monkeypatch.setattr(monitor_cost, "measure", measure)
    monkeypatch.setattr(
        monitor_cost, "measure_idle", lambda _bed, seconds: {"n1": NodeCpu(seconds, 5.0, 1.0, 2.0)}
    )
    monkeypatch.setattr(collect, "active_node", lambda _bed, _device: "n1")
    return CliRunner().invoke(commands.bench, ["cost", *words])


def test_two_minutes_have_eleven_short_monitors_and_a_whole_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = run(monkeypatch, "--output", "json", "--idle", "10", short_s=0.02, whole_s=0.3)
    assert done.exit_code == 0, done.output
    assert breaches("bench cost", done.stdout) == []
    found = json.loads(done.stdout)["data"]
    assert found["minute_ratio"] == pytest.approx((11 * 0.02 + 0.3) / 12)
    assert (found["monitor_ratio"], found["whole_ratio"], found["status_ratio"]) == (0.02, 0.3, 2.0)


@pytest.mark.parametrize(
    ("short_s", "whole_s", "status"),
    [(0.06, 0.3, 0), (0.09, 0.3, 1), (0.02, 1.0, 1), (0.9, 0.9, 1)],
)
def test_a_tenth_of_the_stock_agents_minute_is_the_goal(
    monkeypatch: pytest.MonkeyPatch, short_s: float, whole_s: float, status: int
) -> None:
    assert run(monkeypatch, short_s=short_s, whole_s=whole_s).exit_code == status


def test_the_text_has_the_ratio_that_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, short_s=0.02, whole_s=0.3)
    assert (
        "sanctl: 0.26 s of processor a minute and active device, 0.04 of ocf:linbit:drbd alone;"
        " goal 0.1: reached" in done.output
    )
    assert "goal 0.1: missed" in run(monkeypatch, short_s=0.2, whole_s=0.3).output
