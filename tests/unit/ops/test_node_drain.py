# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sanctl.errors import Refused, Unreachable
from sanctl.model.crm_mon import Role
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.node_drain import drain_node, undrain_node
from sanctl.ops.session import Session
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter

N1, N2 = NodeName.parse("n1"), NodeName.parse("n2")
VM1 = DeviceName.parse("vm1")


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


def test_what_it_serves_is_served_elsewhere_and_its_replica_goes_on(
    cluster: FakePacemaker, session: Session
) -> None:
    assert cluster.active("vm1") == ["n1"]
    result = drain_node(session, N1, timeout_s=30)
    assert result.moved == ((VM1, "n2"),)
    assert (result.stranded, result.late) == ((), ())
    assert cluster.roles["vm1", "n1"] is Role.UNPROMOTED
    assert cluster.patches == []


def test_it_ends_with_the_membership_or_by_hand(cluster: FakePacemaker, session: Session) -> None:
    drain_node(session, N1, timeout_s=30)
    assert session.observe().cib.drained == {"n1"}
    assert undrain_node(session, N1, timeout_s=30)
    assert not undrain_node(session, N1, timeout_s=30)
    drain_node(session, N1, timeout_s=30)
    cluster.crash("n1")
    assert session.observe().cib.drained == set()


def test_what_no_node_can_take_over_is_named_and_not_waited_for(
    cluster: FakePacemaker, session: Session
) -> None:
    cluster.crash("n2")
    cluster.tick()
    result = drain_node(session, N1, timeout_s=30)
    assert [(each.device, each.reason) for each in result.stranded] == [(VM1, "n2 is offline")]
    assert (result.moved, result.late) == ((), ())


def test_two_nodes_that_leave_at_once_do_not_wait_for_each_other(
    cluster: FakePacemaker, session: Session
) -> None:
    """A rack that is switched off: each node is drained, and each drain ends."""
    drain_node(session, N2, timeout_s=30)
    result = drain_node(session, N1, timeout_s=30)
    assert [each.reason for each in result.stranded] == ["n2 is drained"]
    assert result.late == ()


def test_another_that_begins_to_leave_meanwhile_is_not_waited_for(
    cluster: FakePacemaker, session: Session
) -> None:
    cluster.is_frozen = True

    def n2_leaves_too() -> None:
        cluster.attribute("n2", "sanctl.drained", "true")

    waiting = Session(cluster, FakeClock(n2_leaves_too), FakeReporter())
    result = drain_node(waiting, N1, timeout_s=30)
    assert result.late == ()
    assert [each.reason for each in result.stranded] == ["n2 is drained"]


def test_it_is_bounded(cluster: FakePacemaker, session: Session) -> None:
    cluster.is_frozen = True
    assert drain_node(session, N1, timeout_s=5).late == (VM1,)


@pytest.mark.parametrize("serves", [True, False])
def test_it_waits_until_what_filled_the_other_replica_is_stable_there(
    cluster: FakePacemaker, serves: bool
) -> None:
    """The node that leaves may be the only one that has all of it over a loss of power."""
    leaving = N1 if serves else N2
    other = {N1: "n2", N2: "n1"}[leaving]
    cluster.settling = {other}
    cluster.tick()
    waited = []

    def tick() -> None:
        waited.append(cluster.active("vm1"))
        if len(waited) == 5:
            cluster.settling = set()
        cluster.tick()

    result = drain_node(Session(cluster, FakeClock(tick), FakeReporter()), leaving, timeout_s=30)
    assert len(waited) >= 5 and not result.late
    # Not for what nobody needs: the leaving replica is that one itself, or the disk hangs.
    cluster.settling = {leaving.value}
    cluster.tick()
    waited.clear()
    drain_node(Session(cluster, FakeClock(tick), FakeReporter()), leaving, timeout_s=30)
    assert len(waited) < 5


def test_it_does_not_wait_for_good_for_a_disk_that_hangs(
    cluster: FakePacemaker, session: Session
) -> None:
    cluster.settling = {"n2"}
    cluster.tick()
    result = drain_node(session, N1, timeout_s=10)
    assert (result.moved, result.unflushed) == (((VM1, "n2"),), (VM1,))


