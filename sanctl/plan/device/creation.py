# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a device can be created as asked for, and how: every objection at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sanctl.errors import Problem, UsageError
from sanctl.model.cache_policy import NO_CACHE, Policy
from sanctl.model.cib_change import AddDevice, Change
from sanctl.model.cluster import Cluster, NodeState, clone_id
from sanctl.model.device import (
    MINOR_FIRST,
    MINOR_LAST,
    REPLICAS_RANGE,
    DeviceSpec,
)
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName, format_bytes
from sanctl.model.sync_policy import DEFAULT, SyncPolicy
from sanctl.model.topology import Role, Topology
from sanctl.plan.cache.policy_request import read_cache_objections
from sanctl.plan.device.placement import (
    candidates_of,
    free_minor,
    metadata_bytes,
    place,
    room_bytes,
)
from sanctl.plan.drbd.drbd_limits import generation_problem
from sanctl.render.device_elements import constraint_elements, device_element

_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """What was typed, word for word."""

    name: str
    size: str
    replicas: str
    pool: str | None = None
    nodes: tuple[str, ...] = ()
    prefer: str | None = None
    initiators: tuple[str, ...] = ()
    sync: Mapping[str, str] = field(default_factory=dict)
    cache: Policy = NO_CACHE


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A request whose words are well formed; None where they were not, or nothing was said."""

    name: DeviceName | None
    size: ByteSize | None
    replicas: int | None
    pool: PoolName | None
    nodes: tuple[NodeName, ...]
    prefer: NodeName | None
    initiators: tuple[Iqn, ...]
    malformed: tuple[Problem, ...]
    sync: SyncPolicy = DEFAULT
    asked_pool: bool = False
    asked_nodes: bool = False
    cache: Policy = NO_CACHE


@dataclass(slots=True)
class _Reader:
    problems: list[Problem] = field(default_factory=list)

    def read(self, parse: Callable[[str], _Parsed], text: str) -> _Parsed | None:
        try:
            return parse(text)
        except UsageError as error:
            self.problems.extend(error.problems)
            return None


def read_request(request: CreateRequest) -> Wish:
    """Read the words of a request; what is malformed is collected, not raised."""
    reader = _Reader()
    name = reader.read(DeviceName.parse, request.name)
    size = reader.read(ByteSize.parse, request.size)
    replicas = _read_replicas(request.replicas, reader.problems)
    pool = reader.read(PoolName.parse, request.pool) if request.pool is not None else None
    nodes = [reader.read(NodeName.parse, text) for text in request.nodes]
    known = tuple(node for node in nodes if node is not None)
    reader.problems.extend(
        Problem("SAN-DEV-007", f"node {node} is given twice", "name each node once")
        for node in sorted({node for node in known if known.count(node) > 1})
    )
    if request.nodes and replicas is not None and len(request.nodes) != replicas:
        reader.problems.append(
            Problem(
                "SAN-DEV-006",
                f"{replicas} replicas are asked for, and {len(request.nodes)} named: "
                f"{', '.join(request.nodes)}",
                "name one node for each replica, or none and let sanctl choose",
            )
        )
    prefer = reader.read(NodeName.parse, request.prefer) if request.prefer is not None else None
    if prefer is not None and len(known) == len(request.nodes) > 0 and prefer not in known:
        reader.problems.append(
            Problem(
                "SAN-DEV-008",
                f"preferred node {prefer} is not among the nodes {', '.join(map(str, known))}",
                "prefer one of the nodes that hold a replica",
            )
        )
    initiators: list[Iqn] = []
    for text in request.initiators:
        iqn = reader.read(Iqn.parse, text)
        if iqn is not None and iqn not in initiators:
            initiators.append(iqn)
    sync = DEFAULT
    try:
        sync = DEFAULT.changed(request.sync)
    except UsageError as error:
        reader.problems.extend(error.problems)
    if size is not None:
        subject = "the device" if name is None else f"device {name}"
        reader.problems.extend(read_cache_objections(subject, size, request.cache.read_bytes))
    return Wish(
        name=name,
        size=size,
        replicas=replicas,
        pool=pool,
        nodes=known,
        prefer=prefer,
        initiators=tuple(sorted(initiators)),
        sync=sync,
        malformed=tuple(reader.problems),
        asked_pool=request.pool is not None,
        asked_nodes=bool(request.nodes),
        cache=request.cache,
    )


def _read_replicas(text: str, problems: list[Problem]) -> int | None:
    if not (text.isascii() and text.isdecimal()) or int(text) not in REPLICAS_RANGE:
        problems.append(
            Problem(
                "SAN-DEV-003",
                f"{text!r} is not a number of replicas",
                f"a device has {REPLICAS_RANGE[0]} to {REPLICAS_RANGE[-1]}",
            )
        )
        return None
    return int(text)


def objections(
    wish: Wish, cluster: Cluster, topology: Topology, *, drbd_version: str | None
) -> tuple[Problem, ...]:
    """Return everything in the cluster's state that stands against a wish."""
    problems: list[Problem] = []
    if not cluster.mon.has_quorum:
        problems.append(no_quorum_problem())
    if wish.name is not None:
        problems.extend(_name_problems(wish.name, cluster))
    if wish.replicas is not None:
        lacking = generation_problem(wish.replicas, drbd_version)
        problems += [lacking] if lacking is not None else []
    pool = _pool_of(wish, topology, problems)
    named = tuple(dict.fromkeys((*wish.nodes, *((wish.prefer,) if wish.prefer else ()))))
    sound = [node for node in named if _is_storage_node(node, topology, problems)]
    if pool is None:
        return tuple(problems)
    members = topology.pool(pool)
    assert members is not None
    for node in sound:
        problems.extend(pool_node_problems(topology, pool, node))
    if wish.replicas is not None and wish.replicas > len(members.nodes):
        problems.append(
            Problem(
                "SAN-DEV-005",
                f"{wish.replicas} replicas need {wish.replicas} nodes; "
                f"pool {pool} is on {len(members.nodes)}",
                "ask for fewer replicas, or add storage nodes to the pool",
            )
        )
    if wish.size is None or (wish.asked_nodes and len(sound) < len(named)):
        return tuple(problems)
    if wish.asked_nodes:
        for node in sound:
            if node in members.nodes:
                problems.extend(node_problems(cluster, pool, node, wish.size.bytes))
    elif wish.replicas is not None and wish.replicas <= len(members.nodes):
        against = {
            node: node_problems(cluster, pool, node, wish.size.bytes) for node in members.nodes
        }
        usable = sum(1 for objection in against.values() if not objection)
        if usable < wish.replicas:
            problems.extend(problem for node in sorted(against) for problem in against[node])
        elif wish.prefer is not None:
            problems.extend(against.get(wish.prefer, ()))
    return tuple(problems)


