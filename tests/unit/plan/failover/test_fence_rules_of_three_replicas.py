# SPDX-License-Identifier: GPL-2.0-or-later
"""What is certain about one peer of several, to the last branch."""

from __future__ import annotations

import itertools

import pytest

from sanctl.model.drbd import uses_quorum
from sanctl.plan.failover.fence_rules import apply_drbd_quorum, is_certain

_MEMBERSHIPS = ("member", "fenced", "unknown", "alone")
_ALL = list(
    itertools.product(_MEMBERSHIPS, range(1, 5), (False, True), (None, False, True), (False, True))
)


def test_quorum_is_used_with_three_and_more_replicas() -> None:
    assert [uses_quorum(replicas) for replicas in range(1, 5)] == [False, False, True, True]


@pytest.mark.parametrize("membership", ["member", "fenced"])
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
        # No majority: a Primary goes on, a standby must not be promoted.
        ((3, True, False, True), None),
        ((3, False, False, True), "unknown"),
        ((4, False, None, True), "unknown"),
        # And not where a later quorum would know nothing of the marks.
        ((3, True, False, False), "unknown"),
    ],
)
def test_membership_with_several_replicas(
    membership: str, seen: tuple[int, bool, bool | None, bool], expected: str | None
) -> None:
    replicas, is_primary, has_quorum, quorums_intersect = seen
    told = apply_drbd_quorum(
        membership,
        replicas=replicas,
        is_primary=is_primary,
        has_quorum=has_quorum,
        quorums_intersect=quorums_intersect,
    )
    assert told == (expected or membership)


def test_drbd_quorum_never_makes_a_peer_certain() -> None:
    for membership, replicas, is_primary, has_quorum, quorums_intersect in _ALL:
        told = apply_drbd_quorum(
            membership,
            replicas=replicas,
            is_primary=is_primary,
            has_quorum=has_quorum,
            quorums_intersect=quorums_intersect,
        )
        assert told == membership or not is_certain(told)


def test_no_replica_is_promoted_without_a_majority() -> None:
    for membership, replicas, _, has_quorum, quorums_intersect in _ALL:
        if replicas > 2 and not has_quorum:
            told = apply_drbd_quorum(
                membership,
                replicas=replicas,
                is_primary=False,
                has_quorum=has_quorum,
                quorums_intersect=quorums_intersect,
            )
            assert not is_certain(told)
