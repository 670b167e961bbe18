# SPDX-License-Identifier: GPL-2.0-or-later
"""Which nodes shall hold a device's copies: those that were named, and those that are chosen.

The answer has to be the same while a change is under way, for it is asked again before each step
and by the same command run again: what was added counts as chosen, what was dropped as gone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sanctl.errors import Problem, Refused, UsageError
from sanctl.model.cluster import Cluster, NodeState
from sanctl.model.device import REPLICAS_RANGE, DeviceSpec
from sanctl.model.names import NodeName, format_bytes
from sanctl.model.topology import Topology
from sanctl.plan.device.creation import pool_node_problems
from sanctl.plan.device.placement import candidates_of, choose, metadata_bytes
from sanctl.plan.replicas.replica_safety import is_good, new_copy_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRequest:
    """How many copies are asked for, and where.

    Attributes:
        replicas: 1 to 4.
        add: nodes that are to have one.
        drop: nodes that are to have none.
    """

    replicas: int
    add: tuple[NodeName, ...] = ()
    drop: tuple[NodeName, ...] = ()


def read_level(replicas: str, add: Collection[str], drop: Collection[str]) -> LevelRequest:
    """Read the words of a request.

    Raises:
        UsageError: it is malformed or contradicts itself; all its problems are listed.
    """
    problems: list[Problem] = []
    count = int(replicas) if replicas.isascii() and replicas.isdecimal() else 0
    if count not in REPLICAS_RANGE:
        problems.append(
            Problem(
                "SAN-DEV-003",
                f"{replicas!r} is not a number of replicas",
                f"a device has {REPLICAS_RANGE[0]} to {REPLICAS_RANGE[-1]}",
            )
        )
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
    if count in REPLICAS_RANGE and len(named["--add"]) > count:
        problems.append(
            Problem(
                "SAN-REP-006",
                f"{len(named['--add'])} nodes are to be added, and {count} replicas wanted",
                "name no more nodes than there shall be replicas",
            )
        )
    if problems:
        raise UsageError(*problems)
    return LevelRequest(replicas=count, add=named["--add"], drop=named["--drop"])


def target_nodes(
    cluster: Cluster, topology: Topology, device: DeviceSpec, request: LevelRequest
) -> tuple[NodeName, ...]:
    """Return the nodes that shall hold the copies in the end; those that do come first.

    Raises:
        Refused: a node that was named cannot, or there are not enough that can.
    """
    problems = [
        problem
        for node in request.add
        if node not in device.nodes
        for problem in pool_node_problems(topology, device.pool, node)
    ]
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
                "say with --drop which is to go",
            )
        )
    while len(target) > request.replicas:
        target.remove(_least(cluster, device, target))
    missing = request.replicas - len(target)
    if missing > 0:
        target += _chosen(
            cluster, topology, device, staying=target, dropped=request.drop, missing=missing
        )
    return tuple(target)


def _least(cluster: Cluster, device: DeviceSpec, nodes: Collection[NodeName]) -> NodeName:
    """Return the copy that is missed least: one that is not good, or the last one that is."""
    active = cluster.active_node(device.name)
    order = {node: index for index, node in enumerate(device.nodes)}
    return max(
        nodes,
        key=lambda node: (
            not is_good(cluster, device, node),
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
) -> tuple[NodeName, ...]:
    pool = topology.pool(device.pool)
    members = () if pool is None else pool.nodes
    open_to = [node for node in members if node not in staying and node not in dropped]
    against = {node: new_copy_problems(cluster, device, node) for node in open_to}
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
    return choose(
        candidates_of(cluster, topology, device.pool, usable),
        replicas=missing,
        beside=candidates_of(cluster, topology, device.pool, staying),
    )
