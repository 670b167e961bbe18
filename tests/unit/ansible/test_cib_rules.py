# SPDX-License-Identifier: GPL-2.0-or-later
"""Pacemaker's properties that must not change at once, or not while a node was not asked."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sanctl.rollout.running_cluster import watchdog_rule
from tests.unit.ansible.test_modules import cib

WAIT = "stonith-watchdog-timeout"


def configuration(value: str | None, disks: str = "") -> ET.Element:
    pair = f'<nvpair id="x" name="{WAIT}" value="{value}"/>' if value is not None else ""
    fence = (
        '<primitive id="fence-sbd" class="stonith" type="fence_sbd"><instance_attributes'
        f' id="fence-sbd-params"><nvpair id="fence-sbd-params-devices" name="devices"'
        f' value="{disks}"/></instance_attributes></primitive>'
        if disks
        else ""
    )
    return ET.fromstring(
        f'<configuration><crm_config><cluster_property_set id="o">{pair}</cluster_property_set>'
        f"</crm_config><resources>{fence}</resources></configuration>"
    )


def wanted(value: str) -> ET.Element:
    return ET.fromstring(
        f'<configuration><crm_config><nvpair name="{WAIT}" value="{value}"/></crm_config>'
        "</configuration>"
    )


@pytest.mark.parametrize(
    ("rule", "old", "asked", "new"),
    [
        # A lower value ends Pacemaker on each node that runs with a longer one.
        ("raise", "30s", "10s", "30s"),
        ("raise", "10s", "30s", "30s"),
        ("raise", "5000ms", "10s", "10s"),
        ("raise", "1min", "30s", "1min"),
        ("raise", "something", "10s", "something"),
        ("raise", None, "10s", "10s"),
        ("", "30s", "10s", "10s"),
        # Where there is none it is not added; where diskless SBD was, it goes.
        ("if-set", None, "0", None),
        ("if-set", "0s", "0", "0s"),
        ("if-set", "10s", "0", "0"),
        ("if-unset", "64", "16", "64"),
        ("if-unset", None, "16", "16"),
    ],
)
def test_a_property_changes_by_its_rule(
    rule: str, old: str | None, asked: str, new: str | None
) -> None:
    present = configuration(old)
    changes = cib.apply(wanted(asked), present, [], {WAIT: rule})
    assert cib.values(present, [WAIT]) == ({WAIT: new} if new is not None else {})
    assert bool(changes) == (new != old)
    assert cib.apply(wanted(asked), present, [], {WAIT: rule}) == []


def test_a_time_that_stays_longer_is_said() -> None:
    rules = {WAIT: "raise"}
    (said,) = cib.kept_longer(wanted("10s"), configuration("30s"), rules)
    assert said == f"{WAIT} stays 30s; the inventory asks for 10s"
    assert cib.kept_longer(wanted("10s"), configuration("10000ms"), rules) == []
    assert cib.kept_longer(wanted("10s"), configuration("30s"), {WAIT: "if-set"}) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (configuration(None), configuration("10s"), [f"{WAIT}=10s"]),
        (configuration("0"), configuration("10s"), [f"{WAIT}=10s"]),
        (configuration("10s"), configuration("10s"), []),
        (configuration("10s"), configuration("0"), []),
        (configuration(None), configuration(None, "/dev/a"), ["fence-sbd-params-devices=/dev/a"]),
        (
            configuration(None, "/dev/a"),
            configuration(None, "/dev/b"),
            ["fence-sbd-params-devices=/dev/b"],
        ),
        (configuration(None, "/dev/a"), configuration(None, "/dev/a"), []),
        (configuration(None, "/dev/a"), configuration(None), []),
    ],
)
def test_what_the_cluster_would_newly_rely_on(
    old: ET.Element, new: ET.Element, expected: list[str]
) -> None:
    """Nodes that were not asked may have no SBD; what is relied on already may stay so."""
    assert cib.newly_relied_on(old, new, [WAIT, "fence-sbd-params-devices"]) == expected


@pytest.mark.parametrize(
    ("timeouts", "rule"),
    [
        (["5", "5\n", "3"], ""),
        (["5", "15", "5"], "raise"),
        # A node that does not take part, or did not answer.
        (["5", "", "5"], "raise"),
        (["5", "x"], "raise"),
    ],
)
def test_the_wait_becomes_shorter_once_every_node_runs_with_it(
    timeouts: list[str], rule: str
) -> None:
    assert watchdog_rule(timeouts, 10) == rule
