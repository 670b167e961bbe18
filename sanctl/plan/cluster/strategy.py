# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: in which order of steps `cluster strategy set` changes how Corosync counts votes.

While a change is half done, some nodes count in the old way and some in the new: a node that
restarts reads its file, the others go on with what they had loaded. Two parts of such a cluster
must never both find that they have quorum. That holds if every quorum of the old way has a node in
common with every quorum of the new way:

* `nodes` (a majority of the storage nodes' own votes; of two nodes that is both) against `qdevice`
  (half of the nodes and the device, or more): a majority and a half of the same nodes overlap.
* `nodes` against `two-node`: both nodes, against either one.
* `nodes` with a witness in the list, against `nodes` without: of an even count of storage nodes
  n/2+1 are a quorum in either, and two sets that large overlap.
* `qdevice` against `two-node`, or against another device's host: one node with the device against
  the other node alone. These do not overlap.

So a third vote, or the rule of the two nodes, is taken away before another is added, and every
node has taken a step before the next one begins. Between the steps a lost node leaves the other
without quorum: it stops serving, which is the safe side.

A step has two halves: all nodes write their file, then one reload reaches all of them at the same
place in corosync's order of messages. A node that is away stops the change where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sanctl.model.cluster import Cluster
from sanctl.model.topology import Topology
from sanctl.model.vote_mode import MAJORITY_OF_NODES, NodeVotes, VoteMode, Votes


class VoteAction(StrEnum):
    """What a change has to do next."""

    WRITE = "write"
    """Have every node write the vote mode into its corosync.conf."""
    RELOAD = "reload"
    """Have corosync load what every node has written."""
    AWAIT_DEVICE = "await-device"
    """Every node counts as wanted; the quorum device's vote is still to come."""
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteStep:
    """The next step: an action, and the vote mode that it is about."""

    action: VoteAction
    mode: VoteMode


def next_vote_step(target: VoteMode, node_votes: Mapping[str, NodeVotes]) -> VoteStep | None:
    """Return what to do next on the way to `target`; None while a node has not published its votes.

    `node_votes` is what each storage node publishes of its votes.
    """
    seen = {mode for votes in node_votes.values() for mode in (votes.file, votes.live)}
    if None in seen or not node_votes:
        return None
    stage = target if seen <= {target, MAJORITY_OF_NODES} else MAJORITY_OF_NODES
    if any(votes.file != stage for votes in node_votes.values()):
        return VoteStep(action=VoteAction.WRITE, mode=stage)
    if any(votes.live != stage for votes in node_votes.values()):
        return VoteStep(action=VoteAction.RELOAD, mode=stage)
    # From here on `seen` is the stage alone, which is the target.
    if stage.votes is Votes.QDEVICE and not all(b.is_device_voting for b in node_votes.values()):
        return VoteStep(action=VoteAction.AWAIT_DEVICE, mode=stage)
    return VoteStep(action=VoteAction.DONE, mode=stage)


def newcomers(cluster: Cluster, topology: Topology, members: Collection[str]) -> frozenset[str]:
    """Return the storage nodes of cluster.toml that have no part in how the cluster counts yet.

    The rollout writes cluster.toml before it lists new nodes in corosync.conf. Such a node is in no
    list of nodes, written or loaded, that a member publishes, and Pacemaker has never seen it.
    While nothing is published, no node is taken for new.

    Args:
        cluster: what is seen of it.
        topology: cluster.toml.
        members: those in the list of this node's running Corosync.
    """
    published = [
        name for votes in cluster.cib.node_votes.values() for name in votes.written + votes.loaded
    ]
    if not published or not members:
        return frozenset()
    seen = {
        *published,
        *members,
        *(node.name.value for node in cluster.cib.nodes),
        *(node.name for node in cluster.mon.nodes),
    }
    return frozenset(
        node.name.value for node in topology.storage_nodes if node.name.value not in seen
    )


def quorums_intersect(one: VoteMode, other: VoteMode) -> bool:
    """Whether every quorum of one vote mode has a node in common with every quorum of the other."""
    return one == other or MAJORITY_OF_NODES in (one, other)
