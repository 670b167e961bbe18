# SPDX-License-Identifier: GPL-2.0-or-later
"""A Primary whose disk is lost marks its own replica while its peer has good data."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence

import pytest

from sanctl.agents import device_monitor, ocf
from sanctl.agents.converge import Changes
from sanctl.agents.fencing import outdate, own_marks
from sanctl.agents.publish import replica_state
from sanctl.agents.recovery import reattach_disk
from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import hooks
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.failover import fence_rules
from sanctl.plan.failover.promotion import NO_DISK
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner

UUID = "c" * 32
VOL = Device("vol1", UUID, 1 << 20, "main", ("n1", "n2"), 3, ())
GOOD = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
LOST = ResourceState("vol1", "Primary", "no", "Diskless", 1024, (GOOD,))
_QUORUM = "Quorate: {quorate}\n    Nodeid      Votes Name\n         1          1 n1\n{others}"
_NODES = ("n1", "n2", "n3")


class Cluster(FakeRunner):
    """The CIB with marks, and quorum as each of `quorate` in turn; the last one stays."""

    def __init__(self, *marked: str, quorate: Sequence[str] = ("Yes",), keeps: bool = True) -> None:
        super().__init__(self._answer)
        self.marked = [*marked]
        self.quorate = [*quorate]
        self.keeps = keeps
        self.on_mark: Callable[[], object] = lambda: None

    def _answer(self, argv: Sequence[str]) -> Answer:
        if argv[0] == "corosync-quorumtool":
            quorate = self.quorate.pop(0) if len(self.quorate) > 1 else self.quorate[0]
            others = "         2          1 n2\n         3          1 n3\n"
            others = others if quorate != "Cut" else ""
            return _QUORUM.format(quorate=quorate, others=others)
        if "--modify" in argv:
            (made,) = ET.fromstring(self.calls[-1][1] or "").iter("rsc_location")
            assert made.get("rsc") == "sanctl-vol1" and made.get("role") == "Promoted"
            self.on_mark()
            if self.keeps:
                self.marked.append(made.get("node", ""))
            return ""
        if "--delete-all" in argv:
            self.marked = [node for node in self.marked if f".{node}." not in argv[-1]]
            return ""
        found = "".join(f'<node id="{name}" uname="{name}"/>' for name in _NODES)
        marks = "".join(
            f'<rsc_location id="sanctl-outdated-vol1.{name}.{UUID}" node="{name}"/>'
            for name in self.marked
        )
        return (
            f'<xpath-query><cib admin_epoch="2" epoch="7"/>{found}<primitive id="vol1"/>'
            f'<nvpair id="u" name="uuid" value="{UUID}"/>{marks}'
            '<node_state uname="n2" crmd="9" join="member" expected="member"/></xpath-query>'
        )

    @property
    def changes(self) -> int:
        """How often the CIB was changed."""
        return sum("--modify" in argv or "--delete-all" in argv for argv, _ in self.calls)


@pytest.fixture(autouse=True)
def here(fake_node: FakeNode) -> FakeNode:
    fake_node.states["vol1"] = LOST
    return fake_node


def test_the_replica_here_is_marked_once() -> None:
    """Else it was served, without what had been written since, after both nodes had lost power."""
    cluster = Cluster()
    replica_state.mark_without_disk(cluster, VOL, LOST)
    assert cluster.marked == ["n1"]
    replica_state.mark_without_disk(cluster, VOL, LOST)
    assert cluster.marked == ["n1"] and cluster.changes == 1


@pytest.mark.parametrize("disk", sorted(NO_DISK))
def test_whatever_drbd_calls_a_disk_that_it_has_not(here: FakeNode, disk: str) -> None:
    here.states["vol1"] = LOST._replace(disk=disk)
    cluster = Cluster()
    replica_state.mark_without_disk(cluster, VOL, LOST._replace(disk=disk))
    assert cluster.marked == ["n1"]


NOT_SERVED_FROM_THE_PEER = (
    LOST._replace(role="Secondary"),
    LOST._replace(peers=()),
    LOST._replace(peers=(GOOD._replace(connection="Connecting", disk="DUnknown"),)),
    LOST._replace(peers=(GOOD._replace(disk="Diskless"),)),
    LOST._replace(peers=(GOOD._replace(disk="Inconsistent"),)),
    LOST._replace(peers=(GOOD._replace(disk="Outdated"),)),
    # Attached again: the source of its resync marks it, and a good replica must not be.
    LOST._replace(disk="Inconsistent"),
    LOST._replace(disk="UpToDate"),
)


@pytest.mark.parametrize("state", NOT_SERVED_FROM_THE_PEER, ids=str)
def test_no_other_replica_marks_itself(here: FakeNode, state: ResourceState) -> None:
    cluster = Cluster()
    replica_state.mark_without_disk(cluster, VOL, state)
    assert cluster.calls == [], "nothing is asked"
    # What was seen is old: what counts is what DRBD says under the lock.
    here.states["vol1"] = state
    replica_state.mark_without_disk(cluster, VOL, LOST)
    assert cluster.changes == 0


@pytest.mark.parametrize(
    ("state", "mark"),
    [
        (LOST, "n1"),
        (LOST._replace(disk="UpToDate", peers=(GOOD._replace(name="n2", disk="Diskless"),)), "n2"),
    ],
    ids=["own", "peer"],
)
def test_with_drbd_9_what_is_lost_of_two_replicas_is_marked(
    here: FakeNode, state: ResourceState, mark: str
) -> None:
    """Its quorum is off then, and drbdsetup says that there is one."""
    here.generation = 9
    here.states["vol1"] = state = state._replace(
        has_quorum=True, peers=tuple(each._replace(name="n2") for each in state.peers)
    )
    cluster = Cluster()
    replica_state.mark_without_disk(cluster, VOL, state)
    assert cluster.marked == [mark]


@pytest.mark.parametrize(
    ("own", "n2", "n3", "marks"),
    [
        ("Diskless", "UpToDate", "UpToDate", []),
        ("Diskless", "Diskless", "Inconsistent", []),
        # It may be away, and unmarked, when n3 has to be filled.
        ("UpToDate", "Diskless", "UpToDate", ["n2"]),
        # A majority without n2, or without n1, would serve the disk that has come back.
        ("Diskless", "UpToDate", "Inconsistent", ["n1"]),
        ("UpToDate", "Diskless", "Inconsistent", ["n2"]),
        ("UpToDate", "Diskless", "Diskless", ["n2", "n3"]),
    ],
)
def test_with_three_what_is_lost_is_marked_beside_one_that_is_being_filled(
    here: FakeNode, own: str, n2: str, n3: str, marks: list[str]
) -> None:
    """DRBD counts a replica without a disk, and one that is being filled, for its majority."""
    here.generation = 9
    three = VOL._replace(nodes=("n1", "n2", "n3"))
    peers = (GOOD._replace(name="n2", disk=n2), GOOD._replace(name="n3", disk=n3))
    here.states["vol1"] = state = LOST._replace(disk=own, has_quorum=True, peers=peers)
    cluster = Cluster()
    replica_state.mark_without_disk(cluster, three, state)
    assert cluster.marked == marks
    replica_state.mark_without_disk(cluster, three, state)
    assert cluster.marked == marks and cluster.changes == len(marks)


def test_nor_one_that_is_not_there(here: FakeNode) -> None:
    here.states["vol1"] = None
    cluster = Cluster()
    replica_state.mark_without_disk(cluster, VOL, None)
    replica_state.mark_without_disk(cluster, VOL, LOST)
    assert cluster.changes == 0


def test_without_quorum_nothing_is_marked() -> None:
    cluster = Cluster(quorate=("No",))
    replica_state.mark_without_disk(cluster, VOL, LOST)
    assert cluster.changes == 0


def test_nothing_is_marked_while_a_handler_or_a_demotion_holds_the_lock() -> None:
    cluster = Cluster()
    with outdate.locked("vol1", wait_s=0.0):
        replica_state.mark_without_disk(cluster, VOL, LOST)
    assert cluster.changes == 0


@pytest.mark.parametrize(
    "cluster", [Cluster(keeps=False), Cluster(quorate=("Yes", "No"))], ids=["forgotten", "quorum"]
)
def test_a_mark_that_is_not_certain_is_said_and_asked_for_again(
    cluster: Cluster, here: FakeNode
) -> None:
    replica_state.mark_without_disk(cluster, VOL, LOST)
    assert "not certain to be marked" in here.journal[-1]
    cluster.keeps, cluster.marked, cluster.quorate = True, [], ["Yes"]
    replica_state.mark_without_disk(cluster, VOL, LOST)
    assert cluster.marked == ["n1"] and "is marked as outdated" in here.journal[-1]


def test_a_marked_peer_leaves_both_as_they_are() -> None:
    """It may be behind, whatever DRBD says: the replica here may be the only good one."""
    cluster = Cluster("n2")
    replica_state.mark_without_disk(cluster, VOL, LOST)
    assert cluster.marked == ["n2"] and cluster.changes == 0


def test_a_mark_of_a_node_without_a_replica_is_none_of_this_device() -> None:
    cluster = Cluster("n9")
    replica_state.mark_without_disk(cluster, VOL, LOST)
    assert cluster.marked == ["n9", "n1"]


def test_the_cluster_that_does_not_answer_has_the_next_monitor_ask() -> None:
    cluster = Cluster()
    cluster.answer = CommandError(Problem("SAN-CMD-002", "no answer"))
    with pytest.raises(CommandError):
        replica_state.mark_without_disk(cluster, VOL, LOST)


def test_a_monitor_marks_before_the_disk_is_attached_again(
    here: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer may be lost while the disk is attached."""
    done: list[str] = []
    back = LOST._replace(disk="Inconsistent", peers=(GOOD._replace(replication="SyncSource"),))

    def attach(*_: object) -> ResourceState:
        done.append("attached")
        return back

    monkeypatch.setattr(
        replica_state, "mark_without_disk", lambda *given: done.append(f"marks {given[-1].disk}")
    )
    monkeypatch.setattr(reattach_disk, "reattach", attach)
    monkeypatch.setattr(Changes, "in_order", lambda _: ())
    monkeypatch.setattr(device_monitor, "_settle_connections", lambda *given, **_: given[-1])
    device_monitor._do_duties(here, VOL, ocf.Steps("vol1", "monitor"), LOST)
    assert done == ["marks Diskless", "attached"]


