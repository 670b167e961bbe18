# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a storage node has the memory for what DRBD keeps of its replicas there all the time."""

from __future__ import annotations

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import format_bytes

#: One bit for each block of 4 KiB (drbd_int.h, BM_BLOCK_SHIFT), in pages that are never given back.
_BYTES_BY_BIT = 4096
#: DRBD 9 keeps a bitmap for each peer that the metadata has room for (drivers/drbdadm.py).
_PEERS_OF_DRBD_9 = 3
#: Of a node's memory. What else there is grows with the devices, too: buffers of DRBD, sessions of
#: LIO, and the actions of Pacemaker when all fail over.
_SHARE = 4


def bitmap_bytes(cluster: Cluster, node: str, *, is_drbd_9: bool) -> int:
    """Return how much memory the bitmaps of the replicas that a node has to keep take."""
    devices = [spec for spec in cluster.cib.devices if node in {str(each) for each in spec.nodes}]
    bits = sum(spec.size.bytes // _BYTES_BY_BIT for spec in devices)
    return bits // 8 * (_PEERS_OF_DRBD_9 if is_drbd_9 else 1)


def memory_finding(
    cluster: Cluster, node: str, *, total_bytes: int, is_drbd_9: bool
) -> Finding | None:
    """Return what is to be said of a node's memory, None where it has enough.

    Args:
        cluster: the devices.
        node: this node's name.
        total_bytes: its memory.
        is_drbd_9: DRBD 9 is loaded.
    """
    needed = bitmap_bytes(cluster, node, is_drbd_9=is_drbd_9)
    if needed * _SHARE <= total_bytes:
        return None
    return Finding(
        code="SAN-DOC-011",
        severity=Severity.WARNING,
        subject=f"node {node}",
        what=f"DRBD's bitmaps of the replicas take {format_bytes(needed)} of "
        f"{format_bytes(total_bytes)} memory",
        why="a node that runs out of memory when all devices start or fail over is fenced",
        do="give the node more memory, or have fewer or smaller replicas on it",
    )
