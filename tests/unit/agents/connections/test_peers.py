# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's connections follow the list of replica nodes; an interrupted change is done again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.cache import lost_flash
from sanctl.agents.connections import peers
from sanctl.agents.replica import lost_writes, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdadm, loop, outdated_marks
from sanctl.drivers.outdated_marks import DeviceMarks, SeenMarks
from sanctl.errors import CommandError, Problem
from sanctl.parse.corosync import Membership
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner
from tests.fakes.topology import topology_of_five

_EVENTS = """\
exists resource name:vol1 role:Primary suspended:no
exists connection name:vol1 peer-node-id:0 connection:{connection} role:Unknown
exists device name:vol1 volume:0 minor:1 disk:UpToDate size:1024
exists peer-device name:vol1 peer-node-id:0 volume:0 replication:Off peer-disk:DUnknown
exists -
"""
_REFUSED = CommandError(Problem("SAN-CMD-003", "refused"))


class Node(FakeNode):
    """The first node of the topology, with DRBD 8.4 and what it is asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.connection = "Connected"
        self.failing = ""
        self.asked: list[str] = []  # of DRBD
        self.answer = self._answer

    def _answer(self, argv: Sequence[str]) -> Answer:
        if argv[1] == "events2":
            return _EVENTS.format(connection=self.connection)
        if argv[0] == "ip":
            return ""
        if argv[1] == "--config-file":
            assert argv[2] == drbdadm.config_path("vol1")
            argv = [argv[0], *argv[3:]]
        self.asked.append(" ".join(argv))
        if argv[1] == self.failing:
            return _REFUSED
        if argv[1] == "disconnect":
            self.connection = "StandAlone"
        return ""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path).install(monkeypatch)
    made.attach_files(device("n1"))
    # As without write-back: whether the file is written back is asked before a peer is dropped.
    monkeypatch.setattr(loop, "uses_direct_io", lambda _: True)
    return made


def device(*nodes: str) -> Device:
    return Device("vol1", "5d4c" * 8, 1 << 20, "main", nodes, 1, ())


def configured(node: Node, *nodes: str) -> None:
    resource_file.write(FakeRunner(), device(*nodes), node.attach_files(device(*nodes)))


def text() -> str:
    return Path(resource_file.path_of("vol1")).read_text()


def test_nothing_is_asked_while_nothing_changes(node: Node) -> None:
    configured(node, "n1", "n2")
    assert not peers.apply_replica_nodes(node, device("n2", "n1"))
    assert not node.asked


def test_a_replica_is_added(node: Node) -> None:
    configured(node, "n1")
    assert "fencing dont-care" in text()
    assert peers.apply_replica_nodes(node, device("n1", "n2"))
    assert node.asked == ["drbdadm adjust vol1"]
    assert "fencing resource-and-stonith" in text() and "on n2 {" in text()


def test_a_change_of_nodes_keeps_the_activity_log_of_a_replica_that_runs(node: Node) -> None:
    """DRBD refuses another size while hosts write, and all other options with it."""
    files = node.attach_files(device("n1"))
    resource_file.write(FakeRunner(), device("n1"), files, al_extents=67)
    assert peers.apply_replica_nodes(node, device("n1", "n2"))
    assert "al-extents 67;" in text()


def test_a_replica_that_lost_writes_is_not_connected(node: Node) -> None:
    configured(node, "n1")
    lost_writes.record_failed_flush("vol1")
    assert not peers.apply_replica_nodes(node, device("n1", "n2"))
    assert node.asked == []


def test_a_replica_is_removed(node: Node) -> None:
    configured(node, "n1", "n2")
    assert peers.apply_replica_nodes(node, device("n1"))
    assert node.asked == [
        "drbdadm disconnect vol1",
        "drbdadm new-resource vol1",
        "drbdadm new-minor vol1",
        "drbdsetup disk-options 1 --fencing=dont-care",
    ]
    assert "on n2 {" not in text()
    assert not peers.apply_replica_nodes(node, device("n1"))


@pytest.mark.parametrize("failing", ["disconnect", "new-resource", "disk-options"])
def test_what_was_interrupted_is_done_again(node: Node, failing: str) -> None:
    configured(node, "n1", "n2")
    node.failing = failing
    with pytest.raises(CommandError):
        peers.apply_replica_nodes(node, device("n1"))
    node.failing = ""
    assert peers.apply_replica_nodes(node, device("n1"))
    assert node.asked[-1] == "drbdsetup disk-options 1 --fencing=dont-care"
    assert not peers.apply_replica_nodes(node, device("n1"))


def test_a_connection_that_does_not_end_keeps_the_old_resource_file(node: Node) -> None:
    configured(node, "n1", "n2")
    node.failing = "disconnect"
    with pytest.raises(CommandError):
        peers.apply_replica_nodes(node, device("n1"))
    assert "on n2 {" in text()


def test_the_node_that_is_dropped_does_nothing(node: Node) -> None:
    configured(node, "n1", "n2")
    assert not peers.apply_replica_nodes(node, device("n2"))
    assert not node.asked


class Kernel9(Node):
    """The first of five nodes, with DRBD 9: its peers and their bitmaps, of which there are three.

    Attributes:
        peers: node ids of the known peers, each with its connection.
        bitmaps: node ids of the peers that have one.
        dies_at: the command with which the agent is killed.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.generation, self.topology = 9, self.with_own_pool(topology_of_five())
        self.peers: dict[int, str] = {}
        self.bitmaps: set[int] = set()
        self.disk, self.role, self.peer_disk = "UpToDate", "Secondary", "DUnknown"
        self.dies_at = ""

    def _answer(self, argv: Sequence[str]) -> Answer:
        if argv[1] == "events2":
            return self._events() if self.disk else ""
        if argv[0] == "ip":
            return ""
        if argv[1] == "--config-file":
            argv = [argv[0], *argv[3:]]
        self.asked.append(" ".join(argv[1:]))
        if argv[1] == self.dies_at:
            return _REFUSED
        return self._change(argv[1], argv[-1])

    def _change(self, word: str, last: str) -> Answer:
        if word == "adjust":
            return self._adjust()
        if word == "del-peer":
            del self.peers[int(last)]
        elif word == "forget-peer":
            if int(last) in self.peers:
                return _REFUSED
            if self.disk not in {"", "Diskless"}:
                self.bitmaps.discard(int(last))
        elif word == "down":
            self.disk = ""
            self.peers.clear()
        elif word == "new-minor":
            self.disk = self.disk or "Diskless"
        elif word == "attach":
            if len(self.bitmaps | {*self.peers}) > 3:
                return _REFUSED
            self.disk = "UpToDate"
        return ""

    def _adjust(self) -> Answer:
        named = {int(name[1:]) - 1 for name in resource_file.replica_nodes("vol1")} - {0}
        self.peers = {each: state for each, state in self.peers.items() if each in named}
        for each in sorted(named - {*self.peers}):
            self.peers[each] = "StandAlone"
        if self.disk in {"", "Diskless"}:
            self.disk = "Diskless"
            if len(self.bitmaps | named) > 3:
                return _REFUSED
            self.disk = "UpToDate"
        for each in sorted(named):
            if each not in self.bitmaps and len(self.bitmaps) == 3:
                return _REFUSED
            self.bitmaps.add(each)
            self.peers[each] = "Connecting"
        return ""

    def _events(self) -> str:
        lines = [f"exists resource name:vol1 role:{self.role} suspended:no"]
        for each, state in self.peers.items():
            known = f"name:vol1 peer-node-id:{each} conn-name:n{each + 1}"
            lines.append(f"exists connection {known} connection:{state} role:Unknown")
            disk = f"peer-disk:{self.peer_disk}"
            lines.append(f"exists peer-device {known} volume:0 replication:Off {disk}")
        lines.append(
            f"exists device name:vol1 volume:0 minor:1 disk:{self.disk} size:1024 quorum:yes"
        )
        return "\n".join([*lines, "exists -", ""])


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel9:
    """It has been started with replicas on n1 to n4."""
    made = Kernel9(tmp_path).install(monkeypatch)
    monkeypatch.setattr(loop, "uses_direct_io", lambda _: True)
    monkeypatch.setattr(drbd_kernel, "bitmap_owners", lambda _: frozenset(made.bitmaps))
    configured(made, "n1", "n2", "n3", "n4")
    made.peers, made.bitmaps = {1: "Connected", 2: "Connected", 3: "Connecting"}, {1, 2, 3}
    return made


