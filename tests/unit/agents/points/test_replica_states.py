# SPDX-License-Identifier: GPL-2.0-or-later
"""With DRBD 9 what debugfs says decides in the hold; what cannot be read is no replica in sync."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sanctl.agents.points import replica_states
from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.errors import CommandError
from sanctl.model.device import DeviceSpec
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.names import ByteSize, DeviceName, NodeName, PoolName

DEVICE = DeviceSpec(
    name=DeviceName.parse("web"), uuid="a" * 32, minor=7, size=ByteSize(bytes=1 << 20),
    pool=PoolName.parse("main"), nodes=tuple(NodeName.parse(each) for each in ("n1", "n2", "n3")),
    initiators=(), replicas=3,
)  # fmt: skip
LONE = ResourceState("web", "Primary", "no", "UpToDate", 1024, (), 7, True)
RUNNING = "v: 0\n\ndrbd_suspended(): 0\nsuspend_cnt: 0\n"
RUNNER: Any = None


class Node:
    """What DRBD 9 says on this node."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.observed: ResourceState | None = LONE

    def say(self, peer: str, line: str, *, oos: int = 0) -> None:
        folder = self.root / "web/connections" / peer / "0"
        folder.mkdir(parents=True, exist_ok=True)
        second = (
            f"    ns:0 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:[0;0] ua:0 ap:[0;0] ep:1 wo:2 oos:{oos}"
        )
        (folder / "proc_drbd").write_text(f" 7: {line} C r------\n{second}\n\tact_log: used:0/9\n")

    def is_frozen(self, text: str) -> None:
        folder = self.root / "web/volumes/0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "io_frozen").write_text(text)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Node:
    made = Node(tmp_path)
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 9)
    monkeypatch.setattr(drbd_kernel, "_DEBUG", str(tmp_path))
    monkeypatch.setattr(drbdsetup, "observe", lambda *_: made.observed)
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"nodename": "n1"}))
    return made


def test_all_standbys_in_sync_are_copied(node: Node) -> None:
    node.say("n2", "cs:Established ro:Primary/Secondary ds:UpToDate/UpToDate")
    node.say("n3", "cs:Established ro:Primary/Secondary ds:UpToDate/UpToDate")
    assert replica_states.standbys(RUNNER, DEVICE) == ("n2", "n3")
    replica_states.check_active(DEVICE, ("n2", "n3"))
    node.say("n3", "cs:SyncSource ro:Primary/Secondary ds:UpToDate/Inconsistent", oos=4)
    assert replica_states.standbys(RUNNER, DEVICE) == ("n2",)
    with pytest.raises(CommandError, match=r"SAN-SNAP-005.*n3 is not in sync"):
        replica_states.check_active(DEVICE, ("n2", "n3"))
    replica_states.check_active(DEVICE, ("n2",))


def test_a_standby_checks_its_connection_to_the_primary(node: Node) -> None:
    node.say("n2", "cs:Established ro:Secondary/Primary ds:UpToDate/UpToDate")
    node.say("n3", "cs:Off ro:Secondary/Unknown ds:UpToDate/DUnknown")
    replica_states.check_standby("web", 7)
    node.say("n2", "cs:SyncTarget ro:Secondary/Primary ds:Inconsistent/UpToDate", oos=4)
    with pytest.raises(CommandError, match="SAN-SNAP-005"):
        replica_states.check_standby("web", 7)


def test_a_replica_without_peers_is_copied_while_it_has_its_disk(node: Node) -> None:
    lone = replace(DEVICE, nodes=DEVICE.nodes[:1], replicas=1)
    node.is_frozen(RUNNING)
    assert replica_states.standbys(RUNNER, lone) == ()
    replica_states.check_active(lone, ())
    # Nothing says that the peers hold the same.
    with pytest.raises(CommandError, match="SAN-SNAP-005"):
        replica_states.check_active(DEVICE, ("n2",))
    for observed in (
        None, LONE._replace(role="Secondary"), LONE._replace(disk="Inconsistent"),
    ):  # fmt: skip
        node.observed = observed
        with pytest.raises(CommandError, match="SAN-SNAP-005"):
            replica_states.standbys(RUNNER, lone)


def test_a_peer_that_debugfs_says_nothing_of(node: Node) -> None:
    """A module that writes these files in another way: its standbys are not left out in silence."""
    node.is_frozen(RUNNING)
    node.say("n2", "version 2")
    peer = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
    node.observed = LONE._replace(peers=(peer,))
    with pytest.raises(CommandError, match="SAN-SNAP-015"):
        replica_states.standbys(RUNNER, DEVICE)


@pytest.mark.parametrize("text", ["", RUNNING.replace(": 0\nsus", ": 1\nsus"), "v: 1\n" + RUNNING])
def test_a_replica_without_peers_that_lost_its_disk(node: Node, text: str) -> None:
    node.is_frozen(text)
    with pytest.raises(CommandError, match=r"SAN-SNAP-005.*no disk there"):
        replica_states.check_active(DEVICE, ())


def test_debugfs_that_is_not_mounted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.say("n2", "cs:Established ro:Primary/Secondary ds:UpToDate/UpToDate")
    monkeypatch.setattr(drbd_kernel, "_DEBUG", str(node.root / "none"))
    with pytest.raises(CommandError, match="SAN-SNAP-015"):
        replica_states.standbys(RUNNER, DEVICE)
    with pytest.raises(CommandError, match="SAN-SNAP-015"):
        replica_states.check_standby("web", 7)
