# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Fencing
from sanctl.model.findings import Severity
from sanctl.model.names import NodeName
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.cluster.standby import check_fencing
from sanctl.plan.health.fencing_health import fencing_findings, reach_findings
from tests.fakes.pacemaker import FakePacemaker

_HISTORY = """<pacemaker-result><summary/><nodes/><fence_history>
<fence_event action="reboot" target="n3" client="c" origin="n1" status="pending"/>
<fence_event action="reboot" target="n3" client="c" origin="n1" status="failed" delegate="n2"
 exit-reason="no answer" completed="2026-11-21 05:26:51.318195Z"/>
<fence_event action="reboot" target="n3" client="c" origin="n1" status="success" delegate="n1"
 completed="2026-11-21 05:26:49.118166Z"/></fence_history></pacemaker-result>"""


def _cluster(fake: FakePacemaker | None = None) -> Cluster:
    fake = fake or FakePacemaker()
    return Cluster(cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor()))


def _codes(cluster: Cluster) -> list[str]:
    return [f.code for f in (*fencing_findings(cluster), *reach_findings(cluster))]


def test_nothing_is_wrong_with_the_rollouts_own() -> None:
    assert _codes(_cluster()) == []


def test_the_newest_result_that_has_ended_counts() -> None:
    mon = parse_crm_mon(_HISTORY)
    last = mon.last_fencing("n3")
    assert last is not None
    assert (last.status, last.reason) == ("failed", "no answer")
    assert mon.last_fencing("n1") is None


@pytest.mark.parametrize(
    ("state", "severity"), [("online", Severity.NOTE), ("unclean", Severity.CRITICAL)]
)
def test_a_failed_fencing_is_a_finding(state: str, severity: Severity) -> None:
    fake = FakePacemaker()
    fake.states["n2"] = state
    seen = _cluster(fake)
    done = Fencing(target="n2", status="failed", completed="2026", reason="No route to host")
    found = list(fencing_findings(replace(seen, mon=replace(seen.mon, fencings=(done,)))))
    told = [f for f in found if f.code == "SAN-HLT-016"]
    assert [f.severity for f in told] == [severity]
    assert "No route to host" in told[0].what
    success = replace(done, status="success")
    assert "SAN-HLT-016" not in _codes(replace(seen, mon=replace(seen.mon, fencings=(success,))))


def test_a_device_that_only_its_own_target_may_use() -> None:
    seen = _cluster()
    fences = tuple(
        replace(f, banned=("n2", "n3")) if f.id == "fence-n1" else f for f in seen.cib.fencing
    )
    assert _codes(replace(seen, cib=replace(seen.cib, fencing=fences))) == ["SAN-HLT-015"]


def test_a_device_whose_users_are_all_away() -> None:
    fake = FakePacemaker()
    fake.states["n2"] = fake.states["n3"] = "offline"
    subjects = [f.subject for f in fencing_findings(_cluster(fake)) if f.code == "SAN-HLT-015"]
    assert subjects == ["fencing fence-n1"]


def _one_for_all(seen: Cluster, *banned: str) -> Cluster:
    """SBD's disk in the place of three power switches."""
    disk = replace(seen.cib.fencing[0], targets=("n1", "n2", "n3"), banned=banned)
    return replace(seen, cib=replace(seen.cib, fencing=(disk,)))


def test_a_device_that_every_node_uses_for_the_others() -> None:
    assert _codes(_one_for_all(_cluster())) == []
    assert _codes(_one_for_all(_cluster(), "n3")) == []
    alone = list(fencing_findings(_one_for_all(_cluster(), "n2", "n3")))
    assert [(f.code, f.what) for f in alone] == [
        ("SAN-HLT-015", "only n1 may use it, the node that it is to fence")
    ]


def test_a_device_that_every_node_uses_and_one_node_is_left() -> None:
    fake = FakePacemaker()
    fake.states["n2"] = fake.states["n3"] = "offline"
    found = list(fencing_findings(_one_for_all(_cluster(fake))))
    assert [f.why for f in found if f.code == "SAN-HLT-015"] == ["no node can fence n1 now"]


def test_a_fencing_device_without_a_host_list_is_not_judged() -> None:
    seen = _cluster()
    fences = tuple(replace(f, targets=()) for f in seen.cib.fencing)
    assert _codes(replace(seen, cib=replace(seen.cib, fencing=fences))) == []


@pytest.mark.parametrize(
    ("wait", "codes"), [("10s", []), ("0", ["SAN-HLT-011"]), ("", ["SAN-HLT-011"])]
)
def test_a_watchdog_fences_every_node(wait: str, codes: list[str]) -> None:
    seen = _cluster()
    properties = {**seen.cib.properties, "stonith-watchdog-timeout": wait}
    assert _codes(replace(seen, cib=replace(seen.cib, fencing=(), properties=properties))) == codes


@pytest.mark.parametrize(
    ("reach", "subjects"),
    [
        ({}, []),
        ({"n1": 1, "n2": 2}, []),
        ({"n1": 0, "n2": 2}, ["node n1"]),
        ({"n1": 0, "n2": 0}, ["node n1", "node n2"]),
    ],
)
def test_nodes_that_hosts_cannot_reach(reach: dict[str, int], subjects: list[str]) -> None:
    seen = _cluster()
    found = list(reach_findings(replace(seen, cib=replace(seen.cib, reach=reach))))
    assert [f.subject for f in found] == subjects
    assert all(("no node does" in f.why) == (len(subjects) == 2) for f in found)


