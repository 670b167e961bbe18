# SPDX-License-Identifier: GPL-2.0-or-later
"""How far apart a timer's moments are, by what systemd-analyze prints."""

from __future__ import annotations

import pytest

from sanctl.rollout.calendar_gap import longest_gap_s

_DAY_S = 86400


def listed(*moments: str, word: str = "Iter. #") -> str:
    """As systemd-analyze prints them."""
    first, *others = moments
    lines = ["  Original form: x", "Normalized form: x", f"    Next elapse: {first} UTC"]
    for number, moment in enumerate(others, 2):
        lines += ["       From now: 2 days left", f"       {word}{number}: {moment} UTC"]
    return "\n".join(lines)


@pytest.mark.parametrize("word", ["Iter. #", "Iteration #"])
def test_the_longest_one_counts(word: str) -> None:
    """Mon..Fri: no backup is late on a Sunday."""
    moments = ("Thu 2026-12-03 02:00:00", "Fri 2026-12-04 02:00:00", "Mon 2026-12-07 02:00:00",
               "Tue 2026-12-08 02:00:00.500000")  # fmt: skip
    assert longest_gap_s(listed(*moments, word=word)) == 3 * _DAY_S


@pytest.mark.parametrize("text", ["", listed("Thu 2026-12-24 02:00:00"), "Next elapse: never"])
def test_an_event_without_two_moments_has_none(text: str) -> None:
    assert longest_gap_s(text) == 0
