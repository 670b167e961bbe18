# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's connections follow the nodes that hold copies; killed anywhere, the next call goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.connections import peers
from sanctl.agents.replica import lost_writes, parts, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, loop, pool_files
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files
from tests.fakes.runner import Answer, FakeRunner
from tests.fakes.topology import topology, wide_topology

_EVENTS = """\
exists resource name:vol1 role:Primary suspended:no
exists connection name:vol1 peer-node-id:0 connection:{connection} role:Unknown
exists device name:vol1 volume:0 minor:1 disk:UpToDate size:1024
exists peer-device name:vol1 peer-node-id:0 volume:0 replication:Off peer-disk:DUnknown
exists -
"""
_REFUSED = CommandError(Problem("SAN-CMD-003", "refused"))


class Node:
    """The first node of the topology, with DRBD 8.4 and what it is asked."""

    def __init__(self) -> None:
        self.connection = "Connected"
        self.failing = ""
        self.asked: list[str] = []
        self.runner = FakeRunner(self._answer)

    def _answer(self, argv: Sequence[str]) -> Answer:
        if argv[1] == "events2":
            return _EVENTS.format(connection=self.connection)
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
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    monkeypatch.setattr(drbdadm, "RESOURCE_FILES", str(tmp_path / "drbd.d"))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(resource_file, "_INCLUDE", str(tmp_path / "include.res"))
    monkeypatch.setattr(resource_file, "_SECRET", str(secret))
    monkeypatch.setattr(parts, "load_topology", topology)
    monkeypatch.setattr(loop, "find", lambda path: "/dev/loop1" if "meta" in path else "/dev/loop0")
    monkeypatch.setattr(drbdsetup, "generation", lambda: 8)
    monkeypatch.setattr(drbdsetup, "is_loaded", lambda: True)
    monkeypatch.setattr(peers, "_here", lambda: "n1")
    return Node()


def device(*nodes: str) -> Device:
    return Device("vol1", "5d4c" * 8, 1 << 20, "main", nodes, 1, ())


def configured(*nodes: str) -> None:
    wanted = device(*nodes)
    resource_file.write(FakeRunner(), wanted, pool_files.files_of("/p", wanted.name, wanted.uuid))


def text() -> str:
    return Path(resource_file.path_of("vol1")).read_text()


def test_nothing_is_asked_while_nothing_changes(node: Node) -> None:
    configured("n1", "n2")
    assert not peers.apply_replica_nodes(node.runner, device("n2", "n1"))
    assert not node.asked


def test_a_copy_comes(node: Node) -> None:
    configured("n1")
    assert "fencing dont-care" in text()
    assert peers.apply_replica_nodes(node.runner, device("n1", "n2"))
    assert node.asked == ["drbdadm adjust vol1"]
    assert "fencing resource-and-stonith" in text() and "on n2 {" in text()


def test_a_copy_that_lost_writes_is_not_connected(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured("n1")
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: True)
    assert not peers.apply_replica_nodes(node.runner, device("n1", "n2"))
    assert node.asked == []


def test_a_copy_goes(node: Node) -> None:
    configured("n1", "n2")
    assert peers.apply_replica_nodes(node.runner, device("n1"))
    assert node.asked == [
        "drbdadm disconnect vol1",
        "drbdadm new-resource vol1",
        "drbdadm new-minor vol1",
        "drbdsetup disk-options 1 --fencing=dont-care",
    ]
    assert "on n2 {" not in text()
    assert not peers.apply_replica_nodes(node.runner, device("n1"))


@pytest.mark.parametrize("failing", ["disconnect", "new-resource", "disk-options"])
def test_what_was_interrupted_is_done_again(node: Node, failing: str) -> None:
    configured("n1", "n2")
    node.failing = failing
    with pytest.raises(CommandError):
        peers.apply_replica_nodes(node.runner, device("n1"))
    node.failing = ""
    assert peers.apply_replica_nodes(node.runner, device("n1"))
    assert node.asked[-1] == "drbdsetup disk-options 1 --fencing=dont-care"
    assert not peers.apply_replica_nodes(node.runner, device("n1"))


def test_a_connection_that_does_not_end_keeps_the_file_that_knows_it(node: Node) -> None:
    configured("n1", "n2")
    node.failing = "disconnect"
    with pytest.raises(CommandError):
        peers.apply_replica_nodes(node.runner, device("n1"))
    assert "on n2 {" in text()


def test_the_node_that_is_dropped_does_nothing(node: Node) -> None:
    configured("n1", "n2")
    assert not peers.apply_replica_nodes(node.runner, device("n2"))
    assert not node.asked


def test_drbd_9_ends_connections_by_itself_and_forgets_who_is_gone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drbdsetup, "generation", lambda: 9)
    monkeypatch.setattr(parts, "load_topology", wide_topology)
    configured("n1", "n2", "n3")
    node.failing = "forget-peer"
    with pytest.raises(CommandError):
        peers.apply_replica_nodes(node.runner, device("n1", "n3"))
    node.failing = ""
    node.asked.clear()
    # The file is the new one by now, and does not know who went.
    assert peers.apply_replica_nodes(node.runner, device("n1", "n3"))
    assert node.asked == ["drbdadm adjust vol1", "drbdsetup forget-peer vol1 1"]
    assert not peers.apply_replica_nodes(node.runner, device("n1", "n3"))
