# SPDX-License-Identifier: GPL-2.0-or-later
"""What waits for a node without an end is in `sanctl status`, and not in a journal alone."""

from __future__ import annotations

import pytest

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.parse.cib import parse_cib
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.cluster_health import all_findings
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology


@pytest.fixture
def fake() -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.tick()
    return fake


def found(fake: FakePacemaker) -> list[Finding]:
    cluster = Cluster.seen(parse_cib(fake.root), parse_crm_mon(fake.monitor()))
    findings = all_findings(cluster, topology(), now_s=1_800_000_000.0)
    return [each for each in findings if each.code in {"SAN-HLT-147", "SAN-HLT-148"}]


def test_a_change_that_waits_for_a_lost_peer(fake: FakePacemaker) -> None:
    fake.attribute("n1", "sanctl-vm1", "disk=UpToDate connection=Connecting change-waits=n2")
    (finding,) = found(fake)
    assert (finding.code, finding.severity) == ("SAN-HLT-147", Severity.WARNING)
    assert "waits on n1 for n2" in finding.what and "SAN-AGENT-021" in (finding.do or "")
    fake.states["n1"] = "offline"
    assert found(fake) == []


def test_a_service_that_is_dead_on_a_standby(fake: FakePacemaker) -> None:
    fake.attribute("n2", "sanctl-pool-main", "total=100 free=90 pr-service=down")
    assert found(fake) == [], "no device has reservations"
    parent = fake.root.find(".//instance_attributes[@id='vm1-params']")
    assert parent is not None
    pair = parent.makeelement("nvpair", {"id": "r", "name": "reservations", "value": "on"})
    parent.append(pair)
    (finding,) = found(fake)
    assert (finding.code, finding.severity) == ("SAN-HLT-148", Severity.WARNING)
    assert "does not listen on n2" in finding.what
    # Another node's replica is not asked there; and what it published last stays.
    fake.set_permanent("n2", "standby", "on")
    fake.tick()
    assert found(fake) == []
