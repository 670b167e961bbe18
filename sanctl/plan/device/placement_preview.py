# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a new device would go, with the reason of every node: the dry run of a creation."""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.errors import Refused, UsageError
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName
from sanctl.model.topology import Topology
from sanctl.plan.device.creation import Wish, node_problems, objections
from sanctl.plan.device.placement import candidates_of, explain, place, room_bytes

_OF_NODES = frozenset({"SAN-NODE-003", "SAN-POOL-012", "SAN-POOL-013"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A node, and what speaks for or against a replica there.

    Attributes:
        node: its name.
        is_chosen: whether it would get one.
        reason: why, or why not.
        room_bytes: what its pool can promise; None where that is not known.
        active_devices: how many devices it serves.
        site: its site, empty where that is not told.
        rack: its rack, empty where that is not told.
    """

    node: NodeName
    is_chosen: bool
    reason: str
    room_bytes: int | None
    active_devices: int
    site: str
    rack: str


def survey(
    wish: Wish, cluster: Cluster, topology: Topology, *, drbd_version: str | None
) -> tuple[Site, ...]:
    """Judge every node of the pool; those chosen come first, the one that would serve at the top.

    Raises:
        UsageError: the wish is malformed.
        Refused: it could not be met on any nodes.
    """
    if wish.malformed:
        raise UsageError(*wish.malformed)
    against = objections(wish, cluster, topology, drbd_version=drbd_version)
    # What stands against single nodes is said of each of them.
    general = [problem for problem in against if problem.code not in _OF_NODES]
    if general:
        raise Refused(*general)
    assert wish.size is not None and wish.replicas is not None
    pool = wish.pool or topology.pools[0].name
    entry = topology.pool(pool)
    assert entry is not None, "objected to above"
    size = wish.size.bytes
    reasons: dict[NodeName, str] = {}
    usable = []
    for node in entry.nodes:
        problems = node_problems(cluster, pool, node, size)
        if wish.nodes and node not in wish.nodes:
            reasons[node] = "not among the nodes asked for"
        elif problems:
            reasons[node] = "; ".join(problem.text for problem in problems)
        else:
            usable.append(node)
    candidates = candidates_of(cluster, topology, pool, usable)
    pinned = (wish.prefer,) if wish.prefer else ()
    verdicts = explain(candidates, replicas=wish.replicas, pinned=pinned)
    reasons |= {verdict.node: verdict.reason for verdict in verdicts}
    chosen = place(candidates, replicas=wish.replicas, pinned=pinned)
    order = [*chosen, *(v.node for v in verdicts if not v.is_chosen)]
    order += [node for node in entry.nodes if node not in order]
    everyone = {c.node: c for c in candidates_of(cluster, topology, pool, entry.nodes)}
    return tuple(
        Site(
            node=node,
            is_chosen=node in chosen,
            reason=reasons[node],
            room_bytes=room_bytes(cluster, pool, node),
            active_devices=everyone[node].active_devices,
            site=everyone[node].site,
            rack=everyone[node].rack,
        )
        for node in order
    )
