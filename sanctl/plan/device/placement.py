# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: ranks nodes for new replicas by site, rack, room and load; what room a pool has.

Device files are made sparse, and their blocks are reserved afterwards. What counts is therefore
what is free *and not promised*: what the devices on that pool may still come to occupy is
subtracted from the free space, and so is a reserve that is promised to no device. When the pool
agent publishes how many bytes the files of these devices hold (`allocated=`), that is exact: other
files, such as those of a dropped replica that are kept, only take free space. Otherwise
everything used in the filesystem is taken to be device data, which leaves total minus promised, and
never more than is free.

Replicas go to different sites first, to different racks of a site next, then to the node with most
room, then to the node that serves fewest devices; the name breaks ties, so that the same cluster
always gives the same answer. A greedy choice is good enough: it uses as many sites as there can be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName, PoolName, format_bytes
from sanctl.model.pool_space import extent_map_bytes, reserve_bytes
from sanctl.model.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementCandidate:
    """A node that could hold a replica; site and rack are empty where cluster.toml has none."""

    node: NodeName
    room_bytes: int
    active_devices: int
    site: str = ""
    rack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """Whether a node was chosen, and why, or why not."""

    node: NodeName
    is_chosen: bool
    reason: str


def metadata_bytes(size_bytes: int) -> int:
    """Return a bound on what a replica needs beside its data: DRBD's metadata, the extent map.

    DRBD has one bitmap bit per 4 KiB for each of up to four peers, and 4 MiB hold the rest.
    """
    return 4 * (size_bytes // (4096 * 8)) + (4 << 20) + extent_map_bytes(size_bytes)


def promised_bytes(cluster: Cluster, pool: PoolName, node: NodeName) -> int:
    """Return what the devices on a pool of a node may occupy in all."""
    return sum(
        device.size.bytes + metadata_bytes(device.size.bytes)
        for device in cluster.cib.devices
        if device.pool == pool and node in device.nodes
    )


def room_bytes(cluster: Cluster, pool: PoolName, node: NodeName) -> int | None:
    """Return the room for new replicas in a pool of a node; None when that is not known."""
    usage = cluster.pool(pool, node)
    if usage is None or usage.error is not None:
        return None
    promised = promised_bytes(cluster, pool, node)
    reserve = reserve_bytes(usage.total_bytes)
    if usage.allocated_bytes is not None:
        unwritten = max(0, promised - usage.allocated_bytes)
        return max(0, usage.free_bytes - unwritten - reserve)
    return max(0, min(usage.free_bytes, usage.total_bytes - promised) - reserve)


def missing_bytes(cluster: Cluster, pool: PoolName, node: NodeName) -> int:
    """Return how much more the devices on a pool of a node may write than the pool has free."""
    usage = cluster.pool(pool, node)
    if usage is None or usage.allocated_bytes is None:
        return 0
    sizes = sum(
        device.size.bytes
        for device in cluster.cib.devices
        if device.pool == pool and node in device.nodes
    )
    return max(0, sizes - usage.allocated_bytes - usage.free_bytes)


def placement_candidates(
    cluster: Cluster, topology: Topology, pool: PoolName, nodes: Collection[NodeName]
) -> tuple[PlacementCandidate, ...]:
    """Return nodes with what the choice among them depends on."""
    found = []
    for name in nodes:
        node = topology.node(name)
        found.append(
            PlacementCandidate(
                node=name,
                room_bytes=room_bytes(cluster, pool, name) or 0,
                active_devices=cluster.active_count(name),
                site=node.site if node else "",
                rack=node.rack if node else "",
            )
        )
    return tuple(found)


def place_device(
    candidates: Collection[PlacementCandidate], *, replicas: int, pinned: Sequence[NodeName] = ()
) -> tuple[NodeName, ...]:
    """Choose the nodes of a new device, the one that should serve it first.

    Of the chosen nodes, the one with the fewest active devices serves. A pinned node is always
    chosen, and the first pinned node serves.

    Returns:
        The chosen nodes, or nothing when there are too few candidates.
    """
    chosen = choose_nodes(candidates, replicas=replicas, pinned=pinned)
    order = {node: index for index, node in enumerate(pinned)}
    by_node = {candidate.node: candidate for candidate in candidates}
    return tuple(
        sorted(
            chosen,
            key=lambda n: (order.get(n, len(order)), by_node[n].active_devices, n),
        )
    )


def choose_nodes(
    candidates: Collection[PlacementCandidate],
    *,
    replicas: int,
    pinned: Sequence[NodeName] = (),
    beside: Collection[PlacementCandidate] = (),
) -> tuple[NodeName, ...]:
    """Choose nodes for that many replicas, besides those that hold one already.

    Returns:
        The chosen nodes in the order of choice, or nothing when there are too few candidates.
    """
    return tuple(
        verdict.node
        for verdict in explain_choice(candidates, replicas=replicas, pinned=pinned, beside=beside)
        if verdict.is_chosen
    )


def explain_choice(
    candidates: Collection[PlacementCandidate],
    *,
    replicas: int,
    pinned: Sequence[NodeName] = (),
    beside: Collection[PlacementCandidate] = (),
) -> tuple[NodeVerdict, ...]:
    """Return every candidate with the reason it was chosen or not; chosen ones come first."""
    if len(candidates) < replicas:
        return tuple(
            NodeVerdict(
                node=candidate.node,
                is_chosen=False,
                reason=f"{replicas} are needed, and {len(candidates)} could",
            )
            for candidate in sorted(candidates, key=lambda each: each.node)
        )
    order = {node: index for index, node in enumerate(pinned)}
    left = list(candidates)
    holders = list(beside)
    verdicts: list[NodeVerdict] = []
    last: tuple[PlacementCandidate, list[PlacementCandidate]] | None = None
    for _ in range(replicas):
        ranked = sorted(left, key=lambda c: _rank(c, holders, order))
        best = ranked[0]
        verdicts.append(
            NodeVerdict(node=best.node, is_chosen=True, reason=_reason_for(ranked, holders, order))
        )
        last = (best, list(holders))
        left.remove(best)
        holders.append(best)
    if last is not None:
        best, before = last
        verdicts.extend(
            NodeVerdict(
                node=other.node, is_chosen=False, reason=_reason_against(other, best, before)
            )
            for other in sorted(left, key=lambda c: _rank(c, holders, order))
        )
    return tuple(verdicts)


_Rank = tuple[int, int, int, int, int, NodeName]


def _rank(
    candidate: PlacementCandidate,
    holders: Collection[PlacementCandidate],
    order: dict[NodeName, int],
) -> _Rank:
    return (
        order.get(candidate.node, len(order)),
        len(_same_site(candidate, holders)),
        len(_same_rack(candidate, holders)),
        -candidate.room_bytes,
        candidate.active_devices,
        candidate.node,
    )


def _same_site(
    candidate: PlacementCandidate, holders: Collection[PlacementCandidate]
) -> list[PlacementCandidate]:
    return [other for other in holders if candidate.site and other.site == candidate.site]


def _same_rack(
    candidate: PlacementCandidate, holders: Collection[PlacementCandidate]
) -> list[PlacementCandidate]:
    # A rack's name counts within its site.
    return [
        other
        for other in holders
        if candidate.rack and (other.site, other.rack) == (candidate.site, candidate.rack)
    ]


def _shared_domain(candidate: PlacementCandidate, holders: Collection[PlacementCandidate]) -> str:
    """Return the rack or site that a node shares with a replica holder; empty: none."""
    for kind, value, shared in (
        ("rack", candidate.rack, _same_rack(candidate, holders)),
        ("site", candidate.site, _same_site(candidate, holders)),
    ):
        if shared:
            return f"{kind} {value} has a replica already, on {shared[0].node}"
    return ""


def _reason_for(
    ranked: Sequence[PlacementCandidate],
    holders: Collection[PlacementCandidate],
    order: dict[NodeName, int],
) -> str:
    """Return why the first of the ranked was chosen, by what sets it apart from the second."""
    best = ranked[0]
    if best.node in order:
        return "asked for"
    if len(ranked) == 1:
        return "the only one left"
    second = ranked[1]
    mine, theirs = _rank(best, holders, order), _rank(second, holders, order)
    at = next(index for index, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
    return {
        1: f"another site ({best.site or 'none given'})",
        2: f"another rack ({best.rack or 'none given'})",
        3: f"most room, {format_bytes(best.room_bytes)}",
        4: f"serves the fewest devices, {best.active_devices}",
    }.get(at, "as good as the others, first by name")


def _reason_against(
    other: PlacementCandidate, best: PlacementCandidate, before: Collection[PlacementCandidate]
) -> str:
    """Return why a node was passed over for the last one that was chosen."""
    if _rank(other, before, {})[1:3] > _rank(best, before, {})[1:3]:
        return _shared_domain(other, before)
    if other.room_bytes < best.room_bytes:
        return (
            f"less room, {format_bytes(other.room_bytes)}; {best.node} has "
            f"{format_bytes(best.room_bytes)}"
        )
    if other.active_devices > best.active_devices:
        return f"serves more devices, {other.active_devices}; {best.node} {best.active_devices}"
    return f"as good as {best.node}, later by name"


def free_minor(cluster: Cluster, candidates: Iterable[int]) -> int | None:
    """Return the lowest minor number whose id nothing in the CIB has."""
    taken = {device.minor for device in cluster.cib.devices}
    for minor in candidates:
        if minor not in taken and f"sanctl-minor-{minor}" not in cluster.cib.ids:
            return minor
    return None
