# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sanctl.errors import CommandError, NotConverged, Refused
from sanctl.model.findings import Severity
from sanctl.model.names import NodeName
from sanctl.ops.node_fence import (
    FencingAnswer,
    fence_node,
    query_fencing_devices,
    query_fencing_of_node,
    silent_device_findings,
)
from sanctl.ops.session import Session
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter
from tests.fakes.stonith import FakeStonith

N1, N2 = NodeName.parse("n1"), NodeName.parse("n2")


@pytest.fixture
def cluster() -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    constraints = fake.root.find("configuration/constraints")
    assert constraints is not None
    ET.SubElement(constraints, "rsc_location", {"id": "drained-serves-nothing"})
    fake.tick()
    fake.tick()
    return fake


@pytest.fixture
def session(cluster: FakePacemaker) -> Session:
    return Session(cluster, FakeClock(cluster.tick), FakeReporter())


def test_every_device_that_this_node_may_use_is_asked(session: Session) -> None:
    stonith = FakeStonith()
    stonith.silent["fence-n3"] = "Connection timed out"
    answers = query_fencing_devices(stonith, session.observe())
    assert {a.device: a.reason for a in answers} == {
        "fence-n1": None,
        "fence-n2": "",
        "fence-n3": "Connection timed out",
    }
    (finding,) = silent_device_findings(answers)
    assert finding.code == "SAN-FEN-002" and "Connection timed out" in finding.what


def test_a_silent_device_weighs_less_beside_one_that_answers() -> None:
    def told(*answers: FencingAnswer) -> list[tuple[Severity, str]]:
        return [(finding.severity, finding.why) for finding in silent_device_findings(answers)]

    def answer(device: str, reason: str | None, *targets: str) -> FencingAnswer:
        return FencingAnswer(device=device, targets=targets, watched_by=(), reason=reason)

    dead = answer("fence-n2", "timed out", "n2")
    ((severity, why),) = told(dead, answer("fence-n2_fallback", "", "n2"))
    assert severity is Severity.WARNING and "the only one left is fence-n2_fallback" in why
    for other in (
        answer("fence-n3", "", "n3"),
        # Not one that this node can speak for.
        answer("fence-n2_fallback", None, "n2"),
    ):
        ((severity, why),) = told(dead, other)
        assert severity is Severity.CRITICAL and "no other node may take over" in why
    both = told(dead, answer("fence-n2_fallback", "refused", "n2"))
    assert [severity for severity, _ in both] == [Severity.CRITICAL] * 2
    ((severity, _),) = told(
        answer("fence-sbd", "no disk", "n1", "n2"), answer("fence-n1", "", "n1")
    )
    assert severity is Severity.CRITICAL


def test_a_test_asks_about_one_node_and_switches_nothing(session: Session) -> None:
    stonith = FakeStonith()
    (answer,) = query_fencing_of_node(session, stonith, N2)
    assert (answer.device, answer.reason) == ("fence-n2", "")
    assert stonith.fenced == []
    with pytest.raises(Refused):
        query_fencing_of_node(session, stonith, NodeName.parse("n9"))


def test_a_node_is_drained_then_fenced_then_back(cluster: FakePacemaker, session: Session) -> None:
    stonith = FakeStonith()
    assert cluster.active("vm1") == ["n1"]
    assert fence_node(session, stonith, N1, here="n3", accepted=(), drain=True, timeout_s=30)
    assert stonith.fenced == ["n1"]
    assert cluster.active("vm1") == ["n2"]
    assert cluster.patches == [], "nothing is left that does not end with the node's membership"


def test_what_only_that_node_can_serve_is_refused(cluster: FakePacemaker, session: Session) -> None:
    stonith = FakeStonith()
    cluster.crash("n2")
    cluster.tick()
    for drain in (True, False):
        with pytest.raises(Refused) as caught:
            fence_node(session, stonith, N1, here="n3", accepted=(), drain=drain, timeout_s=30)
        assert [problem.code for problem in caught.value.problems] == ["SAN-NODE-004"]
    assert stonith.fenced == []
    assert not fence_node(
        session, stonith, N1, here="n3", accepted=("SAN-NODE-004",), drain=False, timeout_s=30
    )
    assert stonith.fenced == ["n1"]


def test_a_node_that_is_away_is_not_drained(cluster: FakePacemaker, session: Session) -> None:
    cluster.crash("n2")
    stonith = FakeStonith()
    assert not fence_node(session, stonith, N2, here="n3", accepted=(), drain=True, timeout_s=30)
    assert stonith.fenced == ["n2"]


