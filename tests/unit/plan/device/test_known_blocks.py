# SPDX-License-Identifier: GPL-2.0-or-later
"""When a look at a data file is still true. How it decides: tests/unit/agents/points."""

from __future__ import annotations

import pytest

from sanctl.plan.device.known_blocks import (
    EVERY_S,
    Look,
    SharingFile,
    at_least,
    is_known,
    sharers,
)

LOOK = Look(own=4, shared=3, reserved=2, allocated=10, seen_s=100.0, between="a")
FILES = ["vm1.0.data", "vm2.0.data"]
POINT = SharingFile("vm1.0", "t1", 8)


@pytest.mark.parametrize(
    ("look", "between", "now_s", "expected"),
    [
        (LOOK, "a", 100.0, True),
        (LOOK, "a", 99.9 + EVERY_S, True),
        (LOOK, "a", 100.0 + EVERY_S, False),
        (LOOK, "a", 99.0, False),
        (LOOK, "b", 100.0, False),
        (None, "a", 100.0, False),
    ],
)
def test_a_look_is_true_for_a_while(
    look: Look | None, between: str, now_s: float, expected: bool
) -> None:
    assert is_known(look, between, now_s) is expected


@pytest.mark.parametrize("line", ["", "vm1 1 2 3", "vm1 a b c d e f", "vm1 1 2 3 4 x a"])
def test_what_cannot_be_read_is_not_known(line: str) -> None:
    assert Look.parse(line) is None
    assert Look.parse(LOOK.line("vm1.0.data")) == ("vm1.0.data", LOOK)


def test_another_restore_point_of_a_device_concerns_that_device() -> None:
    before, after = sharers([POINT], [], FILES), sharers([POINT, POINT], [], FILES)
    assert before["vm1.0.data"] != after["vm1.0.data"]
    assert before["vm2.0.data"] == after["vm2.0.data"]
    being_made = sharers([POINT._replace(state=0)], [], FILES)
    assert being_made["vm1.0.data"] != before["vm1.0.data"]


def test_among_clones_a_device_that_goes_concerns_all() -> None:
    both, one = sharers([], ["vm1.0.origin"], FILES), sharers([], ["vm1.0.origin"], FILES[:1])
    assert both["vm1.0.data"] != one["vm1.0.data"]
    assert sharers([], [], FILES)["vm1.0.data"] == sharers([], [], FILES[:1])["vm1.0.data"]


def test_what_was_unmapped_is_needed_again() -> None:
    assert at_least(LOOK, size=20, allocated=10) == (20, 4, 2)
    assert at_least(LOOK, size=20, allocated=7) == (20, 1, 2)


def test_the_growth_of_the_extent_map_is_not_taken_for_data() -> None:
    assert at_least(LOOK, size=2560, allocated=20) == (2560, 4, 2)
