# SPDX-License-Identifier: GPL-2.0-or-later
"""A new device begins on the first of its nodes, whichever replica has started first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sanctl.agents.promotion import first_activation
from sanctl.agents.publish import attrd_cache, replica_state
from sanctl.agents.replica.parts import Device
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import state_files
from tests.fakes.node import FakeNode

PEER = PeerState("n2", "Connected", "Secondary", "Established", "Inconsistent", 0)
BLANK = ResourceState("vol1", "Secondary", "no", "Inconsistent", 8, (PEER,), minor=3)
FIRST = Device("vol1", "a" * 32, 8192, "main", ("n1", "n2"), 3, ())
OTHER = FIRST._replace(nodes=("n2", "n1"))
NOTE = f"left-to-first.{FIRST.uuid}"


@pytest.fixture
def node(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    fake_node.start_attrd(monkeypatch)
    fake_node.meet("n2")
    monkeypatch.setattr(first_activation, "is_new", lambda *_: True)
    return fake_node


def answer_with(node: FakeNode, first_score: str | CommandError) -> None:
    """Have attrd say that of the score of the device's first node, n2."""

    def answer(argv: Sequence[str]) -> str | CommandError | tuple[int, str, str]:
        if "--query" not in argv:
            return ""
        assert argv[-1] == "n2"
        if not first_score:
            return 6, "", ""
        if isinstance(first_score, CommandError):
            return first_score
        return f'name="master-vol1" host="n2" value="{first_score}"'

    node.answer = answer


def published(node: FakeNode, device: Device) -> str:
    """Publish the blank replica of this node, n1; return the score that it has then."""
    replica_state.publish(node, device, BLANK)
    return attrd_cache.of_score("vol1").read().split()[1]


def test_the_first_asks_nobody(node: FakeNode) -> None:
    assert published(node, FIRST) == "2001"
    assert not [argv for argv, _ in node.calls if "--query" in argv]


@pytest.mark.parametrize(
    "first_score",
    ["", "-INFINITY", CommandError(Problem("SAN-CMD-002", "no answer within 5 s"))],
    ids=["none yet", "not in contact yet", "not known"],
)
def test_the_other_is_no_candidate_before_the_first_is(
    node: FakeNode, first_score: str | CommandError
) -> None:
    answer_with(node, first_score)
    assert published(node, OTHER) == "None"
    node.age("vol1", NOTE, 14)
    assert published(node, OTHER) == "None"
    # The first has something against its promotion that its own node alone knows.
    node.age("vol1", NOTE, 16)
    assert published(node, OTHER) == "2000"


def test_the_other_is_a_candidate_once_the_first_is(node: FakeNode) -> None:
    answer_with(node, "2001")
    assert published(node, OTHER) == "2000"


def test_it_stays_one_whatever_the_first_says_later(node: FakeNode) -> None:
    answer_with(node, "")
    assert published(node, OTHER) == "None"
    node.age("vol1", NOTE, 16)
    assert [published(node, OTHER) for _ in range(3)] == ["2000"] * 3


def test_a_replica_that_was_no_candidate_for_long_leaves_it_all_the_same(node: FakeNode) -> None:
    """Out of contact until now: the first was started much later."""
    answer_with(node, "")
    attrd_cache.record(attrd_cache.of_score("vol1"), "7", "None")
    node.age("vol1", "attrd-cache.score", 50)
    assert published(node, OTHER) == "None"


def test_without_room_for_the_note_it_does_not_wait(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(node, "")
    write = state_files.StateFile.write

    def fail(file: state_files.StateFile, text: str = "") -> None:
        if "left-to-first" in file.path:
            raise OSError(28, "No space left on device")
        write(file, text)

    monkeypatch.setattr(state_files.StateFile, "write", fail)
    assert published(node, OTHER) == "2000"
