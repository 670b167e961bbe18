# SPDX-License-Identifier: GPL-2.0-or-later
"""What `crm_resource --ban` and `pcs resource move` leave is seen before a failover needs it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sanctl.errors import Refused
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import DeviceName, NodeName
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.cluster.draining import DrainOutlook, devices_between_nodes, drain_outlook
from sanctl.plan.cluster.standby import plan_standby, stranded_devices
from sanctl.plan.device.alteration import plan_move
from sanctl.plan.health.cluster_health import all_findings
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology

#: The day before the end of the bans below.
NOON = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp()
N1, N2, VM1 = NodeName.parse("n1"), NodeName.parse("n2"), DeviceName.parse("vm1")
_ENDS = (
    '<rule id="r" score="-INFINITY" boolean-op="and"><expression id="e" attribute="#uname" '
    'operation="eq" value="n2"/><date_expression id="d" operation="lt" end="2026-11-27 12:00:00Z"/>'
    "</rule>"
)
_BANS = [
    '<rsc_location id="cli-ban-sanctl-vm1-on-n2" rsc="sanctl-vm1" role="Started" node="n2" '
    'score="-INFINITY"/>',
    '<rsc_location id="location-vm1-n2" rsc="sanctl-vm1" role="Promoted" node="n2" '
    'score="-1000000"/>',
    '<rsc_location id="cli-ban-vm1-on-n2" rsc="vm1" node="n2" score="-INFINITY"/>',
    f'<rsc_location id="cli-ban-sanctl-vm1-on-n2" rsc="sanctl-vm1">{_ENDS}</rsc_location>',
]


@pytest.fixture
def fake() -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.tick()
    return fake


def seen(fake: FakePacemaker, *constraints: str) -> Cluster:
    parent = fake.root.find("configuration/constraints")
    assert parent is not None
    parent.extend(ET.fromstring(text) for text in constraints)
    return Cluster(cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor()))


def findings(cluster: Cluster) -> list[Finding]:
    return list(all_findings(cluster, topology(), now_s=1_800_000_000.0))


@pytest.mark.parametrize("ban", _BANS)
def test_a_ban_is_a_finding_and_an_obstacle(fake: FakePacemaker, ban: str) -> None:
    cluster = seen(fake, ban)
    identifier = ET.fromstring(ban).get("id", "")
    (finding,) = findings(cluster)
    assert (finding.code, finding.severity) == ("SAN-HLT-132", Severity.WARNING)
    assert f"kept off n2 by constraint {identifier}" in finding.what
    is_cleared = "cli-ban-sanctl" in identifier
    assert ("crm_resource --clear --resource sanctl-vm1" in finding.do) is is_cleared
    assert (f"//rsc_location[@id='{identifier}']" in finding.do) is not is_cleared
    assert ("until 2026" in finding.what) is ("date_expression" in ban)
    with pytest.raises(Refused, match=identifier) as caught:
        plan_standby(cluster, N1)
    assert caught.value.problems[0].code == "SAN-NODE-004"
    assert plan_standby(cluster, N2)
    outlook = drain_outlook(cluster, N1, waits_until_s=NOON)
    assert identifier in outlook.stranded[0].reason
    ends = drain_outlook(cluster, N1, waits_until_s=NOON + 86_400 - 30)
    assert (ends.moving == (VM1,)) is ("date_expression" in ban)
    with pytest.raises(Refused, match=identifier):
        plan_move(cluster, VM1, N2, now_s=0.0)


_NO_NODE = (
    '<rsc_location id="by-rack" rsc="sanctl-vm1"><rule id="r" score="-INFINITY">'
    '<expression id="e" attribute="rack" operation="eq" value="7"/></rule></rsc_location>'
)


_NOT_BOTH = _BANS[-1].replace('boolean-op="and"', 'boolean-op="or"')
_ALSO_RACK = _BANS[-1].replace(
    "</rule>", '<expression id="f" attribute="rack" operation="eq" value="7"/></rule>'
)
_ONLY_THEN = _BANS[-1].replace(
    'operation="lt"', 'start="2026-11-27 11:00:00Z" operation="in_range"'
)
_NO_ZONE = _BANS[-1].replace("00Z", "00")
_NO_MOMENT = _BANS[-1].replace("2026-11-27 12:00:00Z", "2026-W48")


@pytest.mark.parametrize(
    "ban",
    [
        _BANS[-1].replace("2026", "2025"),
        *(_NO_NODE, _NOT_BOTH, _ALSO_RACK, _ONLY_THEN, _NO_ZONE, _NO_MOMENT),
    ],
)
def test_a_ban_that_may_be_none_refuses_and_is_waited_for(fake: FakePacemaker, ban: str) -> None:
    """What broke: a node that shut down took the device for stranded, and stopped amid its move."""
    cluster = seen(fake, ban)
    with pytest.raises(Refused):
        plan_standby(cluster, N1)
    assert [name for name, _ in stranded_devices(cluster, N1)] == [VM1]
    assert stranded_devices(cluster, N1, waits_until_s=NOON) == ()
    assert drain_outlook(cluster, N1, waits_until_s=NOON) == DrainOutlook(
        moving=(VM1,), stranded=()
    )
    instances = tuple(
        replace(each, role=Role.UNPROMOTED) if each.resource == "vm1" else each
        for each in cluster.mon.instances
    )
    between = replace(cluster, mon=replace(cluster.mon, instances=instances))
    assert between.active_node(VM1) is None
    assert devices_between_nodes(between, (VM1,), N1, waits_until_s=NOON) == (VM1,)


def test_a_preference_of_crm_resource_is_a_finding_alone(fake: FakePacemaker) -> None:
    left = '<rsc_location id="cli-prefer-sanctl-vm1" rsc="sanctl-vm1" node="n1" score="INFINITY"/>'
    cluster = seen(fake, left)
    (finding,) = findings(cluster)
    assert finding.code == "SAN-HLT-132" and "prefers n1" in finding.what
    assert plan_standby(cluster, N1)


@pytest.mark.parametrize(
    "constraint",
    [
        # A weak preference of the operator's, a node without a replica, another resource, our own.
        '<rsc_location id="location-vm1-n1" rsc="sanctl-vm1" node="n1" score="50"/>',
        '<rsc_location id="cli-ban-x" rsc="sanctl-vm1" node="n3" score="-INFINITY"/>',
        '<rsc_location id="cli-ban-y" rsc="fence-n1" node="n2" score="-INFINITY"/>',
        '<rsc_location id="sanctl-vm1-z" rsc="sanctl-vm1" node="n2" score="-INFINITY"/>',
    ],
)
def test_others_are_none(fake: FakePacemaker, constraint: str) -> None:
    cluster = seen(fake, constraint)
    assert findings(cluster) == []
    assert plan_standby(cluster, N1)


def test_stop_all_resources_is_a_finding(fake: FakePacemaker) -> None:
    group = fake.root.find("configuration/crm_config/cluster_property_set")
    assert group is not None
    ET.SubElement(group, "nvpair", id="stop", name="stop-all-resources", value="true")
    told = [each for each in findings(seen(fake)) if each.code == "SAN-HLT-133"]
    assert [each.severity for each in told] == [Severity.CRITICAL]


@pytest.mark.parametrize("what", ["maintenance", "unmanaged"])
def test_what_pacemaker_leaves_alone_keeps_its_node(fake: FakePacemaker, what: str) -> None:
    path = {
        "maintenance": "configuration/crm_config/cluster_property_set",
        "unmanaged": "configuration/resources/clone[@id='sanctl-vm1']/meta_attributes",
    }[what]
    name = {"maintenance": "maintenance-mode", "unmanaged": "maintenance"}[what]
    group = fake.root.find(path)
    assert group is not None
    ET.SubElement(group, "nvpair", id="m", name=name, value="true")
    with pytest.raises(Refused, match="leave the device alone"):
        plan_standby(seen(fake), N1)
