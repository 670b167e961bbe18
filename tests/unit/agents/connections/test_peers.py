# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's connections follow the list of replica nodes; an interrupted change is done again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.connections import peers
from sanctl.agents.replica import lost_writes, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, loop
from sanctl.errors import CommandError, Problem
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner
from tests.fakes.topology import wide_topology

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


def test_drbd_9_ends_connections_by_adjust_and_forgets_removed_peers(node: Node) -> None:
    node.generation, node.topology = 9, node.with_own_pool(wide_topology())
    configured(node, "n1", "n2", "n3")
    node.failing = "forget-peer"
    with pytest.raises(CommandError):
        peers.apply_replica_nodes(node, device("n1", "n3"))
    node.failing = ""
    node.asked.clear()
    # The file is the new one by now, and does not know who went.
    assert peers.apply_replica_nodes(node, device("n1", "n3"))
    assert node.asked == ["drbdadm adjust vol1", "drbdsetup forget-peer vol1 1"]
    assert not peers.apply_replica_nodes(node, device("n1", "n3"))