def test_fencing_that_fails_leaves_the_node_out_of_service(
    cluster: FakePacemaker, session: Session
) -> None:
    stonith = FakeStonith()
    stonith.fails = True
    with pytest.raises(CommandError) as caught:
        fence_node(session, stonith, N1, here="n3", accepted=(), drain=True, timeout_s=30)
    assert caught.value.problems[0].code == "SAN-FEN-003"
    assert "stays drained: 'sanctl node undrain n1'" in caught.value.problems[0].hint
    assert session.observe().cib.drained == {"n1"}
    assert cluster.permanent("n1", "standby") is None


def test_a_part_without_quorum_fences_nobody(cluster: FakePacemaker, session: Session) -> None:
    """The fencer would do it; what is not seen from here may be serving."""
    stonith = FakeStonith()
    cluster.states.update(n1="unclean", n3="unclean")
    cluster.has_quorum = False
    with pytest.raises(Refused) as caught:
        fence_node(
            session, stonith, N1, here="n3", accepted=("SAN-NODE-004",), drain=False, timeout_s=30
        )
    assert [problem.code for problem in caught.value.problems] == ["SAN-CLU-001"]
    assert stonith.fenced == []


def test_a_node_does_not_fence_itself(session: Session) -> None:
    stonith = FakeStonith()
    with pytest.raises(Refused, match="on another node") as caught:
        fence_node(
            session, stonith, N1, here="n1", accepted=("SAN-NODE-004",), drain=True, timeout_s=30
        )
    assert [problem.code for problem in caught.value.problems] == ["SAN-FEN-005"]
    assert stonith.fenced == []


@pytest.mark.parametrize("event", ["the other is lost", "it is stopped", "it is late"])
def test_what_happens_in_the_drain_leaves_the_node_alone_and_in_service(
    cluster: FakePacemaker, event: str
) -> None:
    """The node that is to be cut off may be the only one left by then."""
    stonith = FakeStonith()
    cluster.is_frozen = event == "it is late"

    def meanwhile() -> None:
        cluster.tick()
        if event == "the other is lost" and not cluster.active("vm1"):
            cluster.crash("n2")
        elif event == "it is stopped":
            raise KeyboardInterrupt

    session = Session(cluster, FakeClock(meanwhile), FakeReporter())
    expected = {
        "the other is lost": Refused,
        "it is stopped": KeyboardInterrupt,
        "it is late": NotConverged,
    }[event]
    with pytest.raises(expected):
        fence_node(session, stonith, N1, here="n3", accepted=(), drain=True, timeout_s=30)
    assert stonith.fenced == []
    assert session.observe().cib.drained == set()
    for _ in range(3):
        cluster.is_frozen = False
        cluster.tick()
    assert len(cluster.active("vm1")) == 1


def test_a_drain_by_hand_is_not_ended(cluster: FakePacemaker, session: Session) -> None:
    stonith = FakeStonith()
    cluster.attribute("n1", "sanctl.drained", "true")
    cluster.is_frozen = True
    with pytest.raises(NotConverged):
        fence_node(session, stonith, N1, here="n3", accepted=(), drain=True, timeout_s=5)
    assert session.observe().cib.drained == {"n1"}


def test_what_an_older_rollout_cannot_drain_is_not_fenced_as_if(
    cluster: FakePacemaker, session: Session
) -> None:
    stonith = FakeStonith()
    constraints = cluster.root.find("configuration/constraints")
    assert constraints is not None
    constraints.remove(constraints.findall("rsc_location[@id='drained-serves-nothing']")[0])
    with pytest.raises(Refused, match="SAN-FEN-006"):
        fence_node(session, stonith, N1, here="n3", accepted=(), drain=True, timeout_s=5)
    assert not fence_node(session, stonith, N1, here="n3", accepted=(), drain=False, timeout_s=5)
    assert stonith.fenced == ["n1"]


def test_a_node_in_maintenance_cannot_be_drained(cluster: FakePacemaker, session: Session) -> None:
    stonith = FakeStonith()
    cluster.states["n1"] = "maintenance"
    with pytest.raises(Refused, match="SAN-DEV-018") as caught:
        fence_node(session, stonith, N1, here="n3", accepted=(), drain=True, timeout_s=5)
    assert "--no-drain" in caught.value.problems[0].hint
    assert (stonith.fenced, session.observe().cib.drained) == ([], frozenset())
    assert not fence_node(session, stonith, N1, here="n3", accepted=(), drain=False, timeout_s=5)
