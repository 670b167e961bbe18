# SPDX-License-Identifier: GPL-2.0-or-later
"""Both nodes lost power in write-back: no copy serves by itself, and an operator is asked."""

from __future__ import annotations

import pytest

from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.device_heal import examine_replicas, heal_device
from sanctl.ops.session import Session
from sanctl.parse.published_state import parse_replica_state
from sanctl.plan.health.cluster_health import all_findings
from sanctl.plan.replicas.diagnosis import Condition
from sanctl.plan.replicas.heal import loss_of_keeping
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter

N1, N2 = NodeName.parse("n1"), NodeName.parse("n2")
VM1 = DeviceName.parse("vm1")
SAME = (
    " apart=1800000000 gi=00000000000000A0:0000000000000000:0000000000000000:0000000000000000"
    " suspect=1"
)


@pytest.fixture
def cluster() -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.tick()
    return fake


def blocked(cluster: FakePacemaker, on_n1: str, on_n2: str) -> Session:
    """Let both replicas be attached and promoted by nobody."""
    for node, words in (("n1", on_n1), ("n2", on_n2)):
        cluster.disconnected[node] = words
        cluster.disks[node] = "Consistent"
    cluster.tick()
    cluster.tick()
    assert cluster.active("vm1") == []
    return Session(cluster, FakeClock(cluster.tick), FakeReporter())


@pytest.mark.parametrize("keep", [N1, N2], ids=str)
def test_the_replica_that_served_last_is_named(cluster: FakePacemaker, keep: NodeName) -> None:
    session = blocked(cluster, SAME + " last=1", SAME)
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.BLOCKED
    codes = [finding.code for finding in all_findings(session.observe(), None, now_s=0.0)]
    assert codes.count("SAN-HLT-057") == 2 and "SAN-HLT-037" in codes
    lost = loss_of_keeping(shown, keep)
    assert lost.bytes_at_most is None
    assert ("keep that one" in lost.text) is (keep == N2)
    assert ("served last, so it has all" in lost.text) is (keep == N1)
    heal_device(session, VM1, keep, shown=shown, accepted=(), timeout_s=30)
    order = f'name="sanctl-revive-vm1" value="{shown.device.uuid} 00000000000000A0"'
    assert order in cluster.patches[0]
    assert cluster.active("vm1") == [keep.value]


FILLED = SAME + " suspect-of=resync"


def test_one_that_lost_its_power_right_after_a_resync(cluster: FakePacemaker) -> None:
    """No write was in RAM alone; blocks that the resync had brought are not known to be there."""
    session = blocked(cluster, SAME.replace(" suspect=1", "") + " last=1", FILLED)
    cluster.disks["n1"] = "Outdated"
    cluster.tick()
    shown = examine_replicas(session, VM1)
    assert loss_of_keeping(shown, N1).bytes_at_most == 0
    lost = loss_of_keeping(shown, N2)
    assert lost.text.startswith("what a resync had written on n2") and lost.bytes_at_most is None
    (finding,) = (
        each
        for each in all_findings(session.observe(), None, now_s=0.0)
        if each.code == "SAN-HLT-057"
    )
    assert finding.what.endswith(
        "lack what a resync had written there, which was not on its disk yet"
    )


@pytest.mark.parametrize(
    ("words", "in_ram", "resynced"),
    [
        (SAME, True, False),
        (FILLED, False, True),
        (FILLED + ",cache", True, True),
        (FILLED.replace(" suspect=1", ""), False, False),
    ],
)
def test_why_a_replica_is_suspect_is_read(words: str, in_ram: bool, resynced: bool) -> None:
    """A node of an older release does not say why: there may be either."""
    found = parse_replica_state(words)
    assert found.is_unflushed_cache is in_ram and found.is_unflushed_resync is resynced
    assert found.is_suspect is (in_ram or resynced)


def test_where_it_is_not_known_that_is_shown(cluster: FakePacemaker) -> None:
    shown = examine_replicas(blocked(cluster, SAME, SAME), VM1)
    assert "is not known" in loss_of_keeping(shown, N1).text


def test_a_good_replica_beside_a_suspect_one_serves(cluster: FakePacemaker) -> None:
    cluster.disconnected = {"n1": SAME, "n2": SAME.replace(" suspect=1", "")}
    cluster.disks["n1"] = "Consistent"
    cluster.tick()
    session = Session(cluster, FakeClock(cluster.tick), FakeReporter())
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.WAITING
    assert "may promote the replica on n2" in shown.waits_for


def alone(cluster: FakePacemaker, words: str) -> Session:
    """Let the device have one replica, which says this, and which nobody promotes."""
    nodes = cluster.root.find(".//primitive[@id='vm1']//nvpair[@name='nodes']")
    assert nodes is not None
    cluster.roles.pop(("vm1", "n2"))
    nodes.set("value", "n1")
    return blocked(cluster, words, "")


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        (" suspect=1 suspect-of=cache", "writes that no host had flushed"),
        (" suspect=1 suspect-of=resync", "what a resync had written on n1"),
    ],
)
def test_the_only_replica_is_served_as_it_is(cluster: FakePacemaker, words: str, lost: str) -> None:
    session = alone(cluster, words)
    shown = examine_replicas(session, VM1)
    assert shown.condition is Condition.BLOCKED
    loss = loss_of_keeping(shown, N1)
    assert (loss.nodes, loss.bytes_at_most) == ((), None) and loss.text.startswith(lost)
    heal_device(session, VM1, N1, shown=shown, accepted=(), timeout_s=30)
    assert f'name="sanctl-revive-vm1" value="{shown.device.uuid} only"' in cluster.patches[0]
    assert cluster.active("vm1") == ["n1"]


def test_an_only_replica_that_is_marked_is_served_once_that_is_decided(
    cluster: FakePacemaker,
) -> None:
    session = alone(cluster, "")
    cluster.disks["n1"] = "Outdated"
    cluster.tick()
    shown = examine_replicas(session, VM1)
    loss = loss_of_keeping(shown, N1)
    assert loss.bytes_at_most is None and "a replica that is no more" in loss.text
    heal_device(session, VM1, N1, shown=shown, accepted=(), timeout_s=30)
    assert cluster.active("vm1") == ["n1"]
