# SPDX-License-Identifier: GPL-2.0-or-later
"""The pool agent says which of Corosync's links are lost while another to the node works."""

from __future__ import annotations

import os
import time

import pytest

from sanctl.agents.node import links as agent
from sanctl.drivers import corosync
from sanctl.errors import CommandError, Problem
from sanctl.model.lost_link import format_links, parse_links
from sanctl.parse.corosync import Link
from sanctl.parse.published_state import parse_pool_usage
from sanctl.plan.health.lost_links import lost_links
from sanctl.system import state_files
from tests.fakes.node import FakeNode

BOTH = (Link(0, 2, True), Link(1, 2, True), Link(0, 3, True), Link(1, 3, True))
ONE_DOWN = (Link(0, 2, True), Link(1, 2, False), Link(0, 3, True), Link(1, 3, True))
AWAY = (Link(0, 2, False), Link(1, 2, False), Link(0, 3, True), Link(1, 3, True))


class Corosync:
    """What it says of the links, and how often it was asked."""

    def __init__(self) -> None:
        self.links: tuple[Link, ...] | None = BOTH
        self.asked = 0

    def answer(self, _: object) -> tuple[Link, ...]:
        self.asked += 1
        if self.links is None:
            raise CommandError(Problem("SAN-CMD-002", "no answer"))
        return self.links


@pytest.fixture
def here(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Corosync:
    del fake_node
    found = Corosync()
    monkeypatch.setattr(corosync, "links", found.answer)
    return found


def look(fake_node: FakeNode, *, after_s: float = 31.0) -> str:
    note = state_files.of_node("corosync-links")
    if note.exists():
        then = time.time() - after_s
        os.utime(note.path, (then, then))
    return agent.field(fake_node)


def test_a_corosync_that_does_not_answer_is_not_asked_by_every_monitor(
    here: Corosync, fake_node: FakeNode
) -> None:
    assert look(fake_node) == ""
    here.links = None
    assert look(fake_node) == "" and here.asked == 2
    assert agent.field(fake_node) == agent.field(fake_node) == "" and here.asked == 2


def test_a_link_that_stays_down_is_published_until_it_is_back(
    here: Corosync, fake_node: FakeNode
) -> None:
    """What broke: one cable of two was out for weeks, and the next one fenced a node."""
    assert look(fake_node) == ""
    here.links = ONE_DOWN
    assert look(fake_node) == "", "it may have just come up"
    assert look(fake_node) == " links-down=1:2"
    asked = here.asked
    assert look(fake_node, after_s=10.0) == " links-down=1:2"
    assert here.asked == asked, "each look is a process"
    here.links = None
    assert look(fake_node) == " links-down=1:2", "what was found out last"
    here.links = BOTH
    assert look(fake_node) == ""


def test_a_node_that_no_link_reaches_is_away(here: Corosync, fake_node: FakeNode) -> None:
    here.links = AWAY
    assert look(fake_node) == look(fake_node) == ""
    assert lost_links(AWAY) == frozenset()


def test_it_is_read_as_it_is_written() -> None:
    lost = lost_links((*ONE_DOWN, Link(0, 4, False), Link(1, 4, True)))
    assert lost == {(1, 2), (0, 4)}
    assert format_links(lost) == "0:4,1:2"
    usage = parse_pool_usage(f"total=1 free=1 links-down={format_links(lost)}")
    assert usage.lost_links == lost
    assert parse_links("") == parse_links("x:1,2:,3") == frozenset()