REPLACED = device("n1", "n2", "n3", "n5")


def test_a_drop_and_an_addition_that_are_seen_together(kernel: Kernel9) -> None:
    """The dropped one's bitmap left no room, and was to be given up after what was refused."""
    assert peers.apply_replica_nodes(kernel, REPLACED)
    assert kernel.asked[:3] == ["del-peer vol1 3", "forget-peer vol1 3", "adjust vol1"]
    assert kernel.bitmaps == {1, 2, 4} == {*kernel.peers}
    assert not peers.apply_replica_nodes(kernel, REPLACED)


@pytest.mark.parametrize("dies_at", ["del-peer", "forget-peer", "adjust"])
def test_such_a_change_that_was_interrupted_goes_on(kernel: Kernel9, dies_at: str) -> None:
    kernel.dies_at = dies_at
    with pytest.raises(CommandError):
        peers.apply_replica_nodes(kernel, REPLACED)
    kernel.dies_at = ""
    assert peers.apply_replica_nodes(kernel, REPLACED)
    assert kernel.bitmaps == {1, 2, 4} == {*kernel.peers}


def test_a_change_in_which_an_older_release_is_stuck_goes_on(kernel: Kernel9) -> None:
    """It has written the file, made the peer known, and was refused its bitmap."""
    configured(kernel, *REPLACED.nodes)
    assert isinstance(kernel._adjust(), CommandError) and kernel.peers[4] == "StandAlone"
    peers._change_note(REPLACED).write()
    assert peers.apply_replica_nodes(kernel, REPLACED)
    assert kernel.bitmaps == {1, 2, 4} == {*kernel.peers}


