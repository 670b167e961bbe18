# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of what a replica's connection proves, where two quorums may have no node in common.

With two nodes, or with a quorum device, a mark of this replica may be in no CIB that this partition
has: it was off while its peer served. So one that was never connected is not promoted because its
peer is fenced (docs/adr/0011). Pure functions, called by the agents (sanctl/agents/fencing) and the
safety model (sanctl/safety/membership.py).
"""

from __future__ import annotations

from collections.abc import Callable

from sanctl.model.drbd import ResourceState, uses_quorum


def is_never_connected(
    *, is_told: bool, is_noted: bool, has_met: bool, is_sole_survivor: bool
) -> bool:
    """Whether a replica counts as one that has connected to no peer since it was started.

    A replica that was connected, in sync, may be promoted once its peer is fenced. Where its node
    has booted and seen the peer for a moment alone, neither node has to be fenced for the other:
    each is down by the other's CIB. DRBD may connect all the same, by its own network, and both
    replicas would be promoted when that network breaks. So a connection counts from the moment on
    at which the peer has joined Pacemaker: from then on it is fenced before it is taken for gone.

    Args:
        is_told: the replica has been connected, whoever the peer was to Pacemaker: DRBD 8.4 says so
            itself, and of DRBD 9 a note does, for the present start of Pacemaker.
        is_noted: a note says that the connection counts, for the present start of Pacemaker. A
            release before this rule has written it at each connection: replicas that were up then
            need not be restarted.
        has_met: the peer has joined Pacemaker since its present start here.
        is_sole_survivor: see the function of that name; such a replica needs nobody's word.
    """
    return not (is_sole_survivor or (is_told and (is_noted or has_met)))


def is_sole_survivor(state: ResourceState) -> bool:
    """Whether a replica has every write, and all others are known on its own disk to be behind.

    A Primary that goes on without its peer writes that down before the first write, with each
    generation of DRBD: one that is started again is UpToDate at once, by its metadata. So a node
    that has served alone, and was restarted while its peer stays off, serves again. Not while DRBD
    is connected: the peer says itself then what it is.
    """
    return (
        state.disk == "UpToDate"
        and bool(state.peers)
        and not any(peer.is_connected for peer in state.peers)
        and all(peer.disk in {"Outdated", "Inconsistent"} for peer in state.peers)
    )


def serves_alone(state: ResourceState) -> bool:
    """Whether one of two replicas is a Primary that has gone on without its peer.

    It has every write, and the peer is marked. So it counts as one that has connected, from a start
    of Pacemaker on at which it is found so, though its peer may be off for days. A frozen one does
    not: in maintenance its peer may have been promoted beside it. Nor does one that is connected:
    the peer may not have joined since, and neither is fenced for the other then.
    """
    return (
        state.is_primary
        and state.disk == "UpToDate"
        and state.suspended == "no"
        and not uses_quorum(len(state.peers) + 1)
        and not any(peer.is_connected for peer in state.peers)
    )


def may_try_promotion(
    *,
    is_primary: bool,
    is_never_connected: Callable[[], bool],
    quorums_intersect: Callable[[], bool],
    is_beside_member: Callable[[], bool],
    is_fencing_off: Callable[[], bool],
) -> bool:
    """Whether a replica is a candidate, as far as `apply_quorum_overlap` has a say.

    Without a member beside it fence-peer would refuse one that counts as never connected, however
    often. Nor while DRBD is connected, when no handler is asked: neither node is fenced for the
    other then, and the peer may be promoted once the connection breaks, beside this one, frozen.

    Args:
        is_primary: the replica is Primary: it stays so.
        is_never_connected: see the function of that name.
        quorums_intersect: any two quorums of the cluster have a node in common.
        is_beside_member: the node of another replica has joined Pacemaker, and shares this CIB.
        is_fencing_off: the operator does without fencing, and a node out of sight is gone.
    """
    return (
        is_primary
        or not is_never_connected()
        or quorums_intersect()
        or is_beside_member()
        or is_fencing_off()
    )


def apply_quorum_overlap(
    membership: str,
    *,
    is_never_connected: Callable[[], bool],
    quorums_intersect: bool,
    is_fencing_off: Callable[[], bool],
) -> str:
    """Return a peer's membership, `unknown` where a mark of this node's replica may be missed.

    A replica that has connected to no peer since it was started may have been off while the peer
    served and marked it. If any two quorums of the cluster have a node in common, one node of this
    partition knows that mark. If not (`two_node`), no node need know it, and a fenced peer proves
    nothing about this replica. A member proves it: its CIB, with the mark, is this node's.

    Without fencing, by the operator's word, a node that is out of sight is gone with all that it
    knew (`may_try_promotion`).

    Args:
        membership: what the cluster knows of the peer, see `fence_rules.peer_membership`.
        is_never_connected: this node's replica has connected to no peer since it was started, see
            the function of that name.
        quorums_intersect: any two quorums of the cluster have a node in common.
        is_fencing_off: the operator does without fencing; asked where all else is against it.
    """
    if quorums_intersect or membership != "fenced" or not is_never_connected():
        return membership
    return membership if is_fencing_off() else "unknown"
