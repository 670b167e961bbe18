# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.model.backup import Repository
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.findings import Finding, Severity
from sanctl.model.site import Site
from sanctl.ops.doctor_remote import remote_findings
from sanctl.ops.session import Session
from sanctl.plan.health.doctor_checks import checks_of
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter
from tests.fakes.remote_services import FakeRemoteServices
from tests.fakes.topology import topology, wide_topology
from tests.unit.plan.device.test_reservation_orders import SPEC

NAS = Repository(name="nas", location="ssh://nas.example.net/./sanctl")
FAR = Site("far", "copies", "site.example", 22, "/srv/c", "/etc/sanctl/site_key", "a" * 32, "key")


@pytest.fixture
def remote() -> FakeRemoteServices:
    return FakeRemoteServices()


def cluster(*, state: NodeState = NodeState.ONLINE, has_reservations: bool = False) -> Cluster:
    seen = Session(FakePacemaker(), FakeClock(), FakeReporter()).observe()
    nodes = tuple(
        replace(each, state=state) if each.name == "n2" else each for each in seen.mon.nodes
    )
    devices = (replace(SPEC, reservations=has_reservations),)
    return replace(
        seen,
        mon=replace(seen.mon, nodes=nodes),
        cib=replace(seen.cib, sites=(FAR,), devices=devices),
    )


def found(remote: FakeRemoteServices, seen: Cluster) -> list[Finding]:
    here = topology().node("n1")
    assert here is not None
    return list(remote_findings(remote, seen, topology(), here))


def test_what_answers_is_no_finding(remote: FakeRemoteServices) -> None:
    remote.known = (NAS,)
    assert found(remote, cluster()) == []
    # The witness takes no part in restore points, and without reservations nothing needs 7798.
    assert sorted(remote.asked) == ["points of n2 from n1", "repository nas", "site far"]


def test_each_storage_node_is_asked(remote: FakeRemoteServices) -> None:
    here = wide_topology().node("n3")
    assert here is not None
    seen = cluster(has_reservations=True)
    assert list(remote_findings(remote, seen, wide_topology(), here)) == []
    # Who has no replica with reservations needs no service for them, on either side.
    asked = {each for each in remote.asked if "from n3" in each}
    assert asked == {"points of n1 from n3", "points of n2 from n3"}
    assert {str(node) for node in SPEC.nodes} == {"n1", "n2"}
    first = wide_topology().node("n1")
    assert first is not None
    assert list(remote_findings(remote, seen, wide_topology(), first)) == []
    asked = {each for each in remote.asked if "from n1" in each}
    assert asked == {"points of n2 from n1", "points of n3 from n1", "reservations of n2 from n1"}


@pytest.mark.parametrize("state", [NodeState.OFFLINE, NodeState.UNCLEAN, NodeState.PENDING])
def test_a_node_that_is_gone_is_another_finding(
    remote: FakeRemoteServices, state: NodeState
) -> None:
    assert found(remote, cluster(state=state, has_reservations=True)) == []
    assert remote.asked == ["site far"]


def test_one_in_standby_is_asked_for_points_alone(remote: FakeRemoteServices) -> None:
    found(remote, cluster(state=NodeState.STANDBY, has_reservations=True))
    assert sorted(remote.asked) == ["points of n2 from n1", "site far"]


@pytest.mark.parametrize(
    ("what", "code", "subject", "check"),
    [
        ("site far", "SAN-DOC-050", "site far", "second sites"),
        ("repository nas", "SAN-DOC-051", "repository nas", "backups"),
        ("points of n2 from n1", "SAN-DOC-052", "node n2", "restore points"),
        ("reservations of n2 from n1", "SAN-DOC-053", "node n2", "hosts"),
    ],
)
def test_what_does_not_answer(
    remote: FakeRemoteServices, what: str, code: str, subject: str, check: str
) -> None:
    remote.known = (NAS,)
    remote.fail(what, "SAN-SITE-004", "put the key there")
    (finding,) = found(remote, cluster(has_reservations=True))
    assert (finding.code, finding.subject, finding.severity) == (code, subject, Severity.WARNING)
    assert finding.what == f"asked from this node: {what} is silent (SAN-SITE-004)"
    assert finding.do == "put the key there"
    assert checks_of(code) == (check,)
    # One that is silent keeps no other from being asked.
    assert len(remote.asked) == 4


def test_without_advice_of_its_own_the_code_is_named(remote: FakeRemoteServices) -> None:
    remote.fail("site far", "SAN-SITE-005")
    (finding,) = found(remote, cluster())
    assert finding.do == "'sanctl explain SAN-SITE-005' says what that is"


def test_a_repository_that_is_in_use_answers(remote: FakeRemoteServices) -> None:
    remote.known = (NAS,)
    remote.fail("repository nas", "SAN-BKP-012")
    assert found(remote, cluster()) == []


def test_a_file_of_repositories_that_cannot_be_read(remote: FakeRemoteServices) -> None:
    remote.unreadable = "backup.toml: line 3"
    (finding,) = found(remote, cluster())
    assert (finding.code, finding.subject) == ("SAN-DOC-051", "backup.toml")
    assert "site far" in remote.asked


@pytest.mark.parametrize(
    "error", [OSError(12, "Cannot allocate memory"), KeyError("takeovers"), TypeError("no text")]
)
def test_whatever_comes_back_ends_no_doctor(remote: FakeRemoteServices, error: Exception) -> None:
    remote.failures["site far"] = error
    (finding,) = found(remote, cluster())
    assert (finding.code, repr(error) in finding.what) == ("SAN-DOC-050", True)