def no_quorum_problem() -> Problem:
    """The refusal to change anything without quorum."""
    return Problem(
        "SAN-CLU-001",
        "the cluster, as this node sees it, has no quorum",
        "run the command on a node of the majority, or bring nodes back first",
    )


def _name_problems(name: DeviceName, cluster: Cluster) -> list[Problem]:
    if cluster.cib.device(name) is not None:
        return [
            Problem(
                "SAN-DEV-001",
                f"device {name} exists already",
                f"choose another name; 'sanctl device show {name}' shows what is there",
            )
        ]
    problems = [
        Problem(
            "SAN-DEV-010",
            f"data of a deleted device {name} is still to be removed on {stone.node}",
            "choose another name, or wait until that node is back and has done it",
        )
        for stone in cluster.cib.tombstones_of(name)
    ]
    if {name.value, clone_id(name)} & cluster.cib.ids:
        problems.append(
            Problem(
                "SAN-DEV-009",
                f"something else in the CIB is called {name} or {clone_id(name)}",
                "choose another name",
            )
        )
    return problems


def _pool_of(wish: Wish, topology: Topology, problems: list[Problem]) -> PoolName | None:
    names = ", ".join(str(pool.name) for pool in topology.pools)
    if wish.pool is not None:
        if topology.pool(wish.pool) is not None:
            return wish.pool
        problems.append(
            Problem("SAN-POOL-011", f"there is no pool {wish.pool}", f"cluster.toml has: {names}")
        )
    elif not wish.asked_pool:
        if len(topology.pools) == 1:
            return topology.pools[0].name
        problems.append(
            Problem(
                "SAN-POOL-015",
                "the cluster has no pool" if not names else "the cluster has several pools",
                f"say which with --pool: {names}" if names else "add one to cluster.toml",
            )
        )
    return None


