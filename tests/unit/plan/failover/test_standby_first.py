# SPDX-License-Identifier: GPL-2.0-or-later
"""When a replica that crashed as Primary waits for its standby's promotion."""

from __future__ import annotations

import pytest

from sanctl.model import promotion_score as scores
from sanctl.plan.failover.standby_first import LONGEST_S, WAITS_S, Peer, Wait, is_late, wait_of

STANDBY = Peer(str(scores.DISCONNECTED), was_kept=False, is_marked=False, is_member=True)
KEPT = STANDBY._replace(score="", was_kept=True)
SERVES = STANDBY._replace(score=str(scores.PRIMARY))


@pytest.mark.parametrize(
    ("peer", "waited_s", "wanted"),
    [
        (STANDBY, 0.0, Wait.GOES_ON),
        (STANDBY._replace(score=str(scores.UP_TO_DATE)), WAITS_S - 1, Wait.GOES_ON),
        (KEPT, LONGEST_S - 1, Wait.GOES_ON),
        (KEPT._replace(score=str(scores.CONSISTENT)), LONGEST_S - 1, Wait.GOES_ON),
        (KEPT._replace(score="-INFINITY"), LONGEST_S - 1, Wait.GOES_ON),
        (STANDBY, WAITS_S, Wait.LATE),
        (KEPT, LONGEST_S, Wait.LATE),
        (KEPT._replace(score=str(scores.CONSISTENT)), LONGEST_S, Wait.LATE),
        (STANDBY._replace(marks_here=True), LONGEST_S - 1, Wait.GOES_ON),
        (STANDBY._replace(marks_here=True), LONGEST_S, Wait.LATE),
        (STANDBY._replace(is_marked=True), 0.0, Wait.ENDS),
        (STANDBY._replace(is_member=False), 0.0, Wait.ENDS),
        (KEPT._replace(is_marked=True), 0.0, Wait.ENDS),
        (KEPT._replace(is_member=False), 0.0, Wait.ENDS),
        (KEPT._replace(score=str(scores.NEW)), 0.0, Wait.ENDS),
        (STANDBY._replace(score=str(scores.CONSISTENT)), 0.0, Wait.ENDS),
        (STANDBY._replace(score="-INFINITY"), 0.0, Wait.ENDS),
        (STANDBY._replace(score=""), 0.0, Wait.ENDS),
        (SERVES, LONGEST_S, Wait.SERVES),
        (SERVES._replace(is_marked=True), 0.0, Wait.SERVES),
    ],
)
def test_it_waits_only_for_a_whole_standby_that_is_a_candidate(
    peer: Peer, waited_s: float, wanted: Wait
) -> None:
    assert wait_of(peer, waited_s=waited_s) is wanted


def test_no_wait_is_without_end() -> None:
    assert [is_late(each) for each in (0.0, LONGEST_S - 1)] == [False, False]
    assert is_late(LONGEST_S)
