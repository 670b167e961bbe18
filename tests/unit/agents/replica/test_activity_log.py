# SPDX-License-Identifier: GPL-2.0-or-later
"""A standby gets the larger activity log while it runs; a Primary keeps its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.replica import activity_log, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.render.drbd import activity_log_extents
from tests.fakes.node import FakeNode

DEVICE = Device("vol1", "a" * 32, 1 << 30, "main", ("n1", "n2"), 3, ())
PEER = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
STANDBY = ResourceState("vol1", "Secondary", "no", "UpToDate", 1024, (PEER,), minor=3)
ASKED = "drbdsetup disk-options 3 --al-extents=257"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    made = FakeNode(tmp_path).install(monkeypatch)
    write("67")
    return made


def write(extents: str) -> None:
    path = Path(resource_file.path_of("vol1"))
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"  disk {{\n    on-io-error detach;\n    al-extents {extents};\n  }}\n")


def asked(node: FakeNode) -> list[str]:
    return node.commands("drbdsetup", "drbdadm")


def test_a_standby_gets_it_once(node: FakeNode) -> None:
    for is_new in (True, False):
        assert activity_log.enlarge(node, DEVICE, STANDBY) is is_new
    assert asked(node) == [ASKED]
    text = Path(resource_file.path_of("vol1")).read_text()
    assert text == "  disk {\n    on-io-error detach;\n    al-extents 257;\n  }\n"


@pytest.mark.parametrize(
    "state",
    [
        STANDBY._replace(role="Primary"),
        STANDBY._replace(disk="Outdated"),
        STANDBY._replace(peers=()),
        # The log of a standby is used, then.
        STANDBY._replace(peers=(PEER._replace(disk="Diskless"),)),
        STANDBY._replace(peers=(PEER._replace(replication="SyncSource", disk="Inconsistent"),)),
    ],
)
def test_any_other_replica_keeps_its_own(node: FakeNode, state: ResourceState) -> None:
    assert not activity_log.enlarge(node, DEVICE, state)
    node.generation = 9
    assert not activity_log.enlarge(node, DEVICE, STANDBY)
    assert asked(node) == [] and resource_file.al_extents("vol1") == 67


@pytest.mark.parametrize("extents", ["257", "1237"])
def test_none_becomes_smaller(node: FakeNode, extents: str) -> None:
    write(extents)
    assert not activity_log.enlarge(node, DEVICE, STANDBY)
    Path(resource_file.path_of("vol1")).unlink()
    assert not activity_log.enlarge(node, DEVICE, STANDBY)
    assert asked(node) == []


def test_what_drbd_refuses_is_not_in_the_file(node: FakeNode) -> None:
    node.answer = lambda argv: CommandError(Problem("SAN-CMD-003", "Try again"))
    with pytest.raises(CommandError):
        activity_log.enlarge(node, DEVICE, STANDBY)
    assert resource_file.al_extents("vol1") == 67


def test_no_device_has_less() -> None:
    assert activity_log_extents(1) == activity_log.LEAST
