# SPDX-License-Identifier: GPL-2.0-or-later
"""Few verifies by schedule run on a node at a time, and each device has its turn."""

from __future__ import annotations

import pytest

from sanctl.plan.drbd.verify_turns import (
    AT_A_TIME,
    COUNTS_S,
    GATHERS_S,
    SILENT_S,
    Waiting,
    may_begin,
)


def waits(device: str, compared_s: int = 0) -> Waiting:
    return Waiting(device, compared_s, waits_s=GATHERS_S, silent_s=0.0)


def test_one_alone_begins() -> None:
    assert may_begin("vm1", [waits("vm1")], [])
    assert not may_begin("vm1", [], []), "it has not said that it waits"


@pytest.mark.parametrize("running", range(4))
def test_at_most_so_many_run_at_a_time(running: int) -> None:
    assert may_begin("vm1", [waits("vm1")], [9.0] * running) is (running < AT_A_TIME)


def test_one_that_never_ends_keeps_nobody_from_its_turn() -> None:
    assert may_begin("vm1", [waits("vm1")], [COUNTS_S] * 5)
    assert not may_begin("vm1", [waits("vm1")], [COUNTS_S - 1] * AT_A_TIME)


def test_the_device_that_was_compared_longest_ago_is_first() -> None:
    waiting = [waits("a", 30), waits("b", 10), waits("c", 0), waits("d", 20)]
    assert [name for name in "abcd" if may_begin(name, waiting, [])] == ["b", "c"]
    assert [name for name in "abcd" if may_begin(name, waiting, [1.0])] == ["c"]


def test_none_begins_before_the_others_can_have_said_that_they_wait() -> None:
    assert not may_begin("vm1", [waits("vm1")._replace(waits_s=GATHERS_S - 1)], [])


@pytest.mark.parametrize("silent_s", [SILENT_S, -5.0])
def test_who_no_longer_waits_keeps_nobody_from_its_turn(silent_s: float) -> None:
    gone = [waits(f"gone{n}")._replace(silent_s=silent_s) for n in range(AT_A_TIME)]
    assert may_begin("vm1", [*gone, waits("vm1", 99)], [])


def test_fifty_at_one_hour_have_their_turn_in_a_few_nights_whatever_one_night_is_enough_for() -> (
    None
):
    """Twelve in a night: after five nights each was compared, and none twice before the last."""
    compared = {f"vm{n}": 0 for n in range(50)}
    turns: list[str] = []
    for night in range(1, 6):
        waiting = dict(compared)
        for _ in range(12 // AT_A_TIME):
            notes = [waits(name, at) for name, at in waiting.items()]
            begun = [name for name in waiting if may_begin(name, notes, [])]
            assert len(begun) == AT_A_TIME
            turns += begun
            for name in begun:
                del waiting[name]
                compared[name] = night
    assert set(turns[:50]) == set(compared)