def test_reachability_published_by_an_absent_node_does_not_count() -> None:
    fake = FakePacemaker()
    fake.states["n1"] = "offline"
    seen = _cluster(fake)
    assert not list(reach_findings(replace(seen, cib=replace(seen.cib, reach={"n1": 0}))))


@pytest.mark.parametrize(
    ("wait", "agent", "mode", "is_found"),
    [
        ("10s", "fence_ipmilan", "diskless", False),
        ("10s", "fence_ipmilan", "disk", True),
        ("10s", "fence_ipmilan", "off", True),
        ("0", "fence_sbd", "disk", False),
        ("0", "fence_sbd", "diskless", True),
        ("0", "fence_sbd", "off", True),
        ("0", "fence_ipmilan", "off", False),
        ("0", "fence_ipmilan", "diskless", False),
        # Of an earlier release, or a later one.
        ("10s", "fence_ipmilan", "", False),
        ("10s", "fence_ipmilan", "another", False),
    ],
)
def test_a_node_whose_sbd_does_not_do_what_fencing_counts_on(
    wait: str, agent: str, mode: str, is_found: bool
) -> None:
    fake = FakePacemaker()
    fake.attribute("n2", "sanctl-pool-main", f"total=2 free=1 sbd={mode}")
    right = "diskless" if wait != "0" else "disk"
    fake.attribute("n1", "sanctl-pool-main", f"total=2 free=1 sbd={right}")
    seen = _cluster(fake)
    fences = tuple(replace(fence, agent=agent) for fence in seen.cib.fencing)
    properties = {**seen.cib.properties, "stonith-watchdog-timeout": wait}
    seen = replace(seen, cib=replace(seen.cib, fencing=fences, properties=properties))
    found = [f for f in fencing_findings(seen) if f.code == "SAN-HLT-131"]
    assert [f.subject for f in found] == ["node n2"] * is_found
    assert all(("disk" in f.why) is (agent == "fence_sbd") for f in found)
    fake.states["n2"] = "offline"
    gone = replace(seen, mon=_cluster(fake).mon)
    assert "SAN-HLT-131" not in _codes(gone)


def test_the_agent_of_a_fencing_device_is_read() -> None:
    agents = [fence.agent for fence in _cluster().cib.fencing]
    assert agents and all(agent.startswith("fence_") for agent in agents)


def _disabled(fake: FakePacemaker, holder: ET.Element) -> Cluster:
    """As `pcs stonith disable` leaves it: nothing of it runs."""
    group = ET.SubElement(holder, "meta_attributes", id="x")
    ET.SubElement(group, "nvpair", id="y", name="target-role", value="Stopped")
    fake.roles.pop(("fence-n2", "n2"))
    return _cluster(fake)


def _fence(fake: FakePacemaker) -> ET.Element:
    found = fake.root.find("configuration/resources/primitive[@id='fence-n2']")
    assert found is not None
    return found


def test_a_disabled_device_fences_nobody() -> None:
    fake = FakePacemaker()
    (finding,) = fencing_findings(_disabled(fake, _fence(fake)))
    assert (finding.code, finding.severity) == ("SAN-HLT-156", Severity.CRITICAL)
    assert "n2 cannot be fenced" in (finding.why or "")
    assert finding.do == "'crm_resource --resource fence-n2 --meta --delete-parameter target-role'"
    with pytest.raises(Refused, match="disabled") as caught:
        check_fencing(_cluster(fake), NodeName.parse("n2"))
    assert "--resource fence-n2" in caught.value.problems[0].hint
    check_fencing(_cluster(fake), NodeName.parse("n1"))


def test_one_that_is_disabled_by_its_group() -> None:
    fake = FakePacemaker()
    resources, fence = fake.root.find("configuration/resources"), _fence(fake)
    assert resources is not None
    resources.remove(fence)
    group = ET.SubElement(resources, "group", id="fences")
    group.append(fence)
    (finding,) = fencing_findings(_disabled(fake, group))
    assert finding.code == "SAN-HLT-156" and "--resource fences " in (finding.do or "")


def test_one_that_is_disabled_by_the_defaults_of_all_resources() -> None:
    fake = FakePacemaker()
    configuration = fake.root.find("configuration")
    assert configuration is not None
    seen = _disabled(fake, ET.SubElement(configuration, "rsc_defaults"))
    found = [each for each in fencing_findings(seen) if each.code == "SAN-HLT-156"]
    assert found and all("in the resource defaults" in each.what for each in found)
    with pytest.raises(Refused, match="rsc_defaults --name target-role --delete"):
        check_fencing(seen, NodeName.parse("n2"))


def test_another_device_for_the_same_node_is_left() -> None:
    fake = FakePacemaker()
    seen = _disabled(fake, _fence(fake))
    second = replace(seen.cib.fencing[0], id="pdu-n2", targets=("n2",))
    fences = (*seen.cib.fencing, second)
    found = list(fencing_findings(replace(seen, cib=replace(seen.cib, fencing=fences))))
    (finding,) = [each for each in found if each.code == "SAN-HLT-156"]
    assert finding.severity is Severity.WARNING and "pdu-n2" in (finding.why or "")


def test_a_watchdog_is_left() -> None:
    fake = FakePacemaker()
    seen = _disabled(fake, _fence(fake))
    properties = {**seen.cib.properties, "stonith-watchdog-timeout": "20s"}
    found = fencing_findings(replace(seen, cib=replace(seen.cib, properties=properties)))
    (finding,) = [each for each in found if each.code == "SAN-HLT-156"]
    assert finding.severity is Severity.WARNING and "its watchdog" in (finding.why or "")
