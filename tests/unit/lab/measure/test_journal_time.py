# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of a journal whose clock was set back: what is older than asked for is left out."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sanctl.lab.measure.journal_time import lines_since


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_what_is_older_is_left_out() -> None:
    old = "Nov 28 05:57:46.465369 n2 pacemaker-fenced[1725]:  notice: Operation 'reboot'"
    new = "Nov 28 06:14:00.000001 n2 pacemaker-fenced[1725]:  notice: Operation 'reboot'"
    same = "Nov 28 06:13:59.500000 n2 kernel: drbd"
    assert lines_since([old, same, new], at("2026-11-28 06:13:59.5")) == [same, new]


@pytest.mark.parametrize("line", ["", "-- No entries --", "Nov 31 05:57:46.465369 n2 kernel: x"])
def test_a_line_without_a_time_stays(line: str) -> None:
    assert lines_since([line], at("2026-11-28 06:14:00")) == [line]


@pytest.mark.parametrize(
    ("line", "since", "stays"),
    [
        ("Dec 31 23:59:59.900000 n1 kernel: x", "2027-01-01 00:00:01", False),
        ("Jan 01 00:00:02.000000 n1 kernel: x", "2026-12-31 23:59:59", True),
        ("Feb 29 00:00:02.000000 n1 kernel: x", "2028-02-28 23:59:59", True),
    ],
)
def test_the_year_is_the_nearest_one(line: str, since: str, stays: bool) -> None:
    assert (lines_since([line], at(since)) == [line]) is stays
