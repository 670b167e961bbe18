# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: the dry run `device place`: each node, as node_eligibility and placement decide."""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.errors import Refused, UsageError
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName
from sanctl.model.topology import Topology
from sanctl.plan.device.creation import creation_problems
from sanctl.plan.device.creation_request import DeviceRequest
from sanctl.plan.device.node_eligibility import node_problems
from sanctl.plan.device.placement import (
    explain_choice,
    place_device,
    placement_candidates,
    room_bytes,
)

_OF_NODES = frozenset(
    {"SAN-NODE-003", "SAN-NODE-012", "SAN-POOL-012", "SAN-POOL-013", "SAN-POOL-034"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePreview:
    """A node, and whether a replica of the requested device would be put there.

    Attributes:
        node: its name.
        is_chosen: whether it would get one.
        reason: why, or why not.
        room_bytes: room for new replicas in its pool; None where that is not known.
        active_devices: how many devices it serves.
        site: its site, empty where cluster.toml has none.
        rack: its rack, empty where cluster.toml has none.
    """

    node: NodeName
    is_chosen: bool
    reason: str
    room_bytes: int | None
    active_devices: int
    site: str
    rack: str


def preview_placement(
    request: DeviceRequest, cluster: Cluster, topology: Topology, *, drbd_version: str | None
) -> tuple[NodePreview, ...]:
    """Return every node of the pool; chosen ones come first, at the top the one that would serve.

    Raises:
        UsageError: the request is malformed.
        Refused: it could not be met on any nodes.
    """
    if request.malformed:
        raise UsageError(*request.malformed)
    against = creation_problems(request, cluster, topology, drbd_version=drbd_version)
    # Problems of single nodes become the reasons of these nodes.
    general = [problem for problem in against if problem.code not in _OF_NODES]
    if general:
        raise Refused(*general)
    assert request.size is not None and request.replicas is not None
    pool = request.pool or topology.pools[0].name
    entry = topology.pool(pool)
    assert entry is not None, "objected to above"
    size = request.size.bytes
    reasons: dict[NodeName, str] = {}
    usable = []
    for node in entry.nodes:
        problems = node_problems(cluster, pool, node, size)
        if request.nodes and node not in request.nodes:
            reasons[node] = "not among the nodes asked for"
        elif problems:
            reasons[node] = "; ".join(problem.text for problem in problems)
        else:
            usable.append(node)
    candidates = placement_candidates(cluster, topology, pool, usable)
    pinned = (request.prefer,) if request.prefer else ()
    verdicts = explain_choice(candidates, replicas=request.replicas, pinned=pinned)
    reasons |= {verdict.node: verdict.reason for verdict in verdicts}
    chosen = place_device(candidates, replicas=request.replicas, pinned=pinned)
    order = [*chosen, *(v.node for v in verdicts if not v.is_chosen)]
    order += [node for node in entry.nodes if node not in order]
    everyone = {c.node: c for c in placement_candidates(cluster, topology, pool, entry.nodes)}
    return tuple(
        NodePreview(
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
