# SPDX-License-Identifier: GPL-2.0-or-later
"""Asks of another node, over one connection after the other, and each of them more than once."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sanctl.agents.reservations import peers
from sanctl.agents.reservations.replica_note import Replica
from sanctl.drivers.node_channel import STORED, Channel, ConnectionEnded
from sanctl.errors import CommandError, Problem
from sanctl.model.reservation import Reservations, StoredReservations, Version
from tests.fakes.node import FakeNode

REPLICA = Replica("vol1", "a" * 32, 1, ("n1", "n2"), "/file")
STATE = StoredReservations(Version(3, 1), Reservations())


class Line:
    """A connection whose other end answers, until it is cut."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.is_cut = self.is_closed = self.is_over = self.is_gone = False
        self.newest: tuple[int, int] | None = None

    def send(self, kind: str, **fields: Any) -> None:
        assert not self.is_closed
        self.asked.append({"kind": kind, **fields})

    def receive(self, kind: str, *, within_s: float) -> dict[str, Any]:
        assert kind == STORED and within_s > 0
        if self.is_gone:
            raise ConnectionEnded(Problem("SAN-SNAP-004", "closed the connection"))
        if self.is_cut:
            raise CommandError(Problem("SAN-SNAP-004", "closed the connection"))
        return {"kind": kind, "newest": self.newest, "state": None}

    def has_ended(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def lines(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    made: list[Line] = []

    def connect(node: str, within_s: float) -> Channel:
        assert node == "n2" and within_s > 0
        made.append(Line())
        return cast(Channel, made[-1])

    monkeypatch.setattr(peers, "_connect", connect)
    monkeypatch.setattr(peers, "_idle", {})
    return made


def test_a_connection_serves_many_requests(lines: list[Line]) -> None:
    assert peers.send(REPLICA, "n2", STATE) is None
    lines[0].newest = (4, 0)
    assert peers.send(REPLICA, "n2", STATE) == Version(4, 0)
    assert peers.stored_by(REPLICA, "n2") is None
    assert [len(line.asked) for line in lines] == [3]
    assert {each["sender"] for each in lines[0].asked} == {"n1"}


def test_one_that_has_ended_is_not_used(lines: list[Line]) -> None:
    peers.send(REPLICA, "n2", STATE)
    lines[0].is_over = True
    assert peers.send(REPLICA, "n2", STATE) is None
    assert lines[0].is_closed and len(lines[1].asked) == 1


def test_an_answer_that_does_not_come_is_an_error(lines: list[Line]) -> None:
    """What was asked may have been done; the connection is not used for another answer."""
    peers.send(REPLICA, "n2", STATE)
    lines[0].is_cut = True
    with pytest.raises(CommandError, match="closed"):
        peers.send(REPLICA, "n2", STATE)
    assert lines[0].is_closed and len(lines) == 1


def test_one_of_a_process_that_is_gone_is_replaced_within_the_request(
    lines: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that lost its power and is back: a host waits, and it answers at once."""
    peers.send(REPLICA, "n2", STATE)
    lines[0].is_gone = True
    assert peers.send(REPLICA, "n2", STATE) is None
    assert lines[0].is_closed and len(lines[1].asked) == 1
    peers._idle["n2"].clear()

    def connect(node: str, within_s: float) -> Channel:
        line = Line()
        line.is_gone = True
        return cast(Channel, line)

    monkeypatch.setattr(peers, "_connect", connect)
    with pytest.raises(ConnectionEnded):
        peers.send(REPLICA, "n2", STATE)


def test_no_more_are_kept_than_are_of_use(lines: list[Line]) -> None:
    for _ in range(4):
        kept = peers._idle.setdefault("n2", [])
        kept.clear()
        peers.send(REPLICA, "n2", STATE)
    peers._idle["n2"][:] = [cast(Channel, line) for line in lines[:3]]
    peers.send(REPLICA, "n2", STATE)
    assert lines[2].is_closed and len(peers._idle["n2"]) == 2
