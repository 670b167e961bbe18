# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a member may be taken out of the cluster, and what is left to be done for it.

The member's vote goes with its entry in corosync.conf. Each node reads its own file when it starts,
so while the change is half done some count with the member and some without. That is safe as long
as all count by the nodes' own votes: of n nodes a majority holds at least n/2 (rounded down) of the
n-1 that stay, and a majority of those is more than half of them, so any two such sets have a node
in common. With two_node or a quorum device they need not; there the change is refused.

The member itself must have stopped: it would be fenced as soon as the others forget it.
"""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.names import NodeName
from sanctl.model.topology import NodeRole, Topology
from sanctl.model.vote_mode import MAJORITY_OF_NODES
from sanctl.plan.cluster.preconditions import (
    existing_node,
    quorum_problems,
    unreadable_device_problems,
)

#: Data of deleted devices and dropped replicas on the node that leaves is not removed.
ACCEPT_LEFT_DATA = "SAN-NODE-006"
#: `crm_mon` shows these of a node that has stopped in order, or was fenced.
_GONE = frozenset({NodeState.OFFLINE, NodeState.UNKNOWN})


def fencing_ids(cluster: Cluster, name: NodeName) -> tuple[str, ...]:
    """Return the fencing devices of a node that the rollout has made."""
    made = {f"fence-{name}", f"fence-{name}_fallback"}
    return tuple(each.id for each in cluster.cib.fencing if each.id in made)


def is_removed(cluster: Cluster, name: NodeName, members: Collection[str]) -> bool:
    """Whether nothing of a node is left in Corosync, the CIB's nodes and the fencing devices."""
    return (
        name.value not in members
        and all(node.name != name for node in cluster.cib.nodes)
        and not fencing_ids(cluster, name)
    )


def staying_storage(topology: Topology, name: NodeName) -> tuple[NodeName, ...]:
    """Return the storage nodes that stay; each changes its own corosync.conf."""
    return tuple(node.name for node in topology.storage_nodes if node.name != name)


def refuse_removal(
    cluster: Cluster,
    topology: Topology,
    name: NodeName,
    *,
    members: Collection[str],
    present: Collection[str],
    here: str,
    accepted: Collection[str] = (),
) -> None:
    """Check that a node may be taken out of the cluster now.

    `members` are Corosync's list, `present` those in this partition. The rollout changes
    cluster.toml later. Refusals with a code of `accepted` do not count.

    Raises:
        Refused: it may not; all reasons are listed.
    """
    if name.value not in members and not fencing_ids(cluster, name):
        existing_node(cluster, name)
    problems = [
        *quorum_problems(cluster),
        *_data_problems(cluster, name, accepted),
        *_leaving_problems(cluster, name, present),
    ]
    if name.value in members:
        problems += _staying_problems(cluster, topology, name, here)
    if problems:
        raise Refused(*problems)


def unwritten_member_problems(
    cluster: Cluster, nodes: Collection[NodeName], *, leaving: str = ""
) -> tuple[Problem, ...]:
    """Return which nodes' files lack a member, so that a reload of Corosync would lose it.

    Args:
        cluster: as observed.
        nodes: the storage nodes whose files count.
        leaving: the member that is being taken out, whom the files may lack.
    """
    return tuple(
        Problem(
            "SAN-NODE-011",
            f"the corosync.conf of {node} lacks {member}, which is in Corosync's list: it would be "
            "lost with the reload, and fenced if it runs",
            f"run site.yml with {member} in the inventory first: it writes {member} back; or stop "
            f"{member} and 'sanctl node remove {member}'",
        )
        for node in nodes
        for member in cluster.votes_of(node).unwritten
        if member != leaving
    )


def _data_problems(cluster: Cluster, name: NodeName, accepted: Collection[str]) -> list[Problem]:
    problems = [*unreadable_device_problems(cluster, f"may have a replica on {name}")]
    held = [device.name.value for device in cluster.cib.devices if name in device.nodes]
    if held:
        problems.append(
            Problem(
                "SAN-NODE-005",
                f"node {name} holds replicas of {', '.join(held)}",
                f"'sanctl node replace {name} OTHER' moves all of them, "
                "'sanctl device replicas' drops one",
            )
        )
    left = sorted({stone.device for stone in cluster.cib.tombstones if stone.node == name})
    if left and ACCEPT_LEFT_DATA not in accepted:
        problems.append(
            Problem(
                ACCEPT_LEFT_DATA,
                f"node {name} still has the data of {', '.join(left)}, deleted or dropped while "
                "it was away, and would not be told to remove it",
                f"bring {name} back, and it removes the data; or, if its disks are gone or will be "
                f"emptied before it ever joins again, accept that with --accept {ACCEPT_LEFT_DATA}",
            )
        )
    return problems


def _leaving_problems(cluster: Cluster, name: NodeName, present: Collection[str]) -> list[Problem]:
    state = cluster.mon.state(name)
    if state is NodeState.UNCLEAN:
        return [
            Problem(
                "SAN-NODE-007",
                f"node {name} is unclean: it may still write",
                f"it has to be fenced or to come back first: 'sanctl node fence {name}'",
            )
        ]
    if state not in _GONE or name.value in present:
        return [
            Problem(
                "SAN-NODE-007",
                f"node {name} is still a member: {state.value}",
                f"on {name}: 'systemctl disable --now pacemaker.service corosync.service'",
            )
        ]
    return []


def _staying_problems(
    cluster: Cluster, topology: Topology, name: NodeName, here: str
) -> list[Problem]:
    """Return what of the nodes that stay stands against a change of corosync.conf."""
    storage = staying_storage(topology, name)
    problems = [
        *unwritten_member_problems(cluster, storage, leaving=name.value),
    ]
    problems += [
        Problem(
            "SAN-NODE-008",
            f"node {node} cannot follow: "
            + (
                "the agent sanctl-pool does not run there"
                if cluster.mon.state(node) is NodeState.ONLINE
                else cluster.mon.state(node).value
            ),
            f"bring {node} back first: all nodes that stay change their corosync.conf",
        )
        for node in storage
        if not cluster.is_pool_agent_running(node)
    ]
    if len(storage) < 2:
        problems.append(
            Problem(
                "SAN-NODE-008",
                f"without {name} there would be {len(storage)} storage node",
                "a cluster has two at least: add another one by the rollout first",
            )
        )
    problems += [
        Problem(
            "SAN-NODE-009",
            f"node {node} counts {votes.live or 'in a way that is not known'}, not by the nodes' "
            "own votes alone",
            "take the quorum device out of the inventory and run site.yml first; "
            "with heartbeat there are two nodes, and both stay",
        )
        for node in storage
        if cluster.is_pool_agent_running(node)
        and ((votes := cluster.votes_of(node)).live, votes.file)
        != (MAJORITY_OF_NODES, MAJORITY_OF_NODES)
    ]
    problems += [
        Problem(
            "SAN-NODE-010",
            f"the witness node {node.name} has a corosync.conf, and no agent that changes it",
            f"run the command on {node.name}: there it changes that file itself",
        )
        for node in topology.nodes
        if node.role is NodeRole.WITNESS and node.name != name and node.name.value != here
    ]
    return problems
