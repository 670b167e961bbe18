# SPDX-License-Identifier: GPL-2.0-or-later
"""How many replicas are taken down at a time."""

from __future__ import annotations

from sanctl.plan.device import stop_pace
from sanctl.plan.device.stop_pace import AT_A_TIME, SLOW_S, may_begin


def test_a_bounded_number_is_taken_down_at_a_time() -> None:
    assert may_begin([])
    assert may_begin([0.0] * (AT_A_TIME - 1))
    assert not may_begin([0.0] * AT_A_TIME)


def test_those_that_hang_keep_no_other_from_its_turn() -> None:
    assert may_begin([SLOW_S] * 40)
    assert not may_begin([SLOW_S] * 40 + [SLOW_S - 0.1] * AT_A_TIME)


def test_fifty_that_all_hang_have_all_begun_with_most_of_the_time_left() -> None:
    ages: list[float] = []
    now_s = 0.0
    while len(ages) < 50:
        if may_begin([now_s - began_s for began_s in ages]):
            ages.append(now_s)
        else:
            now_s += 0.5
    assert now_s <= stop_pace.ALL_WITHIN_S / 3