def test_what_is_published_is_preceded_by_the_mark(
    here: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a filesystem that shut itself down, of which no disk is attached again."""
    cluster = Cluster()
    monkeypatch.setattr(replica_state, "_publish", lambda *_, **__: None)
    replica_state.publish(cluster, VOL, LOST)
    assert cluster.marked == ["n1"]


@pytest.mark.parametrize("state", [LOST, *NOT_SERVED_FROM_THE_PEER[:-1]], ids=str)
def test_a_primary_without_a_disk_clears_no_mark(state: ResourceState, here: FakeNode) -> None:
    assert not fence_rules.may_clear(state)
    here.states["vol1"] = state
    cluster = Cluster("n2")
    assert not outdate.clear_marks(cluster, "vol1", ["n2"], hooks.has_current)
    assert cluster.marked == ["n2"]


BARE = GOOD._replace(disk="Diskless")
ALL_LOST = LOST._replace(role="Secondary", peers=(BARE,))


@pytest.mark.parametrize(
    ("cluster", "is_certain", "marked"),
    [
        (Cluster(), True, ["n1"]),
        # The peer may have marked itself for the same reason: that says nothing of it.
        (Cluster("n2"), True, ["n2", "n1"]),
        (Cluster("n1"), True, ["n1"]),
        (Cluster("n1", quorate=["No"]), False, ["n1"]),
        (Cluster(quorate=["No"]), False, []),
        (Cluster(quorate=["Yes", "No"]), False, ["n1"]),
        (Cluster(keeps=False), False, []),
    ],
)
def test_a_replica_is_marked_before_it_is_attached_where_none_has_a_disk(
    here: FakeNode, cluster: Cluster, is_certain: bool, marked: list[str]
) -> None:
    here.states["vol1"] = ALL_LOST
    assert own_marks.mark_of_all_lost(cluster, "vol1", peers=1) is is_certain
    assert cluster.marked == marked


@pytest.mark.parametrize(
    "state",
    [
        LOST,
        ALL_LOST._replace(role="Primary"),
        ALL_LOST._replace(peers=(BARE._replace(role="Primary"),)),
        ALL_LOST._replace(disk="UpToDate"),
    ],
)
def test_nothing_is_marked_where_one_has_a_disk_or_may_serve_by_now(
    here: FakeNode, state: ResourceState
) -> None:
    here.states["vol1"] = state
    cluster = Cluster()
    assert not own_marks.mark_of_all_lost(cluster, "vol1", peers=1) and cluster.calls == []


def test_nothing_is_marked_while_a_handler_has_the_lock(here: FakeNode) -> None:
    here.states["vol1"] = ALL_LOST
    cluster = Cluster()
    with outdate.locked("vol1", wait_s=0.0):
        assert not own_marks.mark_of_all_lost(cluster, "vol1", peers=1)
    assert cluster.changes == 0
