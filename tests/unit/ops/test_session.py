# SPDX-License-Identifier: GPL-2.0-or-later
"""How often a command that waits asks the cluster, and by what it changes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sanctl
from sanctl.errors import CommandError, NotConverged, Problem, Refused
from sanctl.model.cib_change import Change, SetNodeAttribute
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.device import ReplicaState
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.packed_states import STATES_ATTRIBUTE
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter


class SlowPacemaker(FakePacemaker):
    """A cluster whose CIB takes a while to come."""

    def __init__(self, clock: FakeClock, takes_s: float) -> None:
        super().__init__()
        self.clock, self.takes_s, self.asked = clock, takes_s, 0

    def query(self) -> str:
        self.asked += 1
        self.clock.now += self.takes_s
        return super().query()


def unreached(_: Cluster) -> Progress:
    return Progress(is_done=False, seen="nothing")


@pytest.mark.parametrize(("takes_s", "most"), [(0.0, 41), (2.0, 6), (5.0, 3)])
def test_a_slow_cluster_is_left_alone_for_as_long_as_it_takes(takes_s: float, most: int) -> None:
    clock = FakeClock()
    pacemaker = SlowPacemaker(clock, takes_s)
    session = Session(pacemaker, clock, FakeReporter())
    with pytest.raises(NotConverged):
        session.wait(unreached, waiting_for="it", timeout_s=20.0)
    assert most - 1 <= pacemaker.asked <= most


@pytest.mark.parametrize(("since_s", "most"), [(0.0, 41), (19.0, 8), (99.0, 6)])
def test_a_cluster_is_observed_seldom_until_it_may_be_done(since_s: float, most: int) -> None:
    clock = FakeClock()
    pacemaker = SlowPacemaker(clock, 0.0)
    began_s = clock.now
    with pytest.raises(NotConverged):
        Session(pacemaker, clock, FakeReporter()).wait(
            unreached,
            waiting_for="it",
            timeout_s=20.0,
            may_be_done=lambda: clock.now - began_s >= since_s,
        )
    assert most - 2 <= pacemaker.asked <= most
    assert clock.now - began_s <= 21.0


class Scene(FakePacemaker):
    """A cluster with a device, of which each node's states are told by the test alone."""

    def __init__(self) -> None:
        super().__init__(golden="one-device")
        self.roles["other", "n1"] = Role.UNPROMOTED
        self.answers: list[dict[str, str] | CommandError] = []
        self.planned: list[str | None] = []

    def transient_attributes(self, attribute: str) -> dict[str, str]:
        assert attribute == STATES_ATTRIBUTE
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, CommandError):
            raise answer
        return answer

    def decide(self, cluster: Cluster) -> tuple[Change, ...]:
        found = cluster.replica(DeviceName(value="other"), NodeName(value="n1"))
        self.planned.append(found.disk)
        return (SetNodeAttribute(node=NodeName(value="n1"), attribute="x", value="y"),)


GOOD, BAD = {"n1": "other disk=UpToDate"}, {"n1": "other disk=Outdated"}
SILENT = CommandError(Problem("SAN-CMD-002", "no answer"))


def session_of(scene: Scene) -> Session:
    return Session(scene, FakeClock(), FakeReporter())


def test_a_change_is_planned_by_the_states() -> None:
    """Also where they change all the time, as those of fifty replicas that are being filled."""
    scene = Scene()
    scene.answers = [BAD, GOOD]
    session_of(scene).change(scene.decide)
    assert scene.planned == ["Outdated"]
    assert len(scene.patches) == 1


def test_no_change_is_made_by_states_that_could_not_be_asked_for() -> None:
    scene = Scene()
    scene.answers = [SILENT]
    with pytest.raises(CommandError):
        session_of(scene).change(scene.decide)
    assert scene.patches == []


def test_a_change_that_looks_at_no_replica_asks_for_no_states() -> None:
    scene = Scene()
    scene.answers = [SILENT]
    session_of(scene).change(scene.decide, reads_replicas=False)
    assert scene.planned == [None]
    assert len(scene.patches) == 1


def test_what_is_seen_without_an_answer_is_not_known() -> None:
    scene = Scene()
    scene.answers = [SILENT]
    found = session_of(scene).observe()
    assert found.replica(DeviceName(value="other"), NodeName(value="n1")) == ReplicaState()


def test_two_states_of_one_replica_that_differ_are_not_known() -> None:
    """One is of an earlier release; which of both is older nothing says."""
    name, node = DeviceName(value="other"), NodeName(value="n1")
    scene = Scene()
    scene.answers = [GOOD]
    scene.attribute("n1", "sanctl-other", "disk=UpToDate")
    assert session_of(scene).observe().replica(name, node).disk == "UpToDate"
    scene.attribute("n1", "sanctl-other", "disk=Inconsistent")
    assert session_of(scene).observe().replica(name, node) == ReplicaState()
    scene.answers = [{}]
    assert session_of(scene).observe().replica(name, node).disk == "Inconsistent"


def test_nothing_is_changed_from_a_part_without_quorum() -> None:
    """Pacemaker would take it, and it could come over what the majority has changed since."""
    scene = Scene()
    scene.answers = [GOOD]
    scene.has_quorum = False
    with pytest.raises(Refused) as refused:
        session_of(scene).change(scene.decide)
    assert refused.value.problems[0].code == "SAN-CLU-001"
    assert scene.patches == []
    # Where nothing is to do there is nothing to refuse.
    assert session_of(scene).change(lambda _: ()) == ()


@pytest.mark.parametrize("had_quorum", [True, False])
def test_while_a_dc_is_elected_counts_what_the_last_one_found(had_quorum: bool) -> None:
    scene = Scene()
    scene.answers = [GOOD]
    scene.has_dc = False
    scene.root.set("have-quorum", str(int(had_quorum)))
    if had_quorum:
        session_of(scene).change(scene.decide)
    else:
        with pytest.raises(Refused):
            session_of(scene).change(scene.decide)
    assert len(scene.patches) == had_quorum


def test_who_changes_the_cib_without_that_question() -> None:
    """A mark must be set and taken off whatever the quorum; the handlers ask Corosync."""
    root = Path(sanctl.__file__).parent
    writes = re.compile(r'"cibadmin", "--(patch|modify|delete|create|replace)|acemaker\.patch\(')
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "lab" not in path.parts and writes.search(path.read_text())
    }
    assert found == {
        "drivers/cib.py",
        "drivers/outdated_marks.py",
        "drivers/pacemaker.py",
        "ops/probe_records.py",  # asked for by Session alone, which has asked before
        "ops/session.py",
    }
