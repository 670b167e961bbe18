# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a storage node has the memory for what DRBD keeps of its replicas there all the time."""

from __future__ import annotations

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import format_bytes
from sanctl.plan.device.bitmap_memory import bitmap_bytes, size_on_node_bytes

#: Of a node's memory, before replicas are refused (sanctl/plan/device/bitmap_memory.py).
_SHARE = 4


def memory_finding(
    cluster: Cluster, node: str, *, total_bytes: int, bitmaps: int
) -> Finding | None:
    """Return what is to be said of a node's memory, None where it has enough.

    Args:
        cluster: the devices.
        node: this node's name.
        total_bytes: its memory.
        bitmaps: how many its DRBD keeps of each replica.
    """
    needed = bitmap_bytes(size_on_node_bytes(cluster, node), bitmaps=bitmaps)
    if needed * _SHARE <= total_bytes:
        return None
    return Finding(
        code="SAN-DOC-011",
        severity=Severity.WARNING,
        subject=f"node {node}",
        what=f"DRBD's bitmaps of the replicas take {format_bytes(needed)} of "
        f"{format_bytes(total_bytes)} memory",
        why="a node that runs out of memory when all devices start or fail over is fenced",
        do="give the node more memory, or have fewer or smaller replicas on it; from half of the "
        "memory on it gets no new one",
    )