def test_a_node_that_is_gone_from_the_configuration_keeps_no_bitmap(kernel: Kernel9) -> None:
    kernel.bitmaps = {1, 2, 30}
    assert peers.apply_replica_nodes(kernel, REPLACED)
    assert kernel.bitmaps == {1, 2, 4}


def test_what_has_a_bitmap_stays_where_a_replicas_node_is_not_known(kernel: Kernel9) -> None:
    """It may be the one of that node."""
    kernel.bitmaps = {1, 2, 30}
    del kernel.peers[3]
    peers.forget_removed(kernel, device("n1", "n2", "n3", "n31"))
    assert 30 in kernel.bitmaps


def test_of_a_pure_drop_adjust_ends_the_peer(kernel: Kernel9) -> None:
    left = device("n1", "n2", "n3")
    kernel.dies_at = "forget-peer"
    with pytest.raises(CommandError):
        peers.apply_replica_nodes(kernel, left)
    kernel.dies_at = ""
    assert kernel.asked[0] == "adjust vol1" and 3 in kernel.bitmaps
    # The file is the new one by now, and does not know who went.
    assert peers.apply_replica_nodes(kernel, left)
    assert kernel.bitmaps == {1, 2}
    assert not peers.apply_replica_nodes(kernel, left)


def test_without_those_dropped_a_primary_of_two_replicas_is_not_frozen(kernel: Kernel9) -> None:
    """The order of `adjust`: quorum ends before the peers do."""
    assert peers.apply_replica_nodes(kernel, device("n1", "n5"))
    assert kernel.asked[0] == "resource-options vol1 --quorum=off"
    assert kernel.asked[1:4] == ["del-peer vol1 1", "del-peer vol1 2", "del-peer vol1 3"]
    assert kernel.bitmaps == {4}


@pytest.mark.parametrize("left", [("n1", "n2"), ("n1", "n2", "n5")])
def test_with_two_replicas_the_peer_that_stays_is_fenced_before_quorum_ends(
    kernel: Kernel9, left: tuple[str, ...]
) -> None:
    """Also by `adjust`, which ends quorum before it comes to the options of connections."""
    assert peers.apply_replica_nodes(kernel, device(*left))
    fenced = ["net-options vol1 1 --fencing=resource-and-stonith"]
    assert kernel.asked[:1] == (fenced if len(left) == 2 else ["del-peer vol1 2"])
    assert sum(each.startswith("net-options") for each in kernel.asked) == (len(left) == 2)


