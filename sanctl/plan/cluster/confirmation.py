# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether the cluster may be told that a node is off, on the word of a person.

The cluster takes what the node served over at once. If the node runs, two nodes serve, and what the
hosts write on one of them is lost. Nothing here can see that a node is off: what is refused is a
node that is plainly on.
"""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.names import NodeName
from sanctl.parse.corosync import Membership
from sanctl.plan.cluster.preconditions import existing_node


def refuse_confirmation(
    cluster: Cluster,
    name: NodeName,
    *,
    here: str,
    membership: Membership,
    answering: Collection[str],
) -> None:
    """Check that a node may be off, and that this partition may act on that.

    Args:
        cluster: as observed.
        name: the node.
        here: this node.
        membership: of this node's Corosync, read after the cluster was observed.
        answering: the node's addresses that answer a ping from here.

    Raises:
        Refused: no such node, no quorum, or the node is on.
    """
    existing_node(cluster, name)
    # Not what Pacemaker says: it learns of a quorum that an operator has just given the node
    # (quorum.cancel_wait_for_all) some seconds later.
    if not membership.is_quorate:
        raise Refused(
            Problem(
                "SAN-CLU-001",
                "Corosync on this node has no quorum, or does not say that it has",
                "run the command on a node of the majority, or bring nodes back first",
            )
        )
    problem = _sign_of_life(cluster, name, here, membership.members, answering)
    if problem:
        raise Refused(problem)


def needs_confirmation(cluster: Cluster, name: NodeName) -> bool:
    """Whether the cluster waits for a node to be fenced."""
    return cluster.mon.state(name) is NodeState.UNCLEAN


def _sign_of_life(
    cluster: Cluster,
    name: NodeName,
    here: str,
    members: Collection[str],
    answering: Collection[str],
) -> Problem | None:
    fence = f"switch it off, or 'sanctl node fence {name}'"
    if name.value == here:
        return Problem(
            "SAN-FEN-007",
            f"{name} is this node, and it is on",
            "run the command on the node that is to go on, about the one that is off",
        )
    if name.value in members:
        return Problem(
            "SAN-FEN-007",
            f"{name} is on: it is a member of Corosync's membership",
            f"{fence}; a node that was switched off leaves the membership within some seconds",
        )
    if answering:
        return Problem(
            "SAN-FEN-007",
            f"{name} is on: it answers a ping at {', '.join(sorted(answering))}",
            f"{fence}. If another machine has that address, or the new server that is to replace "
            "it: take that off the network first",
        )
    state = cluster.mon.state(name)
    if state not in {NodeState.UNCLEAN, NodeState.OFFLINE}:
        return Problem(
            "SAN-FEN-007",
            f"Pacemaker shows {name} as {state.value}, not as lost",
            "wait some seconds and look again: 'sanctl status'",
        )
    return None
