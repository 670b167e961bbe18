# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: whether a node has the memory for DRBD's bitmap of one more replica, or of a larger one.

DRBD keeps the bitmap of each replica in pages that are never given back while the replica is up. A
node that runs out of memory is fenced, and its devices come to nodes with as little. But a device
that has lost a replica is worse off without one, on a cluster whose nodes are past that share: an
operator may accept more for it, up to where the node would run out of memory for certain.
"""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName, PoolName, format_bytes

#: One bit for each block of 4 KiB (drbd_int.h, BM_BLOCK_SHIFT).
_BYTES_BY_BIT = 4096
#: Of a node's memory. `sanctl doctor` warns at half of that (plan/health/memory_health.py). What
#: else there is grows with the devices, too: buffers of DRBD, sessions of LIO, and the actions of
#: Pacemaker when all fail over.
_SHARE = 2
#: What an operator may accept, in quarters of a node's memory.
_MOST_QUARTERS = 3
ACCEPT_MEMORY = "SAN-NODE-012"
"""Accepted by code: a replica more than the memory of its node is for."""


def bitmap_bytes(size_bytes: int, *, bitmaps: int) -> int:
    """Return how much memory DRBD takes for good for replicas of that size in all.

    Args:
        size_bytes: of the devices.
        bitmaps: how many DRBD keeps of each replica (sanctl/model/drbd.py).
    """
    return size_bytes // _BYTES_BY_BIT // 8 * bitmaps


def size_on_node_bytes(cluster: Cluster, node: NodeName | str) -> int:
    """Return the size of all replicas that a node has to keep, in whatever pool."""
    name = str(node)
    return sum(
        device.size.bytes
        for device in cluster.cib.devices
        if any(each.value == name for each in device.nodes)
    )


def memory_problem(
    cluster: Cluster,
    pool: PoolName,
    node: NodeName,
    more_bytes: int,
    *,
    accepted: Collection[str] | None = None,
) -> Problem | None:
    """Return why a node has too little memory for so much more of replicas; None: it has it.

    None also where the node's memory is not known: its agent is of a release that publishes none,
    or has found no DRBD.

    Args:
        cluster: the devices, also those that the same change creates before.
        pool: the pool with whose usage the node publishes its memory.
        node: the node.
        more_bytes: the size of a new replica, or by how much one is to grow.
        accepted: the codes that the operator accepts; None: the command lets none be accepted.
    """
    usage = cluster.pool(pool, node)
    if usage is None or usage.memory_bytes is None or usage.bitmaps is None:
        return None
    now_bytes = size_on_node_bytes(cluster, node)
    now = bitmap_bytes(now_bytes, bitmaps=usage.bitmaps)
    then = bitmap_bytes(now_bytes + more_bytes, bitmaps=usage.bitmaps)
    may_be_accepted = accepted is not None and then * 4 <= usage.memory_bytes * _MOST_QUARTERS
    if then * _SHARE <= usage.memory_bytes or (
        may_be_accepted and accepted is not None and ACCEPT_MEMORY in accepted
    ):
        return None
    return Problem(
        ACCEPT_MEMORY,
        f"DRBD's bitmaps on {node} would take {format_bytes(then)} of its "
        f"{format_bytes(usage.memory_bytes)} memory, {format_bytes(then - now)} of them for this",
        "at most half of a node's memory is for them: give the node more, take another node, "
        "or have fewer or smaller replicas on it"
        + (f"; or accept that with --accept {ACCEPT_MEMORY}" if may_be_accepted else ""),
    )