def test_a_cluster_of_an_older_rollout_is_left_to_pacemaker() -> None:
    cluster = FakePacemaker(golden="one-device")
    cluster.tick()
    cluster.tick()
    session = Session(cluster, FakeClock(cluster.tick), FakeReporter())
    result = drain_node(session, N1, timeout_s=30)
    assert "no constraint" in result.stranded[0].reason
    assert result.unflushed == ()
    cluster.settling = {"n2"}
    cluster.tick()
    assert drain_node(session, N1, timeout_s=30).unflushed == (VM1,)
    assert session.observe().cib.drained == set()


def test_maintenance_and_lost_quorum_move_nothing(cluster: FakePacemaker, session: Session) -> None:
    cluster.has_quorum = False
    assert drain_node(session, N1, timeout_s=30).stranded[0].reason == "there is no quorum"
    cluster.has_quorum = True
    undrain_node(session, N1, timeout_s=30)
    cluster.tick()
    meta = cluster.root.find("configuration/resources/clone[@id='sanctl-vm1']/meta_attributes")
    assert meta is not None
    ET.SubElement(meta, "nvpair", id="x", name="is-managed", value="false")
    active = NodeName.parse(cluster.active("vm1")[0])
    result = drain_node(session, active, timeout_s=30)
    assert "leave the device alone" in result.stranded[0].reason


def test_no_such_node_and_no_pacemaker(cluster: FakePacemaker, session: Session) -> None:
    with pytest.raises(Refused):
        drain_node(session, NodeName.parse("n9"), timeout_s=3)
    with pytest.raises(Refused):
        undrain_node(session, NodeName.parse("n9"), timeout_s=3)
    cluster.is_down = True
    with pytest.raises(Unreachable):
        drain_node(session, N1, timeout_s=3)


def test_a_ban_that_has_an_end_may_have_ended_and_is_waited_for(
    cluster: FakePacemaker, session: Session
) -> None:
    """It stays in the CIB: the node stopped in the middle of the move, which hosts waited for."""
    constraints = cluster.root.find("configuration/constraints")
    assert constraints is not None
    ended = (
        '<rsc_location id="cli-ban-sanctl-vm1-on-n2" rsc="sanctl-vm1"><rule id="r" '
        'score="-INFINITY"><expression id="e" attribute="#uname" operation="eq" value="n2"/>'
        '<date_expression id="d" operation="lt" end="2020-01-01 12:00:00Z"/></rule></rsc_location>'
    )
    constraints.append(ET.fromstring(ended))
    result = drain_node(session, N1, timeout_s=30)
    assert result.moved == ((VM1, "n2"),)
    assert (result.stranded, result.late) == ((), ())


def test_a_ban_that_outlasts_the_wait_is_named_and_not_waited_for(
    cluster: FakePacemaker, session: Session
) -> None:
    """What broke: `crm_resource --ban --lifetime PT1H` had each drain wait out its time."""
    constraints = cluster.root.find("configuration/constraints")
    assert constraints is not None
    in_force = (
        '<rsc_location id="cli-ban-sanctl-vm1-on-n2" rsc="sanctl-vm1"><rule id="r" '
        'score="-INFINITY"><expression id="e" attribute="#uname" operation="eq" value="n2"/>'
        '<date_expression id="d" operation="lt" end="2030-01-01 12:00:00Z"/></rule></rsc_location>'
    )
    constraints.append(ET.fromstring(in_force))
    cluster.is_frozen = True
    began_s = session.clock.monotonic_s()
    result = drain_node(session, N1, timeout_s=60)
    assert "constraint cli-ban-sanctl-vm1-on-n2 keeps it off n2" in result.stranded[0].reason
    assert (result.moved, result.late) == ((), ())
    assert session.clock.monotonic_s() - began_s < 5


def test_a_node_in_maintenance_is_not_waited_for(cluster: FakePacemaker, session: Session) -> None:
    cluster.states["n1"] = "maintenance"
    cluster.is_frozen = True
    began_s = session.clock.monotonic_s()
    result = drain_node(session, N1, timeout_s=60)
    assert "n1 is in maintenance" in result.stranded[0].reason
    assert (result.moved, result.late) == ((), ())
    assert session.clock.monotonic_s() - began_s < 10
