# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes that run different releases of sanctl are a warning."""

from __future__ import annotations

import pytest

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.findings import Finding, Severity
from sanctl.parse.cib import parse_cib
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.cluster_health import all_findings
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology

SPACE = "total=100 free=90 release="
OLD, NEW = "0.1.0-aaaaaaaaaaaa", "0.2.0-bbbbbbbbbbbb"


def found(standby: str = "", **pools: str) -> list[Finding]:
    """Return what is said of releases where the nodes publish this of their pool."""
    fake = FakePacemaker(golden="one-device")
    for node, value in pools.items():
        fake.roles["sanctl-pool", node] = Role.STARTED
        fake.attribute(node, "sanctl-pool-main", value)
    if standby:
        fake.states[standby] = "standby"
        del fake.roles["sanctl-pool", standby]
    cluster = Cluster.seen(parse_cib(fake.root), parse_crm_mon(fake.monitor()))
    findings = all_findings(cluster, topology(), now_s=1_800_000_000.0)
    return [each for each in findings if each.code == "SAN-HLT-128"]


@pytest.mark.parametrize(
    ("n2", "runs"),
    [
        (SPACE + NEW, ""),
        (SPACE + OLD, f"n2 runs {OLD}"),
        # Of a release before this was published.
        ("total=100 free=90", "n2 runs an older one"),
        ("total=100 free=90 release=", "n2 runs an older one"),
        ("error=SAN-POOL-003", ""),
    ],
)
def test_a_node_that_was_left_out(n2: str, runs: str) -> None:
    findings = found(n1=SPACE + NEW, n2=n2)
    assert len(findings) == bool(runs)
    for finding in findings:
        assert finding.severity is Severity.WARNING
        assert runs in finding.what and f"n1 runs {NEW}" in finding.what


def test_what_a_stopped_pool_agent_published_last_does_not_count() -> None:
    """What broke: a node in standby was said to run the old release after the playbook had run."""
    assert found(n1=SPACE + OLD, n2=SPACE + NEW, standby="n1") == []


def test_all_of_a_release_that_does_not_say_so() -> None:
    assert found() == []


def test_several_nodes_are_told_together_and_the_most_last() -> None:
    (finding,) = found(n1=SPACE + NEW, n2=SPACE + OLD, n3=SPACE + NEW)
    assert finding.what.endswith(f": n2 runs {OLD}; n1, n3 run {NEW}")
