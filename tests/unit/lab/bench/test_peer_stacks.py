# SPDX-License-Identifier: GPL-2.0-or-later
"""Which monitors of each stack are measured, and how often they count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sanctl.lab.bench.peer_stacks import OurStack, Stack, StockStack
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.measure import peer_figures

CIB = """<cib><configuration><resources><clone id="bench-ours0-clone">
<primitive id="bench-ours0" class="ocf" provider="sanctl" type="device">
<instance_attributes id="p"><nvpair id="s" name="size" value="67108864"/></instance_attributes>
</primitive></clone></resources></configuration></cib>"""


def scenario() -> Scenario:
    def sh(node: str, command: str, **_: Any) -> SimpleNamespace:
        assert (node, command) == ("n1", "cibadmin --query")
        return SimpleNamespace(stdout=CIB)

    bed = SimpleNamespace(storage=[SimpleNamespace(name="n1"), SimpleNamespace(name="n2")], sh=sh)
    host = SimpleNamespace(iqn="iqn.2026-11.net.example:host1")
    return cast("Scenario", SimpleNamespace(bed=bed, host=host))


def test_one_of_our_twelve_monitors_in_two_minutes_is_a_whole_one() -> None:
    found = OurStack(scenario(), 1).monitors()
    assert [each.per_minute for each in found.values()] == [5.5, 0.5]


def test_the_short_monitor_finds_its_own_fingerprint_and_the_whole_one_none() -> None:
    short, whole = OurStack(scenario(), 1).monitors().values()
    assert "device monitor" in short.program.before
    assert "OCF_RESKEY_size=67108864" in short.program.before
    assert whole.program.before == "rm -f /run/sanctl/devices/bench-ours0/fingerprint"


def test_the_stock_drbd_agent_is_there_to_be_compared_with() -> None:
    assert peer_figures.STOCK_MONITOR in StockStack(scenario(), 1).monitors()


@pytest.mark.parametrize("kind", [OurStack, StockStack])
def test_each_agent_runs_every_ten_seconds(kind: type[OurStack | StockStack]) -> None:
    stack: Stack = kind(scenario(), 1)
    by_agent: dict[str, float] = {}
    for name, each in stack.monitors().items():
        agent = name.split(",")[0]
        by_agent[agent] = by_agent.get(agent, 0) + each.per_minute
    assert set(by_agent.values()) == {6}
