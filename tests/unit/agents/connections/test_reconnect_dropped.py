# SPDX-License-Identifier: GPL-2.0-or-later
"""A start that has no turn leaves its connection to the monitor, where another node serves."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from sanctl.agents.connections import connect_turn, primary_node, reconnect_dropped
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdadm
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import state_files
from tests.fakes.node import FakeNode

DEVICE = Device("vol1", "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ())
ALONE = ResourceState("vol1", "Secondary", "no", "Outdated", 1024, (), minor=3)
NOTE = "connects-later"


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNode:
    found = FakeNode(tmp_path).install(monkeypatch)
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 8)
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: False)
    return found


def serves(monkeypatch: pytest.MonkeyPatch, answer: str | Exception | None) -> None:
    def find(*_: object) -> str | None:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(primary_node, "find", find)


def test_the_monitor_connects_in_its_turn(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    serves(monkeypatch, "n2")
    assert reconnect_dropped.leave_to_monitor(node, DEVICE)
    turns = [False, True]
    monkeypatch.setattr(connect_turn, "take", lambda _, *, waited_s: turns.pop(0))
    node.states["vol1"] = ALONE
    reconnect_dropped.reconnect(node, "vol1", ALONE)
    assert node.commands("drbdadm") == [], "others had their turn"
    reconnect_dropped.reconnect(node, "vol1", ALONE)
    assert len(node.commands("drbdadm")) == 1
    assert state_files.device_suffixes("vol1", NOTE) == []
    reconnect_dropped.reconnect(node, "vol1", ALONE)
    assert len(node.commands("drbdadm")) == 1, "they may have diverged"


def test_an_attempt_that_failed_is_repeated(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves(monkeypatch, "n2")
    assert reconnect_dropped.leave_to_monitor(node, DEVICE)
    monkeypatch.setattr(connect_turn, "take", lambda _, *, waited_s: waited_s is not None)
    node.states["vol1"] = ALONE

    def fail(*_: object) -> None:
        raise CommandError(Problem("SAN-CMD-002", "no answer within 8 s"))

    with monkeypatch.context() as once:
        once.setattr(drbdadm, "adjust", fail)
        with pytest.raises(CommandError):
            reconnect_dropped.reconnect(node, "vol1", ALONE)
    assert state_files.device_suffixes("vol1", NOTE) == ["n2"]
    reconnect_dropped.reconnect(node, "vol1", ALONE)
    assert len(node.commands("drbdadm")) == 1


def test_a_replica_in_sync_needs_no_note(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    serves(monkeypatch, "n2")
    assert reconnect_dropped.leave_to_monitor(node, DEVICE)
    peer = PeerState("n2", "Connected", "Primary", "Established", "UpToDate", 0)
    reconnect_dropped.reconnect(node, "vol1", ALONE._replace(disk="UpToDate", peers=(peer,)))
    assert state_files.device_suffixes("vol1", NOTE) == []


@pytest.mark.parametrize(
    "answer", ["", None, CommandError(Problem("SAN-CMD-002", "no answer within 8 s"))]
)
def test_the_start_connects_where_nobody_is_known_to_serve(
    answer: str | Exception | None, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves(monkeypatch, answer)
    assert not reconnect_dropped.leave_to_monitor(node, DEVICE)
    assert state_files.device_suffixes("vol1", NOTE) == []


def test_the_start_connects_where_no_note_can_be_left(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves(monkeypatch, "n2")

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_files.StateFile, "write", no_room)
    assert not reconnect_dropped.leave_to_monitor(node, DEVICE)


def test_with_drbd_9_a_start_always_connects(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves(monkeypatch, "n2")
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 9)
    assert not reconnect_dropped.leave_to_monitor(node, DEVICE)


def test_it_publishes_since_when_a_replica_waits_for_its_turn(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves(monkeypatch, "n2")
    assert reconnect_dropped.published_field("vol1", ALONE) == "", "DRBD refused its peer"
    assert reconnect_dropped.leave_to_monitor(node, DEVICE)
    written_ns = state_files.of_device("vol1", f"{NOTE}.n2").written_ns()
    assert written_ns is not None
    field = f" connects-later={written_ns // 10**9}"
    assert reconnect_dropped.published_field("vol1", ALONE) == field
    assert reconnect_dropped.published_field("vol1", None) == ""
    tries = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 0)
    connecting = ALONE._replace(peers=(tries,))
    assert reconnect_dropped.published_field("vol1", connecting) == "", "an operator connected it"


def test_who_serves_a_device_is_known_or_not(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = CommandError(Problem("SAN-CMD-002", "no answer"))
    for answer, is_served_by_none in (("", True), ("n2", False), (None, False), (silent, False)):
        serves(monkeypatch, answer)
        assert reconnect_dropped.is_served_by_none(node, DEVICE) is is_served_by_none
    serves(monkeypatch, "")
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 9)
    assert not reconnect_dropped.is_served_by_none(node, DEVICE)
