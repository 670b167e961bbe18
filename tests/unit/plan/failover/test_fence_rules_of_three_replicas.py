# SPDX-License-Identifier: GPL-2.0-or-later
"""What is certain about one peer of several, to the last branch."""

from __future__ import annotations

import itertools

import pytest

from sanctl.model.drbd import uses_quorum
from sanctl.plan.failover.fence_rules import apply_drbd_quorum, is_certain

_STANDINGS = ("member", "fenced", "unknown", "alone")
_ALL = list(
    itertools.product(_STANDINGS, range(1, 5), (False, True), (None, False, True), (False, True))
)


def test_two_replicas_have_no_majority_that_one_of_them_is_missing_in() -> None:
    assert [uses_quorum(replicas) for replicas in range(1, 5)] == [False, False, True, True]


@pytest.mark.parametrize("standing", ["member", "fenced"])
@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        # With two replicas the cluster's word counts, whatever DRBD says.
        ((2, False, True, True), None),
        ((2, False, False, True), None),
        ((2, True, None, False), None),
        # A majority of the replicas is here.
        ((3, False, True, True), None),
        ((4, True, True, False), None),
        # It is not: who serves goes on, who does not has to be told by the replicas themselves.
        ((3, True, False, True), None),
        ((3, False, False, True), "unknown"),
        ((4, False, None, True), "unknown"),
        # And not where a later quorum would know nothing of the marks.
        ((3, True, False, False), "unknown"),
    ],
)
def test_several_replicas(
    standing: str, seen: tuple[int, bool, bool | None, bool], expected: str | None
) -> None:
    replicas, is_primary, has_quorum, quorums_intersect = seen
    told = apply_drbd_quorum(
        standing,
        replicas=replicas,
        is_primary=is_primary,
        has_quorum=has_quorum,
        quorums_intersect=quorums_intersect,
    )
    assert told == (expected or standing)


def test_nothing_becomes_certain_by_it() -> None:
    for standing, replicas, is_primary, has_quorum, quorums_intersect in _ALL:
        told = apply_drbd_quorum(
            standing,
            replicas=replicas,
            is_primary=is_primary,
            has_quorum=has_quorum,
            quorums_intersect=quorums_intersect,
        )
        assert told == standing or not is_certain(told)


def test_nobody_is_promoted_without_a_majority_of_several_replicas() -> None:
    for standing, replicas, _, has_quorum, quorums_intersect in _ALL:
        if replicas > 2 and not has_quorum:
            told = apply_drbd_quorum(
                standing,
                replicas=replicas,
                is_primary=False,
                has_quorum=has_quorum,
                quorums_intersect=quorums_intersect,
            )
            assert not is_certain(told)
