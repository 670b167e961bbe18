# SPDX-License-Identifier: GPL-2.0-or-later
"""A stale replica of four connects to the Primary alone, and to all peers once it is in sync."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.cache import lost_flash
from sanctl.agents.connections import isolation, primary_node
from sanctl.agents.replica import (
    device_files,
    lost_writes,
    peer_contact,
    reinitialize,
    resource_file,
)
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm
from sanctl.drivers.pool_files import DeviceFiles
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system.runner import LocalRunner
from tests.fakes.node import FakeNode

FOUR = Device("vol", "0" * 32, 0, "main", ("n1", "n2", "n3", "n4"), 0, ())
N1 = PeerState("n1", "Connected", "Primary", "SyncTarget", "UpToDate", 8)
BEHIND = ResourceState("vol", "Secondary", "no", "Inconsistent", 1024, (N1,), has_quorum=True)
IN_STEP = BEHIND._replace(
    disk="UpToDate", peers=(N1._replace(replication="Established", out_of_sync_kib=0),)
)


class Node(FakeNode):
    """This node, n3: its resource file, the Primary, and the calls made."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.name, self.generation = "n3", 9
        self.states["vol"] = IN_STEP
        self.source = folder / "vol.source"
        self.only = ""
        self.serving: str | None = "n1"
        self.is_suspect = False
        self.done: list[str] = []

    def rewrite(self, *_: object, only: str) -> bool:
        self.only = only
        self.done.append(f"file {only or 'all'}")
        return True

    def bring_up(self, only: str | None, *, is_alone: bool = False) -> list[str]:
        self.done.clear()
        files = DeviceFiles("data", "meta")
        isolation.bring_up(LocalRunner(), FOUR, files, only, is_alone=is_alone)
        return self.done

    def first(self) -> str | None:
        return isolation.first_peer(LocalRunner(), FOUR)

    def follow(self, state: ResourceState, device: Device = FOUR) -> list[str]:
        self.done.clear()
        isolation.apply_rules(LocalRunner(), device, state)
        return self.done

    def replacements(self) -> list[tuple[object, str, object]]:
        return [
            *super().replacements(),
            (device_files, "note_path", lambda *_: str(self.source)),
            (peer_contact, "wait_until_settled", lambda *_: self.done.append("wait")),
            (primary_node, "find", lambda *_: self.serving),
            (resource_file, "only_peer", lambda _: self.only),
            (resource_file, "rewrite", self.rewrite),
            (resource_file, "bring_up", self.start),
            (drbdadm, "adjust", lambda *_: self.done.append("adjust")),
            (reinitialize, "reset", lambda *_: self.done.append("anew")),
            (lost_writes, "is_suspect", lambda *_: self.is_suspect),
        ]

    def start(self, *_: object, stays_disconnected: bool) -> None:
        self.done.append("attached" if stays_disconnected else "up")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Node:
    return Node(tmp_path).install(monkeypatch)


def test_a_stale_replica_connects_to_the_primary_alone_at_its_start(node: Node) -> None:
    assert node.first() == "n1"
    node.serving = ""
    assert node.first() == ""
    node.serving = None
    assert node.first() is None
    node.generation = 8
    assert node.first() == ""


def test_a_replica_that_another_node_began_to_fill_is_reset(node: Node) -> None:
    assert node.bring_up("n1") == ["up"] and node.source.read_text() == "n1"
    assert node.bring_up("n1") == ["up"]
    assert node.bring_up("") == ["up"] and node.source.read_text() == "n1"
    assert node.bring_up(None) == ["attached"]
    assert node.bring_up("n4", is_alone=True) == ["attached"]
    node.source.write_text("n1")
    assert node.bring_up("n4") == ["anew"] and node.source.read_text() == "n4"
    node.follow(IN_STEP)
    assert not node.source.exists(), "what is in step is whole"


def test_the_source_note_changes_only_after_the_reset(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reinitialize, "reset", dies)
    node.source.write_text("n1")
    with pytest.raises(KeyboardInterrupt):
        node.bring_up("n4")
    node.only, node.serving = "n1", "n4"
    with pytest.raises(KeyboardInterrupt):
        node.follow(BEHIND._replace(peers=(N1._replace(connection="Connecting"),)))
    assert node.source.read_text() == "n1"


