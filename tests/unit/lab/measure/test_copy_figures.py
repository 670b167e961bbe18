# SPDX-License-Identifier: GPL-2.0-or-later
"""What copies to a second site send for what has changed, and when that is good."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.lab.measure import copy_figures
from sanctl.lab.measure.copy_figures import CopyRun
from sanctl.lab.measure.ledger_latency import Pause
from sanctl.lab.measure.ledger_writer import Record, RecordKind

MIB = 1 << 20


def pause(seconds: float = 0.05, errors: int = 0) -> Pause:
    return Pause(longest_gap_s=seconds, gap_began_wall_s=0, longest_write_s=0, errors=errors)


def run(at_s: float = 0, *, changed: int = MIB, sent: int = MIB, is_first: bool = False) -> CopyRun:
    return CopyRun(
        is_first=is_first,
        codes=(),
        made_s=at_s,
        proven_s=at_s + 10,
        seconds=12.0,
        changed_bytes=changed,
        ledger_bytes=0,
        sent_bytes=sent,
        line_bytes=sent,
        pause=pause(),
        before_s=0.02,
        faults=(),
    )


def test_good_is_what_sends_little_and_is_sound() -> None:
    good = run(changed=1000, sent=1100)
    assert good.ratio == 1.1 and good.is_good
    assert not run(changed=1000, sent=1101).is_good
    assert not replace(good, faults=("differs",)).is_good
    assert not replace(good, pause=pause(errors=1)).is_good
    # The restore point was not made in time, and was asked for again.
    assert replace(good, codes=("SAN-SNAP-007",)).is_good


def test_where_nothing_has_changed_nothing_may_be_sent() -> None:
    assert run(changed=0, sent=0).is_good
    assert not run(changed=0, sent=4096).is_good


def test_the_newest_copy_is_oldest_just_before_the_next_one_counts() -> None:
    runs = [run(0, is_first=True), run(60), run(140), run(200)]
    assert copy_figures.worst_age_s(runs) == 90
    assert copy_figures.worst_age_s(runs[:1]) == 0
    assert copy_figures.is_good(runs, 45) and not copy_figures.is_good(runs, 44)
    assert not copy_figures.is_good([*runs, run(240, sent=2 * MIB)], 45)


def record(kind: RecordKind, block: int, at_s: float) -> Record:
    return Record(kind, 0, 0, block, 1, 0, int(at_s * 1e9))


def test_a_ledger_has_changed_what_it_began_to_write() -> None:
    records = [
        record(RecordKind.INTENT, 1, 8.9),
        record(RecordKind.INTENT, 2, 9.1),
        record(RecordKind.INTENT, 3, 15),
        record(RecordKind.INTENT, 3, 16),
        record(RecordKind.ACK, 4, 16),
        record(RecordKind.INTENT, 5, 21.1),
    ]
    # A second at either end, for clocks that differ.
    assert copy_figures.most_changed_bytes(records, 10, 20) == 2 * 4096


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ((100, 100, 0, 0, 0, 0), ""),
        ((100, 100, 50, 50, 0, 0), ""),
        ((99, 100, 0, 0, 0, 0), "99 bytes differ, and the host has changed 100"),
        ((101, 100, 0, 0, 0, 0), "101 bytes differ, and the host has changed 100"),
        ((100, 100, 51, 50, 0, 0), "1 bytes differ that no ledger has written"),
        # ssh and TCP, and the connection itself.
        ((100, 100, 0, 0, 100, 256 << 10), ""),
        ((100, 100, 0, 0, 4 * MIB, 5 * MIB), ""),
        ((100, 100, 0, 0, 4 * MIB, 6 * MIB), f"{6 * MIB} bytes were sent, and {4 * MIB} reported"),
    ],
)
def test_figures_that_contradict_each_other_are_faults(figures: tuple[int, ...], text: str) -> None:
    names = ("changed", "written", "ledger", "most_ledger", "sent", "line")
    given = {f"{name}_bytes": value for name, value in zip(names, figures, strict=True)}
    assert copy_figures.find_faults(**given) == ([text] if text else [])


def test_the_first_copy_and_later_ones_have_a_row_each() -> None:
    first = run(0, changed=128 * MIB, sent=128 * MIB, is_first=True)
    later = [run(60), replace(run(120, sent=2 * MIB), codes=("SAN-SNAP-007",), pause=pause(0.2))]
    rows = copy_figures.rows([first, *later])
    assert rows[0] == (
        "the first: 1", "128.00 MiB", "128.00 MiB", "1.000, 1.000", "12.0 s, 12.0 s",
        "50 ms, 50 ms", "20 ms", "0", "0", "0",
    )  # fmt: skip
    assert rows[1] == (
        "later ones: 2", "1.00 MiB", "1.50 MiB", "1.500, 2.000", "12.0 s, 12.0 s",
        "125 ms, 200 ms", "20 ms", "1", "0", "0",
    )  # fmt: skip
    assert len(copy_figures.COLUMNS) == len(rows[0])
    assert [row[0] for row in copy_figures.rows([first])] == ["the first: 1"]


def test_the_judgement_says_which_goal_was_missed() -> None:
    text = copy_figures.judgement([run(0), run(60, sent=2 * MIB)], 35)
    assert text.splitlines() == [
        "sent by changed: 2.000 at worst, goal 1.1: missed",
        "age of the newest copy: 70 s at worst, goal 70 s: held",
    ]
