# SPDX-License-Identifier: GPL-2.0-or-later
"""How long a failover to a second site and the way home took, and when that is good."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.lab.measure import site_figures
from sanctl.lab.measure.ledger_latency import Pause
from sanctl.lab.measure.ledger_writer import Record, RecordKind
from sanctl.lab.measure.site_figures import Return, SiteRound, Stage

MIB = 1 << 20

GOOD = SiteRound(
    failover_s=60.0,
    failover_stages=(Stage("restore", 58.0), Stage("login", 2.0)),
    turn_s=10.0,
    turn_stages=(Stage("failback", 10.0),),
    running_s=20.0,
    running_pause=Pause(longest_gap_s=0.2, gap_began_wall_s=0, longest_write_s=0, errors=0),
    running=Return(3 * MIB, 3 * MIB),
    last=Return(MIB, MIB // 2),
    codes=("SAN-REST-001",),
    acknowledged=900,
    lost=0,
    errors=0,
    faults=(),
)


def record(kind: RecordKind, at_s: float) -> Record:
    return Record(kind, 0, 0, 1, 1, int(at_s * 1e9), int((1000 + at_s) * 1e9))


def acks(*at_s: float) -> list[Record]:
    return [record(RecordKind.ACK, each) for each in at_s]


def test_good_is_what_is_sound_and_holds_each_goal() -> None:
    assert GOOD.is_good and GOOD.is_sound and GOOD.ratio == 3.5 / 4
    assert not replace(GOOD, failover_s=60.1).is_good
    assert not replace(GOOD, turn_s=10.1).is_good
    assert not replace(GOOD, last=Return(MIB, 2 * MIB)).is_good
    assert replace(GOOD, turn_s=99).is_sound
    for unsound in (
        replace(GOOD, faults=("differs",)),
        replace(GOOD, lost=1),
        replace(GOOD, errors=1),
    ):
        assert not unsound.is_sound and not unsound.is_good


def test_rounds_are_good_if_there_are_some_and_each_is() -> None:
    assert site_figures.is_good([GOOD, GOOD])
    assert not site_figures.is_good([GOOD, replace(GOOD, lost=1)])
    assert not site_figures.is_good([])


def test_where_nothing_differs_nothing_may_come() -> None:
    assert replace(GOOD, running=Return(0, 0), last=Return(0, 0)).ratio == 0
    assert replace(GOOD, running=Return(0, 4096), last=Return(0, 0)).ratio == 4096


def test_a_turn_is_from_the_last_answer_there_to_the_first_one_at_home() -> None:
    there = [*acks(2, 9, 8), record(RecordKind.INTENT, 11)]
    home = [record(RecordKind.INTENT, 14), *acks(16, 15)]
    assert site_figures.turn_s(there, home) == 6
    assert site_figures.last_answer(there).wall_ns == 1009 * 10**9
    assert site_figures.first_answer(home).wall_ns == 1015 * 10**9


def test_without_an_answer_nothing_is_measured() -> None:
    unanswered = [record(RecordKind.INTENT, 1), record(RecordKind.ERROR, 2)]
    for there, home in ((unanswered, acks(1)), (acks(1), unanswered), ([], acks(1))):
        with pytest.raises(ValueError, match="no write was acknowledged"):
            site_figures.turn_s(there, home)


def test_failed_requests_of_all_ledgers_count() -> None:
    failed = record(RecordKind.ERROR, 1)
    assert site_figures.count_errors([acks(1), [failed], [failed, *acks(2), failed]]) == 3
    assert site_figures.count_errors([acks(1), []]) == 0


def test_stages_are_between_moments() -> None:
    found = site_figures.stages(("one", "two"), (10, 12, 15))
    assert found == (Stage("one", 2), Stage("two", 3))
    # The host's clock is behind by a little.
    assert site_figures.stages(("one",), (10, 9.9)) == (Stage("one", 0),)
    with pytest.raises(ValueError, match="shorter"):
        site_figures.stages(("one", "two"), (10, 12))


def test_what_came_is_what_the_node_says_of_that_copy() -> None:
    journal = (
        "restore vm1: holds copy vm1-dr.4f2a81c0@to-far-1 at site far, digest ab; 10 bytes came\n"
        "restore vm1: restored from copy vm1-dr.4f2a81c0@to-far-1 at site far: 1 KiB differed\n"
        "restore vm1: holds copy vm1-dr.4f2a81c0@to-far-2 at site far, digest cd; 20 bytes came\n"
        "restore vm1: holds copy vm1-dr.4f2a81c0@to-far-2 at site far, digest cd; 25 bytes came\n"
    )
    assert site_figures.came_bytes(journal, "to-far-1") == 10
    assert site_figures.came_bytes(journal, "to-far-2") == 25
    assert site_figures.came_bytes(journal, "to-far-3") is None
    assert site_figures.came_bytes("", "to-far-1") is None


@pytest.mark.parametrize(
    ("digests", "made", "home", "fault"),
    [
        (("a", "a"), 0, 0, ""),
        (("a", "b"), 0, 0, "the copy at the site differs from its restore point"),
        ((), 0, 0, "the copy at the site differs from its restore point"),
        (("a",), 4096, 0, "the device made of the copy differs from it in 4096 bytes"),
        (("a",), 0, 8192, "the device at home differs from what was there in 8192 bytes"),
    ],
)
def test_what_is_not_the_same_is_a_fault(
    digests: tuple[str, ...], made: int, home: int, fault: str
) -> None:
    found = site_figures.find_faults(digests=digests, made_bytes=made, home_bytes=home)
    assert found == ([fault] if fault else [])


def test_each_round_has_a_row() -> None:
    rows = site_figures.rows([GOOD, replace(GOOD, lost=2, faults=("differs",), errors=3)])
    assert rows[0] == (
        "1", "60.0 s", "restore 58.0, login 2.0", "10.0 s", "failback 10.0", "3.00 + 1.00 MiB",
        "3.00 + 0.50 MiB", "0.875", "200 ms", "0", "0", "0",
    )  # fmt: skip
    assert (rows[1][0], rows[1][-3:]) == ("2", ("2", "3", "1"))
    assert len(site_figures.COLUMNS) == len(rows[0])


def test_the_judgement_says_which_goal_was_missed() -> None:
    slow = replace(GOOD, failover_s=70.0, turn_s=30.0, last=Return(MIB, 3 * MIB))
    assert site_figures.judgement([GOOD, GOOD, slow]).splitlines() == [
        "failover to a chosen point: 60.0 s in the median, 70.0 s at worst, goal 60 s: missed",
        "pause while the roles turn: 10.0 s in the median, 30.0 s at worst, goal 10 s: missed",
        "came home by differed: 1.500 at worst, goal 1.1: missed",
    ]
    assert site_figures.judgement([GOOD]).count(": held") == 3
