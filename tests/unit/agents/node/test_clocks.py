# SPDX-License-Identifier: GPL-2.0-or-later
"""The pool agent says which nodes' clocks are off from this one's, and says it once."""

from __future__ import annotations

import os
import time
from collections.abc import Collection

import pytest

from sanctl.agents.node import clocks as agent
from sanctl.drivers import icmp_clock
from sanctl.parse.published_state import parse_pool_usage
from sanctl.plan.health.clock_offsets import to_publish
from sanctl.system import state_files
from tests.fakes.node import FakeNode


class Clocks:
    """By how much others are ahead, by address; and who was asked."""

    def __init__(self) -> None:
        self.ahead: dict[str, float] | None = {"10.77.2.2": 0.1, "10.77.2.3": -4.9}
        self.asked: list[list[str]] = []

    def answer(self, addresses: Collection[str], **_: float) -> dict[str, float]:
        self.asked.append(sorted(addresses))
        if self.ahead is None:
            raise PermissionError(1, "Operation not permitted")
        return self.ahead


@pytest.fixture
def clocks(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Clocks:
    del fake_node
    found = Clocks()
    monkeypatch.setattr(icmp_clock, "offsets_s", found.answer)
    return found


def look() -> str:
    note = state_files.of_node("clock-offsets")
    if note.exists():
        then = time.time() - 61
        os.utime(note.path, (then, then))
    return agent.field()


def test_clocks_that_are_right_cost_nothing(clocks: Clocks) -> None:
    assert look() == look() == agent.field() == ""
    assert clocks.asked == [["10.77.2.2", "10.77.2.3"]] * 2, "once a minute"


def test_a_clock_that_stays_off_is_published_and_does_not_change_with_each_look(
    clocks: Clocks,
) -> None:
    """Each move from a node ten minutes behind was void, and nothing said clocks."""
    clocks.ahead = {"10.77.2.2": -600.2}
    assert look() == ""
    assert look() == agent.field() == " clock-off=2:-600"
    clocks.ahead = {"10.77.2.2": -640.0, "10.77.2.3": 5.0}
    assert look() == " clock-off=2:-600"
    assert look() == " clock-off=2:-600,3:5"
    usage = parse_pool_usage("total=1 free=1 clock-off=2:-600,3:5,x:1,4:")
    assert usage.clock_offsets == ((2, -600), (3, 5))
    clocks.ahead = {"10.77.2.2": -700.0}
    assert look() == " clock-off=2:-700,3:5", "an answer that is lost once says nothing"
    assert look() == " clock-off=2:-700"
    clocks.ahead = {"10.77.2.2": 0.0}
    assert look() == ""


def test_where_nothing_can_be_asked_that_is_logged_once_a_minute(
    clocks: Clocks, fake_node: FakeNode
) -> None:
    clocks.ahead = None
    assert look() == agent.field() == ""
    assert len(fake_node.journal) == 1


def test_a_node_alone_in_its_cluster_asks_nobody(
    clocks: Clocks, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = fake_node.topology.node("n1")
    assert alone is not None
    monkeypatch.setattr(type(fake_node.topology), "nodes", (alone,), raising=False)
    assert look() == "" and clocks.asked == []


def test_the_number_follows_a_clock_that_is_being_set() -> None:
    assert to_publish({2: 6}, {2: 600}, {2: 600}, answered={2}) == {2: 6}
    assert to_publish({2: 12}, {2: 7}, {2: 7}, answered={2}) == {2: 7}


def test_an_answer_that_is_lost_once_takes_nothing_back() -> None:
    assert to_publish({}, {2: 7}, {2: 7}, answered={3}) == {2: 7}
    assert to_publish({}, {}, {2: 7}, answered={3}) == {}
    assert to_publish({}, {2: 7}, {2: 7}, answered={2}) == {}
