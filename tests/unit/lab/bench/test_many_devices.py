# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers of devices as they are typed, the row of a crash, and what counts as a good one."""

from __future__ import annotations

import dataclasses
from typing import Any

import click
import pytest

from sanctl.lab.bench import many_devices
from sanctl.lab.bench.many_devices import Crash

GOOD = Crash(
    pauses_s=(8.0, 9.5, 15.25),
    whole_s=92.4,
    errors=0,
    is_another_fenced=False,
    cib_changes=5,
    cib_cpu_s=3.2,
    problem="",
)


def test_numbers_are_read_in_their_order() -> None:
    assert many_devices._counts("1,15,5") == (1, 15, 5)


@pytest.mark.parametrize("text", ["", "1,", "0", "five", "3,-1"])
def test_what_is_no_number_of_devices_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="1,5,15"):
        many_devices._counts(text)


def test_a_row_has_the_first_the_median_and_the_last_pause() -> None:
    row = many_devices._row(3, GOOD)
    assert row[:5] == ("3", "8.0 s", "9.5 s", "15.2 s", "92 s")
    assert len(row) == len(many_devices._COLUMNS)


@pytest.mark.parametrize(
    "change", [{"errors": 1}, {"is_another_fenced": True}, {"problem": "waited 900 s"}], ids=str
)
def test_a_crash_is_good_only_if_nobody_else_suffered(change: dict[str, Any]) -> None:
    assert GOOD.is_good
    assert not dataclasses.replace(GOOD, **change).is_good
