# SPDX-License-Identifier: GPL-2.0-or-later
"""The safety model's named rules: decisions of sanctl, promises of others; each can be broken.

Sanctl's own decisions are not copied: these are the functions that the agents call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sanctl.model.drbd import ResourceState
from sanctl.plan.failover import fence_rules
from sanctl.plan.failover.promotion import promotion_score
from sanctl.safety.world import Node


class MembershipFacts(NamedTuple):
    """The arguments of `fence_rules.peer_membership`, as far as they are values."""

    is_quorate: bool
    is_member: bool
    has_joined: bool
    is_fenced: bool


def _membership(seen: MembershipFacts) -> str:
    return fence_rules.peer_membership(
        is_quorate=seen.is_quorate,
        is_member=seen.is_member,
        has_joined=lambda: seen.has_joined,
        is_fenced=lambda: seen.is_fenced,
    )


def _score(state: ResourceState | None) -> int | None:
    return promotion_score(state, is_new=False)


def _is_known_fenced(node: Node, other: int) -> bool:
    return fence_rules.is_fenced(
        is_down=not node.not_down >> other & 1, is_primary=bool(node.primary >> other & 1)
    )


class Rules(NamedTuple):
    """What sanctl decides, and what it relies on. The defaults are what is shipped.

    Attributes:
        peer_membership: what the handler concludes from quorum, membership and fencing.
        is_known_fenced: whether a node that is no member is known to be fenced, by what the CIB
            says of it.
        is_certain: whether that is enough to mark the peer, and to go on.
        asks_before: the handler checks quorum and membership before it marks.
        asks_after: and again afterwards.
        may_clear: which node may clear its peer's mark.
        clears_own: a standby clears its own mark instead.
        locks: clearing and the handler exclude each other.
        clears_with_quorum: marks are cleared only with quorum.
        marks_targets: the target of a resync is marked before the resync begins.
        outranks: the CIB in which a fenced peer is marked is newer than what the peer wrote alone.
        guards_marking: a Primary's handler marks only while it is Primary; demote waits for that.
        reads_back: the handler goes on only if its mark is still in the CIB when it asks again.
        score: whether a replica is a candidate.
        drbd_refuses: DRBD refuses to promote what is not UpToDate.
        heeds_marks: the cluster promotes no marked replica.
        demotes_first: the cluster promotes only when the other node is known not to be Primary.
        reads_history: of a lost node that its `node_state` calls down the cluster reads the history
            of actions as well, and fences it for what is active there.
        notes_orders: the partition's CIB has an order to promote before it is carried out.
        confirms: a node counts as fenced only when its power switch has confirmed it.
        waits_for_all: with two nodes, one that has started waits until it has seen the other.
        checks_overlap: with two nodes, "fenced" is not enough for a replica that has connected to
            no peer since it was started.
        counts_joined: such a replica counts as connected only once the peer has joined Pacemaker
            since this node was started.
        withholds: such a replica is no candidate, either, while no member is beside it.
        awaits_join: a member of corosync is one for the handlers once it has joined Pacemaker.
        heeds_own: a handler does not begin while its own replica is marked, which a promotion may
            be ordered before.
        unmarks: a Secondary removes its peer's mark where both replicas are marked and in sync.
        unmarks_peer: it is the peer's mark that goes then, not its own.
        freezes: a Primary that loses its peer freezes I/O until the handler has answered.
        stays_frozen: and the handler does not give up after a long wait.
        withdraws: a handler that is not certain any more takes its mark back at once: never, `any`
            mark, or its `own`, which was not there before.
        ties_to_quorate: of two equally new CIBs the one from a partition with quorum wins.
        ties_to_running: and then the one from a node that has not just booted.
        may_begin_resync: whether a resync may begin to a peer that is marked.
        is_device_steady: of two nodes that are alone the quorum device votes for the same one each
            time.
        fences_before_start: the cluster starts a replica only where the other node is a member, or
            has been fenced since this one started.
        marks_diskless: a Primary marks a connected peer that has no disk.
        marks_later: the monitor of the source of a resync marks a target that is not marked.
        marks_own: a Primary without a disk, whose peer has every write, marks its own replica.
        keeps_marks: the source of a resync changes nothing where its peer, a member, is marked.
        promotes_unfenced: whether a partition with quorum promotes before the other node, which is
            no member of it, is fenced: never, at `any` moment, or once that node's I/O is `frozen`,
            as after a lease. Two nodes may be Primary then, and the first invariant is that one
            at most serves.
    """

    peer_membership: Callable[[MembershipFacts], str] = _membership
    is_known_fenced: Callable[[Node, int], bool] = _is_known_fenced
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
    reads_history: bool = True
    notes_orders: bool = True
    confirms: bool = True
    waits_for_all: bool = True
    checks_overlap: bool = True
    counts_joined: bool = True
    withholds: bool = True
    awaits_join: bool = True
    heeds_own: bool = True
    unmarks: bool = True
    unmarks_peer: bool = True
    freezes: bool = True
    stays_frozen: bool = True
    withdraws: str = ""
    ties_to_quorate: bool = True
    ties_to_running: bool = True
    may_begin_resync: Callable[[str], bool] = fence_rules.may_begin_resync
    is_device_steady: bool = True
    fences_before_start: bool = True
    keeps_marks: bool = True
    promotes_unfenced: str = ""
    marks_diskless: bool = True
    marks_own: bool = True
    marks_later: bool = True


#: The rules as shipped.
SHIPPED = Rules()
