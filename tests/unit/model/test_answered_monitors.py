# SPDX-License-Identifier: GPL-2.0-or-later
"""What is published of monitors that were answered for, and how it is read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.answered_monitors import AnsweredMonitors, parse_answered, published_word


@pytest.mark.parametrize(
    ("count", "at_least"), [(1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (1000, 512)]
)
def test_the_number_is_rounded_down(count: int, at_least: int) -> None:
    """So twenty in an hour are five publications, not twenty."""
    word = published_word(f"1764150000 {count}", 0.0)
    assert word == f"1764150000:{at_least}"
    assert parse_answered(word) == AnsweredMonitors(1764150000, at_least)


@pytest.mark.parametrize(
    ("note", "age_s", "word"),
    [
        ("1764150000 1", 300.0, "1764150000:1"),
        ("1764150000 1", -86_400.0, "1764150000:1"),
        ("1764150000 1", 300.1, ""),
        ("1764150000 0", 0.0, ""),
        ("1764150000", 0.0, ""),
        ("1764150000 1\n", 0.0, ""),
        ("", 0.0, ""),
    ],
)
def test_a_note_that_is_old_or_none_says_nothing(note: str, age_s: float, word: str) -> None:
    """Old: no monitor runs any more."""
    assert published_word(note, age_s) == word


@given(st.text())
def test_no_word_is_an_error(text: str) -> None:
    found = parse_answered(text)
    if found is not None:
        datetime.fromtimestamp(found.since_s, UTC)


def test_another_word_says_nothing() -> None:
    for word in ("", "1", "1:", ":1", "1:x", f"{'9' * 12}:1"):
        assert parse_answered(word) is None
    latest = parse_answered(f"{'9' * 11}:1")
    assert latest is not None
    datetime.fromtimestamp(latest.since_s, UTC)
