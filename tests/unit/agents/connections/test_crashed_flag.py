# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD 8.4 writes its flags anew once a replica that crashed as Primary was filled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.connections import crashed_flag
from sanctl.agents.replica.parts import Device
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer

DEVICE = Device("vol1", "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ())
MET = PeerState("n2", "Connected", "Primary", "Established", "UpToDate", 0)
IN_SYNC = ResourceState("vol1", "Secondary", "no", "UpToDate", 0, (MET,), minor=3)
FILLED = IN_SYNC._replace(disk="Inconsistent")
BOTH = ["drbdsetup pause-sync 3", "drbdsetup resume-sync 3"]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path).install(monkeypatch)


def test_once_and_only_of_one_that_crashed(node: FakeNode) -> None:
    crashed_flag.clear_if_in_sync(node, DEVICE, IN_SYNC)
    assert node.commands() == []
    crashed_flag.note("vol1")
    crashed_flag.clear_if_in_sync(node, DEVICE, FILLED)
    assert node.commands() == []
    for _ in range(2):
        crashed_flag.clear_if_in_sync(node, DEVICE, IN_SYNC)
    assert node.commands() == BOTH


@pytest.mark.parametrize("state", [IN_SYNC, FILLED], ids=["in sync", "filled"])
def test_a_resync_that_was_paused_goes_on(node: FakeNode, state: ResourceState) -> None:
    """The process is killed in between, and another resync begins."""

    def dies(argv: Sequence[str]) -> Answer:
        silent = CommandError(Problem("SAN-CMD-002", "no answer"))
        return silent if "resume-sync" in argv else ""

    crashed_flag.note("vol1")
    node.answer = dies
    with pytest.raises(CommandError):
        crashed_flag.clear_if_in_sync(node, DEVICE, IN_SYNC)
    node.answer = ""
    crashed_flag.clear_if_in_sync(node, DEVICE, state)
    assert node.commands() == [*BOTH, BOTH[1]]


def test_drbd_9_is_not_asked(node: FakeNode) -> None:
    crashed_flag.note("vol1")
    node.generation = 9
    crashed_flag.clear_if_in_sync(node, DEVICE, IN_SYNC)
    assert node.commands() == []
