# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica of DRBD 9 is told its peers once in some minutes, and why not is said once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sanctl.agents.connections import known_peers
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.device import short_monitor
from sanctl.system import state_files
from tests.fakes.node import FakeNode

ALONE = ResourceState("vol1", "Secondary", "no", "UpToDate", 1024, (), minor=3, has_quorum=False)
PEER = PeerState("n2", "StandAlone", "Unknown", "Off", "DUnknown", 0, node_id=1)
TOLD = ["drbdadm new-peer vol1", "drbdadm new-path vol1"]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNode:
    found = FakeNode(tmp_path).install(monkeypatch)
    found.states["vol1"] = ALONE
    return found


def note() -> state_files.StateFile:
    return state_files.of_device("vol1", "peers-unknown")


def minutes_pass(passed_s: float = 200.0) -> None:
    then_s = time.time() - passed_s
    os.utime(note().path, (then_s, then_s))


def make_known(node: FakeNode) -> ResourceState:
    return known_peers.make_known(node, "vol1", ALONE, ("n1", "n2"))


def test_a_refusal_is_said_once_and_tried_again_after_some_minutes(node: FakeNode) -> None:
    """What broke: three more processes in each monitor of each such replica, and no word why."""
    node.answer = lambda argv: (20, "", f"{argv[1]}: no such\n option")
    for _ in range(3):
        assert make_known(node) == ALONE
    assert node.commands("drbdadm") == TOLD
    (line,) = node.journal
    assert "new-peer: exit status 20, new-peer: no such option; new-path: exit" in line
    minutes_pass()
    make_known(node)
    assert node.commands("drbdadm") == TOLD * 2 and len(node.journal) == 1
    minutes_pass()
    node.answer = lambda argv: (20, "", "another reason")
    make_known(node)
    assert len(node.journal) == 2


def test_a_command_that_hangs_is_an_attempt(node: FakeNode) -> None:
    silent = CommandError(Problem("SAN-CMD-002", "no answer within 20 s"))
    node.answer = lambda argv: silent
    with pytest.raises(CommandError):
        make_known(node)
    assert make_known(node) == ALONE
    assert node.commands("drbdadm") == TOLD[:1]
    # What broke: after a loss of all power `heal` had nothing to compare for minutes.
    minutes_pass(30.0)
    node.answer = lambda argv: (20, "", "refused")
    make_known(node)
    minutes_pass(30.0)
    make_known(node)
    assert node.commands("drbdadm") == [*TOLD[:1], *TOLD]


def test_one_that_was_dropped_is_no_peer(node: FakeNode) -> None:
    node.states["vol1"] = ALONE._replace(peers=(PEER._replace(name="gone"),))
    make_known(node)
    make_known(node)
    assert node.commands("drbdadm") == TOLD


def test_what_is_known_leaves_no_note(node: FakeNode) -> None:
    node.states["vol1"] = known = ALONE._replace(peers=(PEER,))
    node.answer = lambda argv: (20, "", "n2 is known already")
    assert make_known(node) == known
    assert not note().exists() and node.journal == []


def test_its_note_is_no_reason_for_whole_monitors() -> None:
    assert "peers-unknown" in short_monitor._HARMLESS_NOTES
