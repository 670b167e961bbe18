# SPDX-License-Identifier: GPL-2.0-or-later
"""What pool agents say of their nodes' own disks is said once of each node."""

from __future__ import annotations

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.parse.cib import parse_cib
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.cluster_health import all_findings
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology


def found(pool: str = "main", **pools: str) -> list[Finding]:
    fake = FakePacemaker(golden="one-device")
    for node, value in pools.items():
        fake.attribute(node, f"sanctl-pool-{pool}", value)
        fake.attribute(node, "sanctl-pool-other", value)
    cluster = Cluster.seen(parse_cib(fake.root), parse_crm_mon(fake.monitor()))
    findings = all_findings(cluster, topology(), now_s=1_800_000_000.0)
    return [each for each in findings if each.code in {"SAN-HLT-140", "SAN-HLT-141", "SAN-HLT-162"}]


def test_a_node_that_writes_no_cib() -> None:
    (one,) = found(n1="total=100 free=90", n2="total=100 free=90 cib=unwritten")
    assert (one.code, one.severity, one.subject) == ("SAN-HLT-140", Severity.CRITICAL, "node n2")
    assert "the CIB is not written to disk on n2" in one.what
    assert "make room on /var/lib" in (one.do or "")


def test_a_node_with_little_room() -> None:
    (one,) = found(n1=f"total=100 free=90 own-disk={128 << 20}", n2="error=SAN-POOL-003")
    assert (one.code, one.subject) == ("SAN-HLT-141", "node n1")
    assert "128" in one.what


def test_a_node_whose_run_is_nearly_full() -> None:
    (one,) = found(n2=f"total=100 free=90 run-free={12 << 20}")
    assert (one.code, one.severity, one.subject) == ("SAN-HLT-162", Severity.WARNING, "node n2")
    assert "/run on n2 has 12" in one.what


def test_all_is_well() -> None:
    assert found(n1="total=100 free=90 cib=written", n2="total=100 free=90") == []
