# SPDX-License-Identifier: GPL-2.0-or-later
"""How fast a pool fills, and the day on which it will be full."""

from __future__ import annotations

from datetime import date

import pytest

from sanctl.plan.pool.usage_history import (
    UsageSample,
    add_sample,
    daily_growth_bytes,
    format_samples,
    full_on,
    parse_samples,
)

HOUR, DAY, GIB = 3600, 86400, 1 << 30
NOON = 1_800_000_000


def hourly(count: int, step: int) -> tuple[UsageSample, ...]:
    return tuple(UsageSample(NOON + n * HOUR, n * step) for n in range(count))


def test_samples_are_read_as_they_were_written() -> None:
    samples = hourly(5, GIB)
    assert parse_samples(format_samples(samples)) == samples
    assert parse_samples("") == ()
    assert parse_samples("7 1\nnonsense\n-3 5\n5 2 9\n6 0\n") == ((6, 0), (7, 1))


def test_a_sample_is_added_once_an_hour_and_kept_for_two_days() -> None:
    samples: tuple[UsageSample, ...] = ()
    for minute in range(0, 71 * 60 + 1, 10):
        samples = add_sample(samples, now_s=NOON + minute * 60, used_bytes=minute)
    assert len(samples) == 49
    assert samples[-1].at_s - samples[0].at_s == 2 * DAY


def test_samples_of_the_future_are_dropped() -> None:
    """The clock was a year ahead for a moment."""
    samples = (*hourly(3, GIB), UsageSample(NOON + 365 * DAY, 0))
    assert add_sample(samples, now_s=NOON + 4 * HOUR, used_bytes=9) == (
        *hourly(3, GIB),
        (NOON + 4 * HOUR, 9),
    )


@pytest.mark.parametrize(
    ("samples", "growth"),
    [
        ((), None),
        (hourly(6, GIB), None),
        (hourly(7, GIB), 24 * GIB),
        (hourly(49, GIB), 24 * GIB),
        (hourly(10, 0), 0),
        (tuple(each._replace(used_bytes=9 * GIB - each.used_bytes) for each in hourly(9, 1)), 0),
        # Of the last day only: what was before does not count.
        ((UsageSample(NOON, 0), UsageSample(NOON + DAY, GIB), UsageSample(NOON + 2 * DAY, GIB)), 0),
    ],
    ids=["none", "too short", "six hours", "two days", "even", "shrinks", "last day"],
)
def test_growth(samples: tuple[UsageSample, ...], growth: int | None) -> None:
    assert daily_growth_bytes(samples) == growth


@pytest.mark.parametrize(
    ("free", "growth", "day"),
    [
        (10 * GIB, 5 * GIB, date(2027, 1, 17)),
        (10 * GIB, 10 * GIB, date(2027, 1, 16)),
        (0, GIB, date(2027, 1, 15)),
        (10 * GIB, 0, None),
        (10 * GIB, None, None),
        (1 << 50, 1, None),
    ],
)
def test_the_day_it_is_full(free: int, growth: int | None, day: date | None) -> None:
    assert full_on(free_bytes=free, daily_growth=growth, now_s=NOON) == day
