# SPDX-License-Identifier: GPL-2.0-or-later
"""Pauses and latencies computed from a ledger's log."""

from __future__ import annotations

import pytest

from sanctl.lab.measure.ledger_latency import (
    bytes_written,
    find_pause,
    find_pause_so_far,
    pair_writes,
)
from sanctl.lab.measure.ledger_writer import Record, RecordKind

_WALL_OFFSET_S = 1_000_000.0


def record(kind: RecordKind, sequence: int, at_s: float, block: int = 0) -> Record:
    return Record(
        kind, 0, 0, block, sequence, round(at_s * 1e9), round((at_s + _WALL_OFFSET_S) * 1e9)
    )


def write(sequence: int, at_s: float, took_s: float = 0.01, block: int = 0) -> list[Record]:
    return [
        record(RecordKind.INTENT, sequence, at_s, block),
        record(RecordKind.ACK, sequence, at_s + took_s, block),
    ]


# A write every 0.1 s; the one issued at 2.0 is answered after 6 s; a single short gap later.
LOG = [
    *(each for n in range(20) for each in write(n, n / 10, block=n)),
    *write(20, 2.0, 6.0, block=3),
    *(each for n in range(21, 40) for each in write(n, 6 + n / 10, block=n)),
    *write(40, 12.0),
]


def test_the_pause_is_the_longest_gap_and_says_when_it_began() -> None:
    pause = find_pause(LOG, _WALL_OFFSET_S, _WALL_OFFSET_S + 100)
    assert pause.longest_gap_s == pytest.approx(6.09)
    assert pause.longest_write_s == pytest.approx(6.0)
    assert pause.seconds == pytest.approx(6.09)
    assert pause.gap_began_wall_s == pytest.approx(_WALL_OFFSET_S + 1.91)
    assert pause.ended_wall_s == pytest.approx(_WALL_OFFSET_S + 8.0)
    assert pause.errors == 0


def test_a_pause_outside_the_stretch_does_not_count() -> None:
    late = find_pause(LOG, _WALL_OFFSET_S + 8.5, _WALL_OFFSET_S + 100)
    assert late.longest_gap_s == pytest.approx(2.1)
    early = find_pause(LOG, _WALL_OFFSET_S, _WALL_OFFSET_S + 1.5)
    assert early.longest_gap_s == pytest.approx(0.1)


def test_nothing_acknowledged_is_no_measurement() -> None:
    with pytest.raises(ValueError, match="no write was acknowledged"):
        find_pause(LOG, _WALL_OFFSET_S + 50, _WALL_OFFSET_S + 60)


def test_a_retried_write_counts_from_its_first_attempt() -> None:
    records = [
        record(RecordKind.INTENT, 1, 0.0),
        record(RecordKind.ERROR, 1, 1.0),
        record(RecordKind.INTENT, 1, 1.5),
        record(RecordKind.ACK, 1, 2.0),
        record(RecordKind.INTENT, 2, 2.1),
    ]
    (only,) = pair_writes(records)
    assert only.latency_s == pytest.approx(2.0)
    assert only.attempts == 2
    assert find_pause([*records, *write(3, 3.0)], 0, 2e6).errors == 1


def test_a_block_written_twice_is_copied_once() -> None:
    begin = _WALL_OFFSET_S
    assert bytes_written(write(1, 0, block=5) + write(2, 1, block=5), begin, begin + 9) == 4096
    assert bytes_written(LOG, begin + 7.9, begin + 100) == 4096 * 20


def test_a_pause_that_goes_on_counts_with_its_time_so_far() -> None:
    begin_s, last_s = _WALL_OFFSET_S, _WALL_OFFSET_S + 12.01
    pause = find_pause_so_far(LOG, begin_s, last_s + 300)
    assert pause is not None
    assert pause.longest_gap_s == pytest.approx(300)
    assert pause.gap_began_wall_s == pytest.approx(last_s)
    assert find_pause_so_far(LOG, begin_s, last_s + 1) == find_pause(LOG, begin_s, last_s + 1)
    assert find_pause_so_far(LOG, last_s + 1, last_s + 300) is None
