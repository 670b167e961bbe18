"""Where the replicas of a new device go, and whether there is room for them.

Device files are sparse: a pool's free space shrinks only as hosts write. What counts is therefore
what is free *and not promised*: from the free space comes off what the devices on that pool may
still write. When the pool agent says how many bytes the device files hold (`allocated=`), that is
exact. Otherwise everything used in the file system is taken to be device data, which leaves total
minus promised, and never more than is free.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName, PoolName


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node that could hold a replica."""

    node: NodeName
    room_bytes: int
    active_devices: int


def metadata_bytes(size_bytes: int) -> int:
    """Return a bound on what DRBD keeps beside a replica: bitmap, activity log, superblock.

    One bitmap bit per 4 KiB for each of up to four peers, and 4 MiB for the rest.
    """
    return 4 * (size_bytes // (4096 * 8)) + (4 << 20)


def promised_bytes(cluster: Cluster, pool: PoolName, node: NodeName) -> int:
    """Return what the devices on a pool of a node may grow to in all."""
    return sum(
        device.size.bytes + metadata_bytes(device.size.bytes)
        for device in cluster.cib.devices
        if device.pool == pool and node in device.nodes
    )


def room_bytes(cluster: Cluster, pool: PoolName, node: NodeName) -> int | None:
    """Return what a pool of a node can still promise; None when that is not known."""
    usage = cluster.pool(pool, node)
    if usage is None or usage.error is not None:
        return None
    promised = promised_bytes(cluster, pool, node)
    if usage.allocated_bytes is not None:
        unwritten = max(0, promised - usage.allocated_bytes)
        return max(0, usage.free_bytes - unwritten)
    return max(0, min(usage.free_bytes, usage.total_bytes - promised))


def place(
    candidates: Collection[Candidate], *, replicas: int, pinned: Collection[NodeName] = ()
) -> tuple[NodeName, ...]:
    """Choose the nodes of a new device, the one that should serve it first.

    Room decides who holds a replica: the emptiest nodes. Then the load decides who serves: of
    those, the node with the fewest active devices. The name breaks ties, so that the same cluster
    always gives the same answer. A pinned node is always chosen, and the first one pinned serves.

    Returns:
        The chosen nodes, or nothing when there are too few candidates.
    """
    if len(candidates) < replicas:
        return ()
    order = {node: index for index, node in enumerate(pinned)}
    by_room = sorted(
        candidates, key=lambda c: (c.node not in order, -c.room_bytes, c.active_devices, c.node)
    )
    chosen = by_room[:replicas]
    chosen.sort(key=lambda c: (order.get(c.node, len(order)), c.active_devices, c.node))
    return tuple(candidate.node for candidate in chosen)


def free_minor(cluster: Cluster, candidates: range) -> int | None:
    """Return the lowest minor number whose id nothing in the CIB has."""
    taken = {device.minor for device in cluster.cib.devices}
    for minor in candidates:
        if minor not in taken and f"sanctl-minor-{minor}" not in cluster.cib.ids:
            return minor
    return None
