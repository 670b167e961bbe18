# SPDX-License-Identifier: GPL-2.0-or-later
"""A lost link is said once for each node and link, and not of what a stopped agent has left."""

from __future__ import annotations

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.parse.cib import parse_cib
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.cluster_health import all_findings
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology


def found(fake: FakePacemaker, **said: str) -> list[Finding]:
    for node, value in said.items():
        for pool in ("main", "other"):
            fake.attribute(node, f"sanctl-pool-{pool}", f"total=100 free=90 {value}")
    cluster = Cluster.seen(parse_cib(fake.root), parse_crm_mon(fake.monitor()))
    findings = all_findings(cluster, topology(), now_s=1_800_000_000.0)
    return [each for each in findings if each.code == "SAN-HLT-145"]


def test_each_link_of_a_node_is_one_finding() -> None:
    fake = FakePacemaker(golden="one-device")
    one, two = found(fake, n1="links-down=0:3,1:2,1:3", n2="")
    assert {one.subject, two.subject} == {"node n1"} and one.severity is Severity.WARNING
    assert "link 0 (heartbeat) from n1 to n3 is down" in one.what
    assert "link 1 (sync) from n1 to n2, n3 is down" in two.what


def test_a_node_in_standby_says_nothing() -> None:
    """Its pool agent is stopped, and what that published last stays with the membership."""
    fake = FakePacemaker(golden="one-device")
    said = {"n1": "links-down=1:2 cib=unwritten own-disk=0"}
    assert found(fake, **said)
    fake.set_permanent("n1", "standby", "on")
    fake.tick()
    assert found(fake, **said) == []
    cluster = Cluster.seen(parse_cib(fake.root), parse_crm_mon(fake.monitor()))
    codes = {each.code for each in all_findings(cluster, topology(), now_s=1_800_000_000.0)}
    assert not codes & {"SAN-HLT-140", "SAN-HLT-141"}
