# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: how fast a pool fills, from a sample an hour, and the day on which it will be full.

The rate is that of the last 24 hours. Less than six hours say nothing about a day.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import NamedTuple

_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S
_KEPT_S = 2 * _DAY_S
_SHORTEST_S = 6 * _HOUR_S
#: Beyond that a day's rate foretells nothing.
_FURTHEST_DAYS = 365


class UsageSample(NamedTuple):
    """What was in use in a pool at one time."""

    at_s: int
    """Seconds since the epoch."""
    used_bytes: int


def parse_samples(text: str) -> tuple[UsageSample, ...]:
    """Read `AT USED` lines, oldest first; a line that is not one is left out."""
    words = (line.split() for line in text.splitlines())
    return tuple(
        sorted(
            UsageSample(int(pair[0]), int(pair[1]))
            for pair in words
            if len(pair) == 2 and all(word.isascii() and word.isdecimal() for word in pair)
        )
    )


def format_samples(samples: tuple[UsageSample, ...]) -> str:
    """Return samples as `parse_samples` reads them."""
    return "".join(f"{each.at_s} {each.used_bytes}\n" for each in samples)


def add_sample(
    samples: tuple[UsageSample, ...], *, now_s: int, used_bytes: int
) -> tuple[UsageSample, ...]:
    """Return the samples with a new one, where the latest is an hour old; else the same ones.

    Samples of the future are dropped (the clock was put back since), and those of two days ago.
    """
    kept = tuple(each for each in samples if now_s - _KEPT_S <= each.at_s <= now_s)
    if kept and now_s - kept[-1].at_s < _HOUR_S:
        return kept
    return (*kept, UsageSample(now_s, used_bytes))


def daily_growth_bytes(samples: tuple[UsageSample, ...]) -> int | None:
    """Return how much more is in use now than a day before, at the rate of the samples since.

    Returns:
        None where the samples span less than six hours; 0 where the pool does not grow.
    """
    if not samples:
        return None
    latest = samples[-1]
    first = next(each for each in samples if latest.at_s - each.at_s <= _DAY_S)
    span_s = latest.at_s - first.at_s
    if span_s < _SHORTEST_S:
        return None
    return max(0, (latest.used_bytes - first.used_bytes) * _DAY_S // span_s)


def full_on(*, free_bytes: int, daily_growth: int | None, now_s: float) -> date | None:
    """Return the day (UTC) on which a pool will be full at a rate; None: not within a year."""
    if not daily_growth or free_bytes // daily_growth > _FURTHEST_DAYS:
        return None
    return datetime.fromtimestamp(now_s + free_bytes / daily_growth * _DAY_S, tz=UTC).date()
