# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Collection

import pytest

from sanctl.errors import NotConverged, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops import node_standby
from sanctl.ops.node_standby import bring_online, put_in_standby
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress, standby_progress
from sanctl.plan.cluster.standby import stop_problems
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter

N1, N2 = NodeName.parse("n1"), NodeName.parse("n2")


@pytest.fixture
def cluster() -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.tick()
    return fake


@pytest.fixture
def session(cluster: FakePacemaker) -> Session:
    return Session(cluster, FakeClock(cluster.tick), FakeReporter())


def test_standby_waits_until_devices_have_moved(cluster: FakePacemaker, session: Session) -> None:
    assert cluster.active("vm1") == ["n1"]
    assert put_in_standby(session, N1, accepted=(), timeout_s=30).is_changed
    assert cluster.active("vm1") == ["n2"]
    assert not put_in_standby(session, N1, accepted=(), timeout_s=30).is_changed
    assert bring_online(session, N1, timeout_s=30)
    assert cluster.states["n1"] == "online"
    assert not bring_online(session, N1, timeout_s=30)
    assert cluster.permanent("n1", "standby") is None


def test_standby_refuses_to_stop_a_device(cluster: FakePacemaker, session: Session) -> None:
    cluster.crash("n2")
    cluster.tick()
    with pytest.raises(Refused) as caught:
        put_in_standby(session, N1, accepted=("SAN-DEV-001",), timeout_s=30)
    assert [problem.code for problem in caught.value.problems] == ["SAN-NODE-004"]
    assert cluster.patches == []
    assert put_in_standby(session, N1, accepted=("SAN-NODE-004",), timeout_s=30).is_changed
    assert cluster.active("vm1") == []


