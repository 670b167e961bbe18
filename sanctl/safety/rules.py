# SPDX-License-Identifier: GPL-2.0-or-later
"""What the safety model decides by and relies on, each point by its name, so that it can be broken.

What sanctl decides is not copied: these are the functions that the agents call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sanctl.model.drbd import ResourceState
from sanctl.plan.failover import fence_rules
from sanctl.plan.failover.promotion import promotion_score


class MembershipFacts(NamedTuple):
    """The arguments of `fence_rules.peer_membership`, as far as they are values."""

    is_quorate: bool
    is_member: bool
    is_fenced: bool


def _standing(seen: MembershipFacts) -> str:
    return fence_rules.peer_membership(
        is_quorate=seen.is_quorate, is_member=seen.is_member, is_fenced=lambda: seen.is_fenced
    )


def _score(state: ResourceState | None) -> int | None:
    return promotion_score(state, is_new=False)


class Rules(NamedTuple):
    """What is decided, and what is relied on. The defaults are what is shipped.

    Attributes:
        standing: what the handler makes of quorum, membership and fencing.
        is_certain: whether that is enough to mark the peer, and to go on.
        asks_before: the handler asks before it marks.
        asks_after: and again afterwards.
        may_clear: who may clear the peer's mark.
        clears_own: a standby clears its own mark instead.
        locks: clearing and the handler exclude each other.
        clears_with_quorum: marks are cleared only with quorum.
        marks_targets: who is about to be filled by a resync is marked first.
        outranks: the CIB in which a fenced peer is marked is newer than what that wrote when alone.
        guards_marking: a Primary's handler marks only while it is Primary; demote waits for that.
        reads_back: the handler goes on only if its mark is still in the CIB when it asks again.
        score: whether a replica is a candidate.
        drbd_refuses: DRBD refuses to promote what is not UpToDate.
        heeds_marks: the cluster promotes no marked replica.
        demotes_first: the cluster promotes only when the other is known not to be Primary.
        confirms: the cluster takes a node for fenced only when its power switch says so.
        waits_for_all: with two nodes, one that has started waits until it has seen the other.
        meets_first: with two nodes, "fenced" is not enough for a replica that has met no other
            since it was started.
        heeds_own: the handler of a promotion does not begin while its own replica is marked.
        freezes: a Primary that loses its peer lets nothing through until the handler has answered.
        stays_frozen: and the handler does not let go because it has waited long.
        ties_to_quorate: of two equally new CIBs the one from a partition with quorum wins.
    """

    standing: Callable[[MembershipFacts], str] = _standing
    is_certain: Callable[[str], bool] = fence_rules.is_certain
    asks_before: bool = True
    asks_after: bool = True
    may_clear: Callable[[ResourceState | None], bool] = fence_rules.may_clear
    clears_own: bool = False
    locks: bool = True
    clears_with_quorum: bool = True
    marks_targets: bool = True
    outranks: bool = True
    guards_marking: bool = True
    reads_back: bool = True
    score: Callable[[ResourceState | None], int | None] = _score
    drbd_refuses: bool = True
    heeds_marks: bool = True
    demotes_first: bool = True
    confirms: bool = True
    waits_for_all: bool = True
    meets_first: bool = True
    heeds_own: bool = True
    freezes: bool = True
    stays_frozen: bool = True
    ties_to_quorate: bool = True


#: What the code does today.
SHIPPED = Rules()
