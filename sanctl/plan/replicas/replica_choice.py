# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which nodes `device replicas` adds and drops: named ones, else by placement's ranks.

The choice has to be the same while a change is under way, as it is made again before each step and
by the same command run again: an added replica counts as chosen, a dropped one as gone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sanctl.errors import Problem, Refused, UsageError
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.names import NodeName, format_bytes
from sanctl.model.topology import Topology
from sanctl.plan.cluster.hold_nodes import unfit_for_hold
from sanctl.plan.device.creation_request import parse_replica_count
from sanctl.plan.device.node_eligibility import pool_membership_problems
from sanctl.plan.device.placement import choose_nodes, metadata_bytes, placement_candidates
from sanctl.plan.replicas.replica_safety import is_known_up_to_date, new_replica_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRequest:
    """How many replicas are requested, and where.

    Attributes:
        replicas: 1 to 4.
        add: nodes that are to have a replica.
        drop: nodes that are to have none.
    """

    replicas: int
    add: tuple[NodeName, ...] = ()
    drop: tuple[NodeName, ...] = ()


def parse_replica_request(
    replicas: str, add: Collection[str], drop: Collection[str]
) -> ReplicaRequest:
    """Parse the arguments of `device replicas`.

    Raises:
        UsageError: an argument is malformed, or two contradict each other; all are listed.
    """
    problems: list[Problem] = []
    count = 0
    try:
        count = parse_replica_count(replicas)
    except UsageError as error:
        problems.extend(error.problems)
    named: dict[str, tuple[NodeName, ...]] = {}
    for option, words in (("--add", add), ("--drop", drop)):
        nodes: list[NodeName] = []
        for word in words:
            try:
                nodes.append(NodeName.parse(word))
            except UsageError as error:
                problems.extend(error.problems)
        named[option] = tuple(dict.fromkeys(nodes))
    problems.extend(
        Problem(
            "SAN-REP-006",
            f"node {node} is named after --add and after --drop",
            "name it once",
        )
        for node in named["--add"]
        if node in named["--drop"]
    )
    if count and len(named["--add"]) > count:
        problems.append(
            Problem(
                "SAN-REP-006",
                f"{len(named['--add'])} nodes are to be added, and {count} replicas wanted",
                "name at most as many nodes as replicas",
            )
        )
    if problems:
        raise UsageError(*problems)
    return ReplicaRequest(replicas=count, add=named["--add"], drop=named["--drop"])


def target_nodes(
    cluster: Cluster,
    topology: Topology,
    device: DeviceSpec,
    request: ReplicaRequest,
    *,
    accepted: Collection[str] = (),
) -> tuple[NodeName, ...]:
    """Return the nodes that are to hold the replicas in the end; present holders come first.

    A node with a problem that is `accepted` is chosen where there are too few others, and after
    all of those.

    Raises:
        Refused: a named node cannot hold one, or too few nodes can.
    """
    problems = [
        problem
        for node in request.add
        if node not in device.nodes
        for problem in pool_membership_problems(topology, device.pool, node)
    ]
    if device.awaits:
        # Before a replica is dropped to make room for it.
        named = [node for node in request.add if node not in device.nodes]
        problems.extend(unfit_for_hold(cluster, device.pool, named))
    known = {node.name for node in cluster.cib.nodes} | {node.name for node in topology.nodes}
    problems.extend(
        Problem("SAN-NODE-001", f"there is no node {node}", "'sanctl node list' shows them")
        for node in request.drop
        if node not in known and node not in device.nodes
    )
    if problems:
        raise Refused(*problems)
    staying = [node for node in device.nodes if node not in request.drop]
    target = [*staying, *(node for node in request.add if node not in staying)]
    if len(target) > request.replicas and request.add:
        raise Refused(
            Problem(
                "SAN-REP-006",
                f"device {device.name} would have {len(target)} replicas, on "
                f"{', '.join(map(str, target))}; {request.replicas} are asked for",
                "name with --drop which to drop",
            )
        )
    while len(target) > request.replicas:
        target.remove(_first_to_drop(cluster, device, target))
    missing = request.replicas - len(target)
    if missing > 0:
        target += _chosen(
            cluster,
            topology,
            device,
            staying=target,
            dropped=request.drop,
            missing=missing,
            accepted=accepted,
        )
    return tuple(target)


def _first_to_drop(cluster: Cluster, device: DeviceSpec, nodes: Collection[NodeName]) -> NodeName:
    """Return the node whose replica is dropped first: not up to date, else the last in order."""
    active = cluster.active_node(device.name)
    order = {node: index for index, node in enumerate(device.nodes)}
    return max(
        nodes,
        key=lambda node: (
            not is_known_up_to_date(cluster, device, node),
            cluster.mon.state(node) is not NodeState.ONLINE,
            node.value != active,
            order.get(node, len(order)),
        ),
    )


def _chosen(
    cluster: Cluster,
    topology: Topology,
    device: DeviceSpec,
    *,
    staying: Collection[NodeName],
    dropped: Collection[NodeName],
    missing: int,
    accepted: Collection[str],
) -> tuple[NodeName, ...]:
    pool = topology.pool(device.pool)
    members = () if pool is None else pool.nodes
    open_to = [node for node in members if node not in staying and node not in dropped]
    against = {node: new_replica_problems(cluster, device, node) for node in open_to}
    usable = [node for node in open_to if not against[node]]
    first: tuple[NodeName, ...] = ()
    if len(usable) < missing:
        # Each of those is taken: site, rack and room choose among the others alone.
        first = tuple(usable)
        against = {node: new_replica_problems(cluster, device, node, accepted) for node in open_to}
        usable = [node for node in open_to if not against[node]]
    if len(usable) < missing:
        needed = device.size.bytes + metadata_bytes(device.size.bytes)
        raise Refused(
            Problem(
                "SAN-DEV-005",
                f"{missing} more {'node is' if missing == 1 else 'nodes are'} needed with "
                f"{format_bytes(needed)} of room in pool {device.pool}, and "
                f"{len(usable) or 'none'} could",
                "add storage nodes to the pool, or make room",
            ),
            *(problem for node in open_to for problem in against[node]),
        )
    return choose_nodes(
        placement_candidates(cluster, topology, device.pool, usable),
        replicas=missing,
        pinned=first,
        beside=placement_candidates(cluster, topology, device.pool, staying),
    )
