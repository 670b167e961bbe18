# SPDX-License-Identifier: GPL-2.0-or-later
"""Who wins when scores, preference and the penalty for an unreached node are added up."""

from __future__ import annotations

import itertools

import pytest

from sanctl.model.promotion_score import (
    CONSISTENT,
    DISCONNECTED,
    FOLLOW,
    NEW,
    PREFERENCE,
    PRIMARY,
    UNREACHED_PENALTY,
    UP_TO_DATE,
)


def _sum(score: int, *, reached: bool, preferred: bool = False) -> int:
    return score - (0 if reached else UNREACHED_PENALTY) + (PREFERENCE if preferred else 0)


@pytest.mark.parametrize("preferred", ["primary", "standby", "neither"])
def test_a_device_leaves_a_node_that_hosts_cannot_reach(preferred: str) -> None:
    here = _sum(PRIMARY, reached=False, preferred=preferred == "primary")
    there = _sum(UP_TO_DATE, reached=True, preferred=preferred == "standby")
    assert there > here


@pytest.mark.parametrize("preferred", ["primary", "standby", "neither"])
@pytest.mark.parametrize("both", [True, False], ids=["both-reached", "none-reached"])
def test_it_stays_where_it_is_otherwise(preferred: str, both: bool) -> None:
    """Also after it has moved and the cable is back: no preference pulls it."""
    here = _sum(PRIMARY, reached=both, preferred=preferred == "primary")
    there = _sum(UP_TO_DATE, reached=both, preferred=preferred == "standby")
    assert here > there


@pytest.mark.parametrize("preferred", ["primary", "standby", "neither"])
@pytest.mark.parametrize("both", [True, False], ids=["both-reached", "none-reached"])
def test_it_follows_its_guest_to_the_same_data(preferred: str, both: bool) -> None:
    here = _sum(PRIMARY, reached=both, preferred=preferred == "primary")
    there = _sum(UP_TO_DATE, reached=both, preferred=preferred == "standby") + FOLLOW
    assert there > here


@pytest.mark.parametrize("score", [DISCONNECTED, CONSISTENT, NEW])
def test_it_never_follows_its_guest_to_a_replica_that_may_be_behind(score: int) -> None:
    there = _sum(score + 1, reached=True, preferred=True) + FOLLOW
    assert _sum(PRIMARY, reached=False) > there


def test_no_guest_outweighs_better_data() -> None:
    for good, poor in itertools.pairwise((UP_TO_DATE, DISCONNECTED, CONSISTENT)):
        assert _sum(good, reached=False) > _sum(poor, reached=True, preferred=True) + FOLLOW


@pytest.mark.parametrize("score", [DISCONNECTED, CONSISTENT, NEW])
def test_it_never_leaves_for_a_replica_that_may_be_behind(score: int) -> None:
    assert _sum(PRIMARY, reached=False) > _sum(score + 1, reached=True, preferred=True)


def test_the_only_candidate_serves_whether_it_is_reached_or_not() -> None:
    for score in (PRIMARY, UP_TO_DATE, DISCONNECTED, CONSISTENT, NEW):
        assert _sum(score, reached=False) > 0


def test_better_data_outweighs_everything_else() -> None:
    for good, poor in itertools.pairwise((DISCONNECTED, CONSISTENT)):
        assert _sum(good, reached=False) > _sum(poor, reached=True, preferred=True)
