# SPDX-License-Identifier: GPL-2.0-or-later
"""SAN-HLT-161: clocks of nodes that differ, and whose is wrong."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.findings import Finding, Severity
from sanctl.parse.cib import parse_cib
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.cluster_health import all_findings
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology

WELL = "total=100 free=90"


def found(away: str = "", **pools: str) -> list[Finding]:
    fake = FakePacemaker(golden="one-device")
    if "n4" in pools:
        fake.states["n4"] = "online"
        fake.roles[("sanctl-pool", "n4")] = Role.STARTED
        for folder, tag in (("configuration/nodes", "node"), ("status", "node_state")):
            parent = fake.root.find(folder)
            assert parent is not None
            ET.SubElement(parent, tag, id="4", uname="n4")
    for node, value in pools.items():
        fake.attribute(node, "sanctl-pool-main", value)
        fake.attribute(node, "sanctl-pool-other", value)
    if away:
        fake.states[away] = "offline"
    cluster = Cluster.seen(parse_cib(fake.root), parse_crm_mon(fake.monitor()))
    findings = all_findings(cluster, topology(), now_s=1_800_000_000.0)
    return [each for each in findings if each.code == "SAN-HLT-161"]


def test_the_node_that_differs_from_all_others_is_named() -> None:
    (one,) = found(
        n1=f"{WELL} clock-off=2:600,9:600", n2=f"{WELL} clock-off=1:-602,3:-601,2:7,1:-603"
    )
    assert (one.severity, one.subject) == (Severity.WARNING, "node n2")
    assert one.what == "its clock is 10 min ahead of those of n1 and n3"
    assert "on n2" in (one.do or "")


def test_of_three_others_the_last_alone_is_named_after_an_and() -> None:
    (one,) = found(
        n1=f"{WELL} clock-off=4:9", n2=f"{WELL} clock-off=4:9", n4=f"{WELL} clock-off=3:-9"
    )
    assert one.what == "its clock is 9 s ahead of those of n1, n2 and n3"
    assert one.severity is Severity.NOTE, "less than a minute"


def test_a_witness_that_is_behind_is_named_by_the_others() -> None:
    (one,) = found(n1=f"{WELL} clock-off=3:-7", n2=f"{WELL} clock-off=3:-9")
    assert (one.subject, one.what) == ("node n3", "its clock is 7 s behind those of n1 and n2")


def test_of_two_clocks_it_is_not_known_which_is_wrong() -> None:
    (one,) = found(n1=WELL, n2=f"{WELL} clock-off=1:90")
    assert one.subject == "cluster"
    assert one.what == "the clock of n2 is 90 s behind that of n1: which one is wrong is not known"
    (one,) = found(n1=f"{WELL} clock-off=2:90", n2=WELL)
    assert one.what.startswith("the clock of n2 is 90 s ahead of that of n1")


def test_nodes_that_are_away_or_have_no_pool_say_nothing() -> None:
    assert found(n1=WELL, n2="error=SAN-POOL-003 clock-off=1:90") == []
    assert found("n2", n1=f"{WELL} clock-off=2:90", n2=f"{WELL} clock-off=1:90") == []