def test_quorum_stays_where_the_peer_that_stays_cannot_be_fenced(kernel: Kernel9) -> None:
    kernel.dies_at = "net-options"
    with pytest.raises(CommandError):
        peers.apply_replica_nodes(kernel, device("n1", "n2"))
    assert len(kernel.asked) == 1
    kernel.dies_at = ""
    assert peers.apply_replica_nodes(kernel, device("n1", "n2"))
    assert "adjust vol1" in kernel.asked


@pytest.mark.parametrize(
    ("connection", "disk", "marked", "is_quorate", "goes_on"),
    [
        ("Connected", "DUnknown", "", False, True),
        # The handler has answered.
        ("Connecting", "Outdated", "", False, True),
        ("Connecting", "DUnknown", "", True, False),
        ("Connecting", "DUnknown", "n3", True, False),
        ("Connecting", "DUnknown", "n2", True, True),
        # The mark may be in the CIB of this node alone.
        ("Connecting", "DUnknown", "n2", False, False),
    ],
)
def test_a_primary_that_has_lost_the_peer_that_stays_keeps_its_majority_until_that_is_marked(
    kernel: Kernel9,
    monkeypatch: pytest.MonkeyPatch,
    connection: str,
    disk: str,
    marked: str,
    *,
    is_quorate: bool,
    goes_on: bool,
) -> None:
    kernel.role, kernel.peers[1], kernel.peer_disk = "Primary", connection, disk
    kernel.membership = Membership(is_quorate=is_quorate, members=frozenset())
    seen = SeenMarks(0, 0, None, {"vol1": DeviceMarks("5d4c" * 8, ((marked, "/path"),))})
    monkeypatch.setattr(outdated_marks, "read_device", lambda *_: seen)
    left = device("n1", "n2")
    if goes_on:
        assert peers.apply_replica_nodes(kernel, left)
        return
    for _ in range(2):
        with pytest.raises(CommandError, match="SAN-AGENT-021"):
            peers.apply_replica_nodes(kernel, left)
        assert peers._change_note(left).read() == "n2"
    assert {each.partition(" ")[0] for each in kernel.asked} == {"net-options"}
    kernel.role = "Secondary"
    assert peers.apply_replica_nodes(kernel, left)
    assert not peers._change_note(left).exists()


@pytest.mark.parametrize("disk", ["Diskless", "UpToDate"])
def test_a_change_that_attaches_a_dropped_disk_trusts_no_flash_that_failed(
    kernel: Kernel9, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    told: list[str] = kernel.asked
    monkeypatch.setattr(lost_flash, "note", lambda _: told.append("noted"))
    kernel.disk = disk
    assert peers.apply_replica_nodes(kernel, device("n1", "n2", "n3"))
    assert told[: told.index("adjust vol1")] == ["noted"] * (disk == "Diskless")


def test_a_start_makes_room_for_a_peer_that_came_while_the_node_was_away(kernel: Kernel9) -> None:
    kernel.disk = ""
    kernel.peers.clear()
    configured(kernel, *REPLACED.nodes)
    assert isinstance(kernel._adjust(), CommandError) and kernel.disk == "Diskless"
    assert peers.make_room(kernel, REPLACED)
    assert kernel.disk == "" and kernel.bitmaps == {1, 2}
    assert kernel._adjust() == "" and kernel.bitmaps == {1, 2, 4}


def test_a_disk_that_is_there_or_is_refused_for_another_reason_makes_no_room(
    kernel: Kernel9,
) -> None:
    assert not peers.make_room(kernel, REPLACED)
    assert not kernel.asked, "it is attached"
    kernel.disk, kernel.dies_at = "Diskless", "attach"
    assert not peers.make_room(kernel, REPLACED)
    assert kernel.bitmaps == {1, 2, 3}
    kernel.generation = 8
    kernel.asked.clear()
    assert not peers.make_room(kernel, REPLACED)
    assert not kernel.asked
