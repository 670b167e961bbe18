# SPDX-License-Identifier: GPL-2.0-or-later
"""Few starts run at a time; the others wait, and make way for a failover."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.agents import ocf
from sanctl.agents.connections import primary_node
from sanctl.agents.node import start_turn
from sanctl.agents.replica.parts import Device
from sanctl.drivers import quorum_library
from sanctl.errors import CommandError, Problem
from sanctl.parse.corosync import Membership
from sanctl.system import state_files
from tests.fakes.runner import FakeRunner

TURNS = 16
RUNNER = FakeRunner()


def device(name: str) -> Device:
    return Device(name, "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ())


class Time:
    """A clock that a sleep sets on; and what happens at a moment."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.left_s = 200.0
        self.members = [{"n1", "n2", "n3"}]
        self.slept = 0
        self.until_free = -1
        self.held: list[contextlib.ExitStack] = []
        self.active: str | CommandError | None = "n1"
        self.noted_s: float | None = None
        self.asked = 0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept += 1
        if self.slept == self.until_free:
            self.held.pop().close()

    def membership(self, *, within_s: float) -> Membership | None:
        del within_s
        self.asked += 1
        self.noted_s = self.now_s
        names = self.members.pop(0) if len(self.members) > 1 else self.members[0]
        return Membership(is_quorate=True, members=frozenset(names)) if names else None

    def note_age_s(self) -> float | None:
        return None if self.noted_s is None else self.now_s - self.noted_s

    def find(self, *_: object) -> str | None:
        if isinstance(self.active, CommandError):
            raise self.active
        return self.active


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    found = Time()
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(start_turn.time, "monotonic", found.monotonic)  # type: ignore[attr-defined]
    monkeypatch.setattr(start_turn.time, "sleep", found.sleep)  # type: ignore[attr-defined]
    monkeypatch.setattr(ocf, "remaining_s", lambda _default: found.left_s)
    monkeypatch.setattr(quorum_library, "membership", found.membership)
    monkeypatch.setattr(primary_node, "find", found.find)
    monkeypatch.setattr(state_files.StateFile, "age_s", found.note_age_s)
    yield found
    for held in found.held:
        held.close()


def hold_all(clock: Time) -> None:
    for number in range(TURNS):
        held = contextlib.ExitStack()
        held.enter_context(start_turn.taken(RUNNER, device(f"d{number}")))
        clock.held.append(held)
    assert clock.slept == 0, "sixteen had to wait"


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_seventeenth_waits_until_one_has_ended(clock: Time) -> None:
    hold_all(clock)
    clock.until_free = 3
    before = open_files()
    with start_turn.taken(RUNNER, device("late")):
        assert clock.slept == 3
        assert open_files() == before, "the attempts left files open"


def test_a_turn_ends_with_its_start(clock: Time) -> None:
    hold_all(clock)
    for held in clock.held:
        held.close()
    clock.held.clear()
    hold_all(clock)


def test_a_start_that_waits_makes_way_when_a_node_leaves(clock: Time) -> None:
    hold_all(clock)
    clock.members = [{"n1", "n2", "n3"}, {"n1", "n2", "n3"}, {"n1", "n3"}]
    with (
        pytest.raises(CommandError, match=r"SAN-AGENT-017.*n1 serves"),
        start_turn.taken(RUNNER, device("late")),
    ):
        pytest.fail("it began")
    assert clock.now_s < 110.0


@pytest.mark.parametrize(
    "active", ["n2", "", None, CommandError(Problem("SAN-CMD-002", "no answer within 8 s"))]
)
def test_a_start_that_hosts_may_wait_for_goes_on_when_a_node_leaves(
    active: str | CommandError | None, clock: Time
) -> None:
    hold_all(clock)
    clock.active = active
    clock.members = [{"n1", "n2", "n3"}, {"n1", "n3"}]
    with start_turn.taken(RUNNER, device("late")):
        assert 100.0 < clock.now_s < 110.0


def test_a_turn_may_be_given_back_before_the_end(clock: Time) -> None:
    hold_all(clock)
    clock.held[0].close()
    with start_turn.taken(RUNNER, device("first")) as turn:
        turn.close()
        with start_turn.taken(RUNNER, device("second")):
            assert clock.slept == 0


def test_a_start_that_has_its_turn_does_not_ask_for_members(clock: Time) -> None:
    clock.members = []
    with start_turn.taken(RUNNER, device("first")):
        assert clock.slept == 0


def test_members_that_are_not_known_hold_no_start_up_and_end_none(clock: Time) -> None:
    hold_all(clock)
    clock.members = [set()]
    with start_turn.taken(RUNNER, device("late")):
        assert clock.now_s == pytest.approx(145.0, abs=1.0)


def test_it_goes_on_in_time_where_no_turn_ends(clock: Time) -> None:
    hold_all(clock)
    with start_turn.taken(RUNNER, device("late")):
        assert 145.0 <= clock.now_s <= 146.0


def test_no_start_fails_for_want_of_a_lock(clock: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_files, "locked", no_room)
    with start_turn.taken(RUNNER, device("first")):
        assert clock.slept == 0


def test_one_that_waits_asks_corosync_for_all(clock: Time) -> None:
    hold_all(clock)
    with start_turn.taken(RUNNER, device("late")):
        assert 20 <= clock.asked <= 24, "every two seconds"
    asked = clock.asked
    another = state_files.locked(state_files.node_lock("start-members"))
    with another, start_turn.taken(RUNNER, device("later")):
        assert clock.asked == asked, "another is asking"


def test_what_was_seen_long_ago_makes_no_start_give_way(clock: Time) -> None:
    """Another asks, and the note is of a wait an hour ago, when n2 was there."""
    hold_all(clock)
    state_files.of_node("start-members").write("n1 n2 n3")
    clock.noted_s = clock.now_s - 3600.0
    clock.members = [{"n1", "n3"}]
    another = contextlib.ExitStack()
    another.enter_context(state_files.locked(state_files.node_lock("start-members")))
    clock.held.append(another)
    clock.until_free = 2
    with start_turn.taken(RUNNER, device("late")):
        assert clock.now_s >= 145.0