def pool_node_problems(topology: Topology, pool: PoolName, node: NodeName) -> tuple[Problem, ...]:
    """Return why a node cannot hold a replica in that pool, whatever its state."""
    problems: list[Problem] = []
    entry = topology.pool(pool)
    members = () if entry is None else entry.nodes
    if _is_storage_node(node, topology, problems) and node not in members:
        problems.append(
            Problem(
                "SAN-POOL-014",
                f"node {node} has no pool {pool}",
                f"pool {pool} is on {', '.join(map(str, members))}",
            )
        )
    return tuple(problems)


def _is_storage_node(node: NodeName, topology: Topology, problems: list[Problem]) -> bool:
    entry = topology.node(node)
    if entry is None:
        known = ", ".join(str(known.name) for known in topology.nodes)
        problems.append(
            Problem("SAN-NODE-001", f"there is no node {node}", f"cluster.toml has: {known}")
        )
        return False
    if entry.role is not Role.STORAGE:
        storage = ", ".join(str(known.name) for known in topology.storage_nodes)
        problems.append(
            Problem(
                "SAN-NODE-002",
                f"node {node} is a {entry.role.value}: it cannot hold a replica",
                f"storage nodes are: {storage}",
            )
        )
        return False
    return True


def node_problems(
    cluster: Cluster, pool: PoolName, node: NodeName, size_bytes: int
) -> tuple[Problem, ...]:
    """Return why a node cannot take a replica of that size now."""
    state = cluster.mon.state(node)
    if state is not NodeState.ONLINE:
        return (
            Problem(
                "SAN-NODE-003",
                f"node {node} is {state.value}",
                "a replica is made on a node that is online: see 'sanctl node list'",
            ),
        )
    room = room_bytes(cluster, pool, node)
    if room is None:
        usage = cluster.pool(pool, node)
        reason = "it has published nothing yet" if usage is None else usage.error
        return (
            Problem(
                "SAN-POOL-013",
                f"pool {pool} on {node} cannot be used: {reason}",
                f"look at it with 'sanctl doctor' on {node}",
            ),
        )
    needed = size_bytes + metadata_bytes(size_bytes)
    if needed > room:
        return (
            Problem(
                "SAN-POOL-012",
                f"pool {pool} on {node} has room for {format_bytes(room)}, "
                f"{format_bytes(needed)} are needed",
                "room is free space less what other devices may still write",
            ),
        )
    return ()


def draft(
    wish: Wish, cluster: Cluster, topology: Topology, *, uuid: str
) -> tuple[DeviceSpec, tuple[Change, ...]] | Problem:
    """Turn a wish without objections into a device and the change that creates it."""
    assert wish.name and wish.size and wish.replicas
    pool = wish.pool or topology.pools[0].name
    members = topology.pool(pool)
    assert members is not None
    pinned: Sequence[NodeName] = (wish.prefer,) if wish.prefer else ()
    candidates = candidates_of(
        cluster,
        topology,
        pool,
        [
            node
            for node in (wish.nodes or members.nodes)
            if not node_problems(cluster, pool, node, wish.size.bytes)
        ],
    )
    nodes = place(candidates, replicas=wish.replicas, pinned=pinned)
    minor = free_minor(cluster, range(MINOR_FIRST, MINOR_LAST + 1))
    if minor is None:
        return Problem("SAN-DEV-011", f"all {MINOR_LAST} minor numbers are in use")
    device = DeviceSpec(
        name=wish.name,
        uuid=uuid,
        size=wish.size,
        pool=pool,
        replicas=wish.replicas,
        nodes=nodes,
        minor=minor,
        initiators=wish.initiators,
        prefer=wish.prefer,
        sync=wish.sync,
        is_new=True,
        cache=wish.cache,
    )
    elements = (device_element(device), *constraint_elements(device))
    clash = sorted(
        identifier
        for element in elements
        for part in element.iter()
        if (identifier := part.get("id")) in cluster.cib.ids
        if identifier is not None
    )
    if clash:
        return Problem(
            "SAN-DEV-009",
            f"something else in the CIB has the id {clash[0]}",
            "choose another name for the device",
        )
    return device, (AddDevice(device=device),)