def test_a_ban_that_may_have_ended_is_accepted_and_its_device_waited_for(
    cluster: FakePacemaker, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraints = cluster.root.find("configuration/constraints")
    assert constraints is not None
    ended = (
        '<rsc_location id="ban" rsc="sanctl-vm1"><rule id="r" score="-INFINITY"><expression '
        'id="e" attribute="#uname" operation="eq" value="n2"/><date_expression id="d" '
        'operation="lt" end="2020-01-01 12:00:00Z"/></rule></rsc_location>'
    )
    constraints.append(ET.fromstring(ended))
    waited_for: list[object] = []

    def progress(seen: Cluster, name: NodeName, served: Collection[DeviceName]) -> Progress:
        waited_for[:] = served
        return standby_progress(seen, name, served)

    monkeypatch.setattr(node_standby, "standby_progress", progress)
    with pytest.raises(Refused):
        put_in_standby(session, N1, accepted=(), timeout_s=30)
    assert put_in_standby(session, N1, accepted=("SAN-NODE-004",), timeout_s=30).is_changed
    assert waited_for == [DeviceName.parse("vm1")]


def test_a_ban_that_outlasts_the_wait_is_accepted_named_and_not_waited_for(
    cluster: FakePacemaker, session: Session
) -> None:
    """What broke: the command waited for what it had been told to accept, and ended with 7."""
    constraints = cluster.root.find("configuration/constraints")
    assert constraints is not None
    in_force = (
        '<rsc_location id="ban" rsc="sanctl-vm1"><rule id="r" score="-INFINITY"><expression '
        'id="e" attribute="#uname" operation="eq" value="n2"/><date_expression id="d" '
        'operation="lt" end="2030-01-01 12:00:00Z"/></rule></rsc_location>'
    )
    constraints.append(ET.fromstring(in_force))
    cluster.banned = {("vm1", "n2")}
    with pytest.raises(Refused, match="constraint ban"):
        put_in_standby(session, N1, accepted=(), timeout_s=30)
    outcome = put_in_standby(session, N1, accepted=("SAN-NODE-004",), timeout_s=30)
    assert cluster.active("vm1") == []
    ((device, reason),) = [(each.device, each.reason) for each in outcome.stopped]
    assert device == DeviceName.parse("vm1") and "constraint ban keeps it off n2" in reason


def test_unknown_node(session: Session) -> None:
    with pytest.raises(Refused):
        put_in_standby(session, NodeName.parse("n9"), accepted=(), timeout_s=3)
    with pytest.raises(Refused):
        bring_online(session, NodeName.parse("n9"), timeout_s=3)


def test_online_of_a_node_that_is_off(cluster: FakePacemaker, session: Session) -> None:
    cluster.crash("n1")
    with pytest.raises(NotConverged) as caught:
        bring_online(session, N1, timeout_s=3)
    assert "n1 is offline" in caught.value.problems[0].text


def test_online_waits_for_the_flush_of_what_was_resynced(
    cluster: FakePacemaker, session: Session
) -> None:
    """The node that filled it may be the next one in standby, and hosts go on writing here."""
    put_in_standby(session, N1, accepted=(), timeout_s=30)
    cluster.settling = {"n1"}
    with pytest.raises(NotConverged) as caught:
        bring_online(session, N1, timeout_s=10)
    assert "vm1 UpToDate, not flushed after its resync yet" in str(caught.value)
    cluster.settling = set()
    assert not bring_online(session, N1, timeout_s=30)


@pytest.mark.parametrize("how", ["standby", "drained", "fenced", "unclean"])
def test_the_second_of_two_nodes_stays(cluster: FakePacemaker, session: Session, how: str) -> None:
    """While the first one still serves, or neither does: the second is the only one left."""
    if how == "standby":
        # The order is in the CIB, and nothing has moved yet.
        cluster.set_permanent("n1", "standby", "on")
    elif how == "drained":
        cluster.attribute("n1", "sanctl.drained", "true")
    elif how == "fenced":
        cluster.fencing.append("n1")
    else:
        cluster.states["n1"] = "unclean"
    for role in (Role.PROMOTED, Role.UNPROMOTED):
        cluster.roles["vm1", "n1"] = role
        with pytest.raises(Refused, match=r"SAN-NODE-004.* vm1 .*n1"):
            put_in_standby(session, N2, accepted=(), timeout_s=30)
    cluster.roles["vm1", "n2"] = Role.PROMOTED
    with pytest.raises(Refused, match="SAN-NODE-004"):
        put_in_standby(session, N2, accepted=(), timeout_s=30)


def test_a_device_between_nodes_that_both_may_serve_keeps_neither(
    cluster: FakePacemaker, session: Session
) -> None:
    cluster.roles["vm1", "n1"] = Role.UNPROMOTED
    assert put_in_standby(session, N2, accepted=(), timeout_s=30).is_changed


def test_a_device_that_cannot_be_read_keeps_the_second_node_as_well(
    cluster: FakePacemaker, session: Session
) -> None:
    for parent in cluster.root.iter("instance_attributes"):
        for pair in parent.findall("nvpair[@name='size']"):
            parent.remove(pair)
    assert stop_problems(session.observe(), N2) == ()
    cluster.set_permanent("n1", "standby", "on")
    assert [each.code for each in stop_problems(session.observe(), N2)] == ["SAN-NODE-004"]


def test_a_standby_until_the_reboot_ends_at_once(cluster: FakePacemaker, session: Session) -> None:
    cluster.set_transient_attribute("n2", "standby", "on")
    cluster.tick()
    assert cluster.states["n2"] == "standby"
    assert bring_online(session, N2, timeout_s=30)
    assert cluster.states["n2"] == "online"
    assert not bring_online(session, N2, timeout_s=30)


def test_both_standbys_end_together(cluster: FakePacemaker, session: Session) -> None:
    cluster.set_transient_attribute("n2", "standby", "on")
    cluster.set_permanent("n2", "standby", "on")
    cluster.tick()
    assert bring_online(session, N2, timeout_s=30)
    assert cluster.permanent("n2", "standby") is None
