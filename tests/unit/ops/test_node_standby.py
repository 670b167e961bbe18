# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from sanctl.errors import NotConverged, Refused
from sanctl.model.names import NodeName
from sanctl.ops.node_standby import bring_online, put_in_standby
from sanctl.ops.session import Session
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter

N1 = NodeName.parse("n1")


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
    assert put_in_standby(session, N1, accepted=(), timeout_s=30)
    assert cluster.active("vm1") == ["n2"]
    assert not put_in_standby(session, N1, accepted=(), timeout_s=30)
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
    assert put_in_standby(session, N1, accepted=("SAN-NODE-004",), timeout_s=30)
    assert cluster.active("vm1") == []


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
