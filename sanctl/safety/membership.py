# SPDX-License-Identifier: GPL-2.0-or-later
"""What a node of the safety model knows of its peer, by the fence rules, and what it does by that.

The rules themselves are in sanctl/plan/failover/fence_rules.py and connection_rules.py.
"""

from __future__ import annotations

from sanctl.plan.failover import connection_rules, fence_rules
from sanctl.safety.rules import MembershipFacts, Rules
from sanctl.safety.world import REPLICAS, World, drbd_state


def may_try_promotion(world: World, i: int, rules: Rules) -> bool:
    """Whether the agent publishes a score: none where the handler would have to refuse."""
    node = world.nodes[i]
    return not (rules.checks_overlap and rules.withholds) or connection_rules.may_try_promotion(
        is_primary=False,
        is_never_connected=lambda: _is_never_connected(world, i, rules),
        quorums_intersect=lambda: len(world.nodes) > 2,
        is_beside_member=lambda: bool(node.view >> (1 - i) & 1) and not node.is_joining,
        is_fencing_off=lambda: False,
    )


def _is_never_connected(world: World, i: int, rules: Rules) -> bool:
    """Whether a replica counts as one that has connected to no peer since it was started.

    DRBD 8.4 calls such a replica Consistent.
    """
    state = drbd_state(world.replicas[i])
    return connection_rules.is_never_connected(
        is_told=world.replicas[i].disk != "C",
        is_noted=False,
        has_met=not (rules.counts_joined and world.nodes[i].is_new),
        is_sole_survivor=state is not None and connection_rules.is_sole_survivor(state),
    )


def raises_cib(membership: str, rules: Rules) -> bool:
    """Whether a change that marks a peer of that membership outranks what the peer wrote alone."""
    return rules.outranks and fence_rules.admin_epoch_rise(membership) > 0


def may_clear_beside(world: World, i: int, rules: Rules) -> bool:
    """Whether this node's peer is one whose mark may be cleared: by what corosync says of it."""
    return rules.is_certain(_membership(world, i, rules, has_joined=True))


def is_peer_certain(world: World, i: int, rules: Rules) -> bool:
    """Whether the fence rules say that this node's peer cannot be promoted once it is marked."""
    return rules.is_certain(peer_membership(world, i, rules))


def _membership(world: World, i: int, rules: Rules, *, has_joined: bool) -> str:
    node, peer = world.nodes[i], 1 - i
    seen = MembershipFacts(
        is_quorate=world.is_quorate(i),
        is_member=bool(node.view >> peer & 1),
        has_joined=has_joined,
        is_fenced=rules.is_known_fenced(node, peer),
    )
    return rules.peer_membership(seen)


def peer_membership(world: World, i: int, rules: Rules) -> str:
    """Return what the fence rules say that this node knows of its peer."""
    node = world.nodes[i]
    has_joined = not (rules.awaits_join and node.is_joining)
    membership = _membership(world, i, rules, has_joined=has_joined)
    if rules.checks_overlap and i in REPLICAS:
        membership = connection_rules.apply_quorum_overlap(
            membership,
            is_never_connected=lambda: _is_never_connected(world, i, rules),
            quorums_intersect=len(world.nodes) > 2,
            is_fencing_off=lambda: False,
        )
    return membership


def keeps_mark(world: World, i: int, rules: Rules) -> bool:
    """Whether the source of a resync finds its peer marked, and changes nothing."""
    node, peer = world.nodes[i], 1 - i
    return rules.keeps_marks and bool(node.marks & node.view & 1 << peer)


def is_mark_confirmed(world: World, i: int, rules: Rules) -> bool:
    """Whether a handler that has marked its peer finds the mark in force."""
    membership = peer_membership(world, i, rules)
    if raises_cib(membership, rules) and not world.replicas[i].raises:
        return False  # It was fenced after it had been marked.
    is_certain = not rules.asks_after or rules.is_certain(membership)
    return is_certain and (not rules.reads_back or bool(world.nodes[i].marks >> (1 - i) & 1))
