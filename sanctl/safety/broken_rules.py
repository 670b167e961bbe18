# SPDX-License-Identifier: GPL-2.0-or-later
"""Every broken variant of the safety model, one rule each, and the counterexample expected of it.

A rule that can be broken without a counterexample is not explored, or not needed. All other rules
are kept, so that the counterexample is due to the broken one. Here are those about who freezes, is
promoted and is started; those about marks are in broken_marks.py.
"""

from __future__ import annotations

from sanctl.model.drbd import ResourceState
from sanctl.safety.broken_marks import BROKEN_MARKS
from sanctl.safety.exploration import BrokenRule
from sanctl.safety.rules import SHIPPED, MembershipFacts


def _silence_is_absence(seen: MembershipFacts) -> str:
    if not seen.is_quorate:
        return "unknown"
    return "member" if seen.is_member else "fenced"


def _anybody(state: ResourceState | None) -> int | None:
    return None if state is None else 1


BROKEN_RULES = (
    BrokenRule(
        "no-freeze",
        "A Primary that loses its peer freezes until its handler has answered.",
        SHIPPED._replace(freezes=False),
        nodes=3,
        faults=1,
        finds="3: a serves alone",
        steps=2,
    ),
    BrokenRule(
        "gives-up",
        "The handler of a frozen Primary does not give up after a long wait.",
        SHIPPED._replace(stays_frozen=False),
        nodes=3,
        faults=1,
        finds="3: a serves alone",
        steps=3,
    ),
    BrokenRule(
        "no-quorum-asked",
        "Without quorum nothing is certain, neither before marking nor after.",
        SHIPPED._replace(asks_before=False, asks_after=False),
        nodes=3,
        faults=1,
        finds="3: a serves alone",
        steps=5,
    ),
    BrokenRule(
        "not-asked-after",
        "The handler asks again after marking: quorum may have been lost in between.",
        SHIPPED._replace(asks_after=False),
        nodes=3,
        faults=1,
        finds="3: a serves alone",
        steps=5,
    ),
    BrokenRule(
        "silence-is-absence",
        "A peer that is no member is unknown until it is known to be fenced.",
        SHIPPED._replace(peer_membership=_silence_is_absence),
        nodes=2,
        faults=1,
        finds="4: the replicas have diverged",
        steps=14,
        begins=(
            "a loses all networks",
            "corosync forms b",
            "DRBD on a notices that the link is gone",
        ),
    ),
    BrokenRule(
        "fencing-assumed",
        "A node counts as fenced only when its power switch has said so.",
        SHIPPED._replace(confirms=False),
        nodes=2,
        faults=1,
        finds="1: both nodes are Primary",
        steps=9,
    ),
    BrokenRule(
        "promotes-outdated",
        "No Outdated or Inconsistent replica is promoted (promotion score, and DRBD itself).",
        SHIPPED._replace(score=_anybody, drbd_refuses=False),
        nodes=3,
        faults=0,
        finds="4: the replicas have diverged",
        steps=8,
    ),
    BrokenRule(
        "no-wait-for-all",
        "With two nodes, one that has started waits until it has seen the other.",
        SHIPPED._replace(waits_for_all=False, checks_overlap=False),
        nodes=2,
        faults=1,
        finds="1: both nodes are Primary",
        steps=13,
        begins=(
            "a loses all networks",
            "DRBD on a notices that the link is gone",
        ),
    ),
    BrokenRule(
        "untried-trusted",
        "With two nodes, a replica that has connected to no peer since it was started is not "
        "promoted because the peer is fenced.",
        SHIPPED._replace(checks_overlap=False),
        nodes=2,
        faults=2,
        finds="1: both nodes are Primary",
        steps=14,
        begins=(
            "b loses power",
            "corosync forms a",
            "a fences b",
            "DRBD on a notices that the link is gone",
            "the handler of a asks: certain",
            "the handler of a marks b as fenced",
        ),
    ),
    BrokenRule(
        "untried-trusted-device",
        "With a quorum device, which has a vote and no CIB, it is not promoted for that either.",
        SHIPPED._replace(checks_overlap=False),
        nodes=2,
        faults=2,
        finds="1: both nodes are Primary",
        steps=15,
        begins=(
            "b loses power",
            "corosync forms a",
            "the quorum device votes for a",
            "a loses all networks",
            "a fences b",
            "b boots",
            "the quorum device votes for b",
        ),
        has_device=True,
    ),
    BrokenRule(
        "unjoined-trusted",
        "Nor where it has connected to a peer that has not joined Pacemaker since this node "
        "booted: neither of the two is fenced for the other.",
        SHIPPED._replace(counts_joined=False),
        nodes=2,
        faults=3,
        finds="1: both nodes are Primary",
        steps=18,
        begins=(
            "b loses power",
            "corosync forms a",
            "a fences b",
            "DRBD on a notices that the link is gone",
            "b boots",
            "corosync alone forms a+b",
            "the heartbeats of b are cut",
            "corosync forms a",
            "corosync forms b",
            "the replica on b starts",
        ),
    ),
    BrokenRule(
        "candidate-alone",
        "Nor is such a replica a candidate without a member beside it: the order may be older than "
        "the moment at which the node that serves joins.",
        SHIPPED._replace(withholds=False),
        nodes=2,
        faults=1,
        finds="1: both nodes are Primary",
        steps=10,
    ),
    BrokenRule(
        "unjoined-member",
        "A member of Corosync is none for the handlers before it has joined Pacemaker: its CIB may "
        "outrank this one.",
        SHIPPED._replace(awaits_join=False),
        nodes=2,
        faults=2,
        finds="3: b serves alone",
        steps=23,
        begins=(
            "b loses power",
            "corosync forms a",
            "a fences b",
            "DRBD on a notices that the link is gone",
            "b boots",
            "the handler of a asks: certain",
            "corosync forms a+b",
            "the heartbeats of a are cut",
            "the handler of a marks b as fenced",
        ),
    ),
    BrokenRule(
        "stale-roles",
        "The cluster promotes only when it knows the other demoted or fenced, by no stale CIB.",
        SHIPPED._replace(demotes_first=False),
        nodes=2,
        faults=1,
        finds="1: both nodes are Primary",
        steps=7,
    ),
    BrokenRule(
        "promotes-first",
        "No replica is promoted before the node that served is fenced, even with quorum and that "
        "node outside of it: it serves reads until it notices.",
        SHIPPED._replace(promotes_unfenced="any", peer_membership=_silence_is_absence),
        nodes=3,
        faults=1,
        finds="1: both nodes serve",
        steps=8,
    ),
    BrokenRule(
        "promotes-after-lease",
        "Nor once that node has noticed and is frozen, as after a lease: what is frozen may go on.",
        SHIPPED._replace(promotes_unfenced="frozen", peer_membership=_silence_is_absence),
        nodes=3,
        faults=1,
        finds="1: both nodes serve",
        steps=13,
    ),
    BrokenRule(
        "orders-first",
        "Nor is its promotion ordered then, for the handler to wait for the fencing: the node may "
        "be back, and a member is certain enough.",
        SHIPPED._replace(promotes_unfenced="any"),
        nodes=3,
        faults=1,
        finds="1: both nodes serve",
        steps=10,
    ),
    BrokenRule(
        "starts-unfenced",
        "A replica is started only where the other node is a member, or was fenced since this one "
        "was started. Here a connection counts before the peer has joined.",
        SHIPPED._replace(fences_before_start=False, counts_joined=False),
        nodes=2,
        has_device=True,
        faults=2,
        finds="4: the replicas have diverged",
        steps=24,
        begins=(
            "a loses power",
            "corosync forms b",
            "the quorum device votes for b",
            "b fences a",
            "a boots",
            "the quorum device votes for a",
            "the replica on a starts",
            "DRBD on b notices that the link is gone",
            "DRBD connects",
            "a loses all networks",
            "the quorum device votes for b",
            "DRBD on a notices that the link is gone",
            "the cluster orders the promotion of b",
            "DRBD on b notices that the link is gone",
            "DRBD on b calls the handler",
            "the handler of b asks: certain",
            "the handler of b marks a as fenced",
        ),
    ),
    BrokenRule(
        "history-ignored",
        "A lost node is fenced for the history of its actions, and known to be only once that is "
        "deleted, whatever its `node_state` says.",
        SHIPPED._replace(
            reads_history=False,
            is_known_fenced=lambda node, other: not node.not_down >> other & 1,
        ),
        nodes=3,
        faults=1,
        finds="1: both nodes are Primary",
        steps=8,
    ),
    *BROKEN_MARKS,
)
