# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl bench snapshot` takes for numbers of extents, calls good, and prints."""

from __future__ import annotations

from dataclasses import replace

import click
import pytest

from sanctl.lab.bench import point_pauses
from sanctl.lab.bench.point_pauses import PointTrial
from sanctl.lab.measure.ledger_latency import Pause


def pause(seconds: float, errors: int = 0) -> Pause:
    return Pause(longest_gap_s=seconds, gap_began_wall_s=0, longest_write_s=0, errors=errors)


def trial(seconds: float = 0.05, code: str = "", extents: int = 1000) -> PointTrial:
    return PointTrial(
        goal_extents=1000,
        extents=extents,
        code=code,
        hold_s=0 if code else 0.03,
        pause=pause(seconds),
        before_s=0.02,
        seconds=2.0,
        faults=(),
    )


def test_numbers_of_extents_rise() -> None:
    assert point_pauses.parse_counts("1000,4000") == (1000, 4000)
    for text in ("", "0", "10,", "-1", "4000,1000", "10,10", "1e3", "²"):
        with pytest.raises(click.BadParameter):
            point_pauses.parse_counts(text)


def test_good_is_short_in_the_median_and_at_worst() -> None:
    assert point_pauses.is_good([trial(0.1), trial(0.1), trial(0.5)])
    assert not point_pauses.is_good([trial(0.1), trial(0.1), trial(0.501)])
    assert not point_pauses.is_good([trial(0.09), trial(0.101), trial(0.2)])


def test_one_that_was_not_made_or_is_not_sound_is_not_good() -> None:
    good = trial()
    assert not point_pauses.is_good([good, trial(code="SAN-SNAP-002")])
    assert not point_pauses.is_good([good, replace(good, faults=("differs",))])
    assert not point_pauses.is_good([good, replace(good, pause=pause(0.05, errors=1))])


def test_the_row_of_restore_points() -> None:
    series = [trial(0.05, extents=990), trial(0.2), trial(0.4, code="SAN-SNAP-007")]
    assert point_pauses.summary_row(series) == (
        "990-1000",
        "2 of 3 SAN-SNAP-007",
        "30 ms, 30 ms",
        "200 ms, 400 ms",
        "20 ms, 20 ms",
        "0",
        "0",
        "2.0 s",
    )
    assert point_pauses.summary_row([trial(code="SAN-SNAP-002")])[:3] == (
        "1000",
        "0 of 1 SAN-SNAP-002",
        "-",
    )
