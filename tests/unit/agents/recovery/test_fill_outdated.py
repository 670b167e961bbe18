# SPDX-License-Identifier: GPL-2.0-or-later
"""An Outdated replica that DRBD 9 leaves beside a better one is filled by the bitmaps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from sanctl.agents.connections import published_state, reconnect_dropped
from sanctl.agents.fencing import outdate
from sanctl.agents.recovery import fill_outdated
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.model.device import ReplicaState
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.parse.published_state import parse_replica_state
from sanctl.system import state_files
from tests.fakes.node import FakeNode

DEVICE = Device("vol", "0" * 32, 0, "main", ("n1", "n2"), 3, ())
BEHIND = PeerState("n2", "Connected", "Secondary", "Established", "Outdated", 64, node_id=1)
GOOD = ResourceState(
    "vol", "Secondary", "no", "UpToDate", 1024, (BEHIND,), minor=3, has_quorum=True
)
OUTDATED = GOOD._replace(disk="Outdated", peers=(BEHIND._replace(disk="UpToDate"),))
FILLED = GOOD._replace(
    disk="Consistent", peers=(BEHIND._replace(disk="Consistent", out_of_sync_kib=0),)
)
FILL = "drbdsetup invalidate-remote vol 1 0 --reset-bitmap=no"
BE_FILLED = "drbdsetup invalidate 3 --sync-from-peer-node-id=1 --reset-bitmap=no"
RECONNECT = ["drbdsetup disconnect vol 1", "drbdadm adjust vol"]


@pytest.fixture
def node(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """A node whose peer is a member, and which has all its writes."""
    monkeypatch.setattr(outdate, "peer_membership", lambda *_: "member")
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: False)
    publishes(monkeypatch, "disk=UpToDate role=Secondary")
    fake_node.generation = 9
    return fake_node


def publishes(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    def of_peer(_runner: object, device: str, node: str) -> ReplicaState | None:
        assert (device, node) == ("vol", "n2")
        return None if text is None else parse_replica_state(text)

    monkeypatch.setattr(published_state, "of_peer", of_peer)


def fill(node: FakeNode, state: ResourceState) -> ResourceState:
    node.states.setdefault("vol", state)
    return fill_outdated.fill(node, DEVICE, state)


def test_the_good_side_fills_the_outdated_one(node: FakeNode) -> None:
    fill(node, GOOD)
    assert node.commands() == [FILL]


def test_the_outdated_side_has_itself_filled(node: FakeNode) -> None:
    fill(node, OUTDATED)
    assert node.commands() == [BE_FILLED]


def test_the_state_afterwards_is_returned(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = GOOD._replace(peers=(BEHIND._replace(replication="WFBitMapS"),))
    answers = iter((GOOD, begun))
    monkeypatch.setattr(drbdsetup, "observe", lambda *_: next(answers))
    assert fill(node, GOOD) is begun


@pytest.mark.parametrize("membership", ["fenced", "unknown", "alone"])
@pytest.mark.parametrize("state", [GOOD, OUTDATED, FILLED], ids=lambda state: str(state.disk))
def test_only_beside_a_member(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, state: ResourceState, membership: str
) -> None:
    """The source's handler would refuse, with the target Inconsistent already."""
    reconnect_dropped.write_filled("vol", "n2")
    monkeypatch.setattr(outdate, "peer_membership", lambda *_: membership)
    fill(node, state)
    assert node.commands() == []


@pytest.mark.parametrize("state", [GOOD, OUTDATED], ids=lambda state: str(state.disk))
def test_a_replica_that_may_lack_writes_takes_no_part(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, state: ResourceState
) -> None:
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: True)
    assert fill(node, state) is state
    assert node.commands() == []


@pytest.mark.parametrize("text", [None, "role=Secondary", "disk=UpToDate suspect=1"])
def test_nor_is_one_filled_from_it(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    """What broke: a flush had failed on the source, and the suspicion went with the fill."""
    publishes(monkeypatch, text)
    fill(node, OUTDATED)
    assert node.commands() == []


def test_while_a_handler_marks_nothing_is_begun(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def taken(_device: str, *, wait_s: float) -> Iterator[bool]:
        yield False

    monkeypatch.setattr(outdate, "locked", taken)
    assert fill(node, GOOD) is GOOD
    assert node.commands() == []


def test_what_is_seen_under_the_lock_counts(node: FakeNode) -> None:
    now = GOOD._replace(peers=(BEHIND._replace(disk="UpToDate"),))
    node.states["vol"] = now
    assert fill(node, GOOD) is now
    assert node.commands() == []


def test_a_refusal_is_left_to_the_next_monitor(node: FakeNode) -> None:
    refused = CommandError(Problem("SAN-CMD-003", "State change failed"))
    node.answer = lambda argv: refused
    with pytest.raises(CommandError):
        fill(node, GOOD)
    node.answer = lambda argv: ""
    fill(node, GOOD)
    assert node.commands() == [FILL, FILL]


def test_a_filled_replica_is_connected_anew_where_it_stays_consistent(node: FakeNode) -> None:
    reconnect_dropped.write_filled("vol", "n2")
    fill(node, FILLED)
    assert node.commands() == RECONNECT
    # Not every ten seconds, should that not help.
    fill(node, FILLED)
    assert node.commands() == RECONNECT
    node.age("vol", "reconnect-tried", 61)
    fill(node, FILLED)
    assert node.commands() == RECONNECT * 2
    assert state_files.of_device("vol", "outdated-unmarked.n2").exists(), "should it die half way"


def test_two_consistent_replicas_of_which_none_was_filled_are_left_alone(node: FakeNode) -> None:
    """The peer's bitmap may name what a new connection would hide.

    Nor does the note say so that others leave who have the monitor connect.
    """
    reconnect_dropped.write_note("vol", "n2")
    fill(node, FILLED)
    assert node.commands() == []


def test_a_replica_in_sync_is_asked_nothing(node: FakeNode) -> None:
    good = GOOD._replace(peers=(BEHIND._replace(disk="UpToDate", out_of_sync_kib=0),))
    assert fill(node, good) is good
    assert node.calls == []
