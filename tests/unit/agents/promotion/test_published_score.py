# SPDX-License-Identifier: GPL-2.0-or-later
"""A promotion without a peer leaves its publication to later, and no mark is cleared before it."""

from __future__ import annotations

import pytest

from sanctl.agents import device_role
from sanctl.agents.fencing import outdate, shared_marks
from sanctl.agents.handlers import drbd_environment, unfence_peer
from sanctl.agents.publish import attrd_cache
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import unit
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import state_files
from tests.fakes.node import FakeNode

IN_SYNC = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
AWAY = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 8)
PRIMARY = ResourceState("vol1", "Primary", "no", "UpToDate", 1024, (IN_SYNC,), minor=3)
SCORE = ["attrd_updater", "--name", "master-vol1", "--update=10000"]


@pytest.mark.parametrize(
    ("nodes", "peers", "sees_one"),
    [
        (("n1", "n2"), (IN_SYNC,), True),
        (("n1", "n2"), (AWAY,), False),
        (("n1", "n2"), (), False),
        (("n1", "n2", "n3"), (AWAY, IN_SYNC), True),
        (("n1",), (), True),
    ],
)
def test_who_publishes_at_once(
    nodes: tuple[str, ...], peers: tuple[PeerState, ...], sees_one: bool
) -> None:
    made = Device("vol1", "a" * 32, 1 << 20, "main", nodes, 3, ())
    assert device_role._sees_a_peer(made, PRIMARY._replace(peers=peers)) is sees_one
    assert device_role._sees_a_peer(made, None)


def test_a_promotion_whose_handler_was_not_asked_is_known(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer may not be marked then: it was outdated already."""
    del fake_node
    with shared_marks.promotion_begun("vol1"):
        assert shared_marks.is_begun("vol1")
        shared_marks._begun("vol1").remove()  # as the handler's end does
        assert not shared_marks.is_begun("vol1")

    def fail(_file: object) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(state_files.StateFile, "exists", fail)
    assert shared_marks.is_begun("vol1")


@pytest.fixture
def handler(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """A node whose DRBD has called unfence-peer; a file of attrd, so that it counts as running."""
    monkeypatch.setattr(drbd_environment, "resource", lambda: "vol1")
    monkeypatch.setattr(drbd_environment, "peer", lambda: "n2")
    monkeypatch.setattr(unit, "start", lambda _runner: None)
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "77")
    fake_node.states["vol1"] = PRIMARY
    return fake_node


def _clears(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Have the clearing of a mark be noted among the programs that are run."""
    called: list[list[str]] = []

    def clear(*_: object) -> bool:
        called.extend(list(argv) for argv, _ in node.calls)
        called.append(["cleared"])
        return True

    monkeypatch.setattr(outdate, "clear_marks", clear)
    return called


def test_the_score_is_published_before_a_mark_is_cleared(
    handler: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    attrd_cache.record(attrd_cache.of_score("vol1"), "77", "9000")
    called = _clears(handler, monkeypatch)
    assert unfence_peer.main() == 0
    assert [each for each in called if each in (SCORE, ["cleared"])] == [SCORE, ["cleared"]]
    assert attrd_cache.of_score("vol1").read() == "77 10000"


@pytest.mark.parametrize(
    ("published", "state"),
    [
        ("10000", PRIMARY),
        ("9000", PRIMARY._replace(role="Secondary")),
        ("9000", PRIMARY._replace(disk="Diskless")),
        ("9000", None),
    ],
)
def test_none_is_published_of_another_replica_or_twice(
    published: str,
    state: ResourceState | None,
    handler: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler.states["vol1"] = state
    attrd_cache.record(attrd_cache.of_score("vol1"), "77", published)
    called = _clears(handler, monkeypatch)
    assert unfence_peer.main() == 0
    assert called == [["cleared"]]


def test_without_the_score_the_mark_stays(
    handler: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler.answer = lambda _argv: CommandError(Problem("SAN-CMD-002", "no answer within 5 s"))
    called = _clears(handler, monkeypatch)
    assert unfence_peer.main() == 1
    assert called == []
    assert any("still marked" in line for line in handler.journal)
