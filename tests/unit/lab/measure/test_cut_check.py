# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies that are a state of one moment, and copies that are none."""

from __future__ import annotations

from sanctl.lab.measure.cut_check import find_missing, find_violations
from sanctl.lab.measure.ledger_writer import Record, RecordKind

INTENT, ACK = RecordKind.INTENT, RecordKind.ACK


def log(*entries: tuple[RecordKind, int, int]) -> list[Record]:
    return [
        Record(kind, 0, 0, block, sequence, at, at)
        for at, (kind, block, sequence) in enumerate(entries)
    ]


RECORDS = log(
    (INTENT, 1, 1), (ACK, 1, 1), (INTENT, 2, 2), (INTENT, 1, 3), (ACK, 2, 2), (ACK, 1, 3),
    (INTENT, 3, 4),
)  # fmt: skip


def test_states_of_one_moment() -> None:
    for held in ({}, {1: 1}, {1: 1, 2: 2}, {1: 3}, {1: 3, 2: 2}, {1: 3, 2: 2, 3: 4}):
        assert find_violations(RECORDS, held) == []


def test_a_write_without_one_that_was_acknowledged_before() -> None:
    assert len(find_violations(RECORDS, {2: 2})) == 1
    assert len(find_violations(RECORDS, {1: 1, 3: 4})) == 2


def test_a_write_that_was_never_issued() -> None:
    assert "never issued" in find_violations(RECORDS, {1: 2})[0]


def test_what_was_acknowledged_before_a_copy_was_asked_for_is_in_it() -> None:
    """The state of an earlier moment is one of the log, too, and is too old."""
    assert find_violations(RECORDS, {}) == []
    assert find_missing(RECORDS, {}, 1) == []
    (found,) = find_missing(RECORDS, {}, 2)
    assert found.startswith("write 1 of block 1 is missing")
    assert find_missing(RECORDS, {1: 1}, 2) == find_missing(RECORDS, {1: 3}, 2) == []
    assert len(find_missing(RECORDS, {1: 1}, 99)) == 2
