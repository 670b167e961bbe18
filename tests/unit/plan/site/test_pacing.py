# SPDX-License-Identifier: GPL-2.0-or-later
"""The limit of a site's rate: held over any time, without a burst at the begin."""

from __future__ import annotations

import itertools
import random

import pytest

from sanctl.plan.site.pacing import BURST_S, after, begin, left_s, piece_bytes

RATE = 1000


def test_what_was_sent_has_to_be_paid_for() -> None:
    pace, pause_s = after(begin(RATE, 10.0), 500, 10.0)
    assert pause_s == 0.5
    pace, pause_s = after(pace, 500, 10.5)
    assert pause_s == 0.5
    # Sent although the pause was not over: the debts add up.
    pace, pause_s = after(pace, 1000, 10.75)
    assert pause_s == 1.25
    assert after(pace, 0, 12.0)[1] == 0.0


def test_a_moment_without_use_allows_one_burst() -> None:
    pace, pause_s = after(begin(RATE, 0.0), int(RATE * BURST_S), 3600.0)
    assert pause_s == 0.0
    assert after(pace, 1, 3600.0)[1] == 1 / RATE


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    pace, _ = after(begin(RATE, 10.0), 100, 10.0)
    assert after(pace, 0, 10.0)[1] == after(pace, 0, 9.0)[1] == 0.1


@pytest.mark.parametrize("seed", range(20))
def test_no_span_of_time_has_more_than_the_rate_and_a_burst(seed: int) -> None:
    """Whatever the sizes, and whatever a sender does between two of them."""
    rnd = random.Random(seed)
    now_s, largest = 0.0, piece_bytes(RATE)
    pace = begin(RATE, now_s)
    sent: list[tuple[float, int]] = []
    for _ in range(60):
        now_s += rnd.choice((0.0, 0.01, rnd.random() * 3))
        size = rnd.randint(1, largest)
        sent.append((now_s, size))
        pace, pause_s = after(pace, size, now_s)
        now_s += pause_s
    totals = [0, *itertools.accumulate(size for _, size in sent)]
    for first, last in itertools.combinations(range(len(sent)), 2):
        span_s = sent[last][0] - sent[first][0]
        within = totals[last + 1] - totals[first]
        assert within <= RATE * (span_s + BURST_S) + largest + 1e-6


@pytest.mark.parametrize(
    ("rate", "wanted"),
    [(16 << 10, 4096), (8 << 20, 1 << 20), (1 << 20, 1 << 17), (4 << 30, 1 << 20)],
)
def test_pieces(rate: int, wanted: int) -> None:
    assert piece_bytes(rate) == wanted


def test_the_time_left_is_rounded_upwards() -> None:
    assert (left_s(0, RATE), left_s(1, RATE), left_s(2000, RATE)) == (0, 1, 2)
