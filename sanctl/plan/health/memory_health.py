# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a storage node has the memory for what DRBD keeps of its replicas there all the time."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import format_bytes
from sanctl.plan.device.bitmap_memory import bitmap_bytes, size_on_node_bytes

#: Of a node's memory, before replicas are refused (sanctl/plan/device/bitmap_memory.py).
_SHARE = 4


def memory_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return what is to be said of all nodes, by the memory that their pool agents publish."""
    published = {
        node: (usage.memory_bytes, usage.bitmaps)
        for (_, node), usage in sorted(cluster.cib.pools.items())
        if usage.memory_bytes is not None and usage.bitmaps is not None
    }
    for node, (total_bytes, bitmaps) in published.items():
        # Of one that has stopped, as in standby, what it published last is left.
        if not cluster.is_pool_agent_running(node):
            continue
        found = memory_finding(
            cluster, node, total_bytes=total_bytes, bitmaps=bitmaps, code="SAN-HLT-165"
        )
        if found is not None:
            yield found


def memory_finding(
    cluster: Cluster, node: str, *, total_bytes: int, bitmaps: int, code: str = "SAN-DOC-011"
) -> Finding | None:
    """Return what is to be said of a node's memory, None where it has enough.

    Args:
        cluster: the devices.
        node: this node's name.
        total_bytes: its memory.
        bitmaps: how many its DRBD keeps of each replica.
        code: the finding's.
    """
    needed = bitmap_bytes(size_on_node_bytes(cluster, node), bitmaps=bitmaps)
    if needed * _SHARE <= total_bytes:
        return None
    return Finding(
        code=code,
        severity=Severity.WARNING,
        subject=f"node {node}",
        what=f"DRBD's bitmaps of the replicas take {format_bytes(needed)} of "
        f"{format_bytes(total_bytes)} memory",
        why="a node that runs out of memory when all devices start or fail over is fenced",
        do="give the node more memory, or have fewer or smaller replicas on it; from half of the "
        "memory on it gets no new one",
    )
