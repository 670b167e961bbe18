# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a node can take a new replica: storage node, pool, online, room, file, memory."""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.names import NodeName, PoolName, format_bytes
from sanctl.model.topology import NodeRole, Topology
from sanctl.plan.device.bitmap_memory import memory_problem
from sanctl.plan.device.placement import metadata_bytes, room_bytes


def file_problem(
    cluster: Cluster, pool: PoolName, node: NodeName, size_bytes: int
) -> Problem | None:
    """Return why a node's pool can have no data file of that size; None: it can, or is not known.

    Its filesystem has a largest file, whatever room it has. Not known of an older release.
    """
    usage = cluster.pool(pool, node)
    largest = None if usage is None else usage.largest_file_bytes
    if largest is None or size_bytes <= largest:
        return None
    return Problem(
        "SAN-POOL-034",
        f"the filesystem of pool {pool} on {node} has no file of {format_bytes(size_bytes)}: "
        f"{largest} bytes are its largest",
        "make several smaller devices, or a pool on XFS",
    )


def pool_membership_problems(
    topology: Topology, pool: PoolName, node: NodeName
) -> tuple[Problem, ...]:
    """Return why a node cannot hold a replica in that pool, whatever its state."""
    problems: list[Problem] = []
    entry = topology.pool(pool)
    members = () if entry is None else entry.nodes
    if is_storage_node(node, topology, problems) and node not in members:
        problems.append(
            Problem(
                "SAN-POOL-014",
                f"node {node} has no pool {pool}",
                f"pool {pool} is on {', '.join(map(str, members))}",
            )
        )
    return tuple(problems)


def is_storage_node(node: NodeName, topology: Topology, problems: list[Problem]) -> bool:
    """Whether a node can hold replicas at all; if not, its problem is added to `problems`."""
    entry = topology.node(node)
    if entry is None:
        known = ", ".join(str(known.name) for known in topology.nodes)
        problems.append(
            Problem("SAN-NODE-001", f"there is no node {node}", f"cluster.toml has: {known}")
        )
        return False
    if entry.role is not NodeRole.STORAGE:
        storage = ", ".join(str(known.name) for known in topology.storage_nodes)
        problems.append(
            Problem(
                "SAN-NODE-002",
                f"node {node} is a {entry.role.value}: it cannot hold a replica",
                f"storage nodes are: {storage}",
            )
        )
        return False
    return True


def node_problems(
    cluster: Cluster,
    pool: PoolName,
    node: NodeName,
    size_bytes: int,
    *,
    accepted: Collection[str] | None = None,
) -> tuple[Problem, ...]:
    """Return why a node cannot take a replica of that size now; but for what is `accepted`."""
    state = cluster.mon.state(node)
    if state is not NodeState.ONLINE:
        return (
            Problem(
                "SAN-NODE-003",
                f"node {node} is {state.value}",
                "a replica is made on a node that is online: see 'sanctl node list'",
            ),
        )
    room = room_bytes(cluster, pool, node)
    if room is None:
        usage = cluster.pool(pool, node)
        reason = "it has published nothing yet" if usage is None else usage.error
        return (
            Problem(
                "SAN-POOL-013",
                f"pool {pool} on {node} cannot be used: {reason}",
                f"look at it with 'sanctl doctor' on {node}",
            ),
        )
    problems: list[Problem] = []
    needed = size_bytes + metadata_bytes(size_bytes)
    if needed > room:
        problems.append(
            Problem(
                "SAN-POOL-012",
                f"pool {pool} on {node} has room for {format_bytes(room)}, "
                f"{format_bytes(needed)} are needed",
                "room is free space less what other devices may still write, and a reserve",
            )
        )
    lacking = (
        memory_problem(cluster, pool, node, size_bytes, accepted=accepted),
        file_problem(cluster, pool, node, size_bytes),
    )
    return (*problems, *(each for each in lacking if each is not None))