def test_the_other_peers_are_connected_once_the_replica_is_in_sync(node: Node) -> None:
    node.only = "n1"
    assert node.follow(BEHIND) == []
    assert node.follow(IN_STEP) == ["file all", "adjust"]
    assert node.only == ""


def test_a_change_that_was_interrupted_is_done_again(node: Node) -> None:
    node.only = "n1"
    still_all = BEHIND._replace(peers=(N1, N1._replace(name="n2"), N1._replace(name="n4")))
    assert node.follow(still_all) == ["file n1", "anew"]
    assert node.follow(still_all._replace(disk="Outdated")) == ["file n1", "adjust"]


def test_a_replica_started_without_connections_is_connected_later(node: Node) -> None:
    apart = BEHIND._replace(disk="Consistent", peers=())
    assert node.follow(apart) == ["file n1", "adjust"]
    node.only, node.serving = "", ""
    assert node.follow(apart) == ["file all", "adjust"]
    # It knows who had begun to fill it, though nobody served when it started.
    node.serving = "n4"
    node.source.write_text("n1")
    assert node.follow(apart) == ["file n4", "anew"] and node.source.read_text() == "n4"


def test_a_full_pool_keeps_a_replica_disconnected_and_not_down(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(isolation, "write_atomically", full)
    assert node.bring_up("n1") == ["attached"]


def test_a_start_does_not_fail_where_the_cluster_gives_no_answer(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> str:
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    monkeypatch.setattr(primary_node, "find", silent)
    assert node.first() is None


def test_a_new_primary_fills_the_replica_from_the_beginning(node: Node) -> None:
    node.only, node.serving = "n1", "n4"
    lost = BEHIND._replace(peers=(N1._replace(connection="Connecting"),))
    assert node.follow(lost) == ["file n4", "anew"]


def test_only_an_isolated_replica_asks_the_cluster(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    lonely = IN_STEP._replace(peers=tuple(
        N1._replace(name=name, connection="Connecting") for name in ("n1", "n2", "n4")
    ))  # fmt: skip
    assert node.follow(lonely) == ["file n1", "adjust"]

    def never(*_: object) -> str:
        raise AssertionError("the cluster was asked")

    monkeypatch.setattr(primary_node, "find", never)
    node.only = ""
    assert node.follow(IN_STEP) == []
    assert node.follow(lonely._replace(role="Primary")) == []
    assert node.follow(lonely, FOUR._replace(nodes=("n1", "n2", "n3"))) == []


@pytest.mark.parametrize("quorum", [True, False])
def test_without_quorum_or_with_a_suspect_replica_nothing_is_changed(
    node: Node, quorum: bool
) -> None:
    node.only = "n1"
    node.serving = "n4" if quorum else None
    node.is_suspect = quorum
    assert node.follow(BEHIND) == []


def test_all_peers_are_connected_before_a_promotion(node: Node) -> None:
    isolation.connect_all_peers(LocalRunner(), FOUR, within_s=1.0)
    assert node.done == []
    node.only = "n1"
    isolation.connect_all_peers(LocalRunner(), FOUR, within_s=1.0)
    assert node.done == ["file all", "adjust", "wait"]


def test_the_resource_file_holds_the_single_connection(fake_node: FakeNode) -> None:
    fake_node.name = "n3"
    file = Path(resource_file.path_of("vol"))
    file.parent.mkdir()
    assert resource_file.only_peer("vol") == "" and resource_file.replica_nodes("vol") == []
    hosts = "".join(f"  on {name} {{\n  }}\n" for name in FOUR.nodes)
    file.write_text(f"{hosts}  connection-mesh {{\n    hosts n1 n2 n3 n4;\n  }}\n")
    assert resource_file.only_peer("vol") == "" and resource_file.replica_nodes("vol") == [
        *FOUR.nodes
    ]
    file.write_text(f"{hosts}  connection-mesh {{\n    hosts n3 n1;\n  }}\n")
    assert resource_file.only_peer("vol") == "n1"


@pytest.mark.parametrize("disk", ["Diskless", "Inconsistent"])
def test_a_dropped_disk_that_is_attached_so_trusts_no_flash_that_failed(
    node: Node, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    monkeypatch.setattr(lost_flash, "note", lambda _: node.done.append("noted"))
    apart = BEHIND._replace(disk=disk, peers=(N1._replace(connection="Connecting"),))
    done = node.follow(apart)
    assert "adjust" in done and ("noted" in done[: done.index("adjust")]) is (disk == "Diskless")
