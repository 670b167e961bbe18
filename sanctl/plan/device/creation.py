# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a device can be created as asked for, and how: every objection at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sanctl.errors import Problem, UsageError
from sanctl.model.cache_policy import NO_CACHE, CachePolicy
from sanctl.model.cib_change import AddDevice, Change
from sanctl.model.cluster import Cluster, clone_id
from sanctl.model.device import (
    MINOR_FIRST,
    MINOR_LAST,
    REPLICAS_RANGE,
    DeviceSpec,
)
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName
from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY, SyncPolicy
from sanctl.model.topology import Topology
from sanctl.plan.cache.policy_request import read_cache_problems
from sanctl.plan.cluster.preconditions import quorum_problems
from sanctl.plan.device.node_eligibility import (
    is_storage_node,
    node_problems,
    pool_membership_problems,
)
from sanctl.plan.device.placement import (
    free_minor,
    place_device,
    placement_candidates,
)
from sanctl.plan.drbd.version_limits import drbd_version_problem
from sanctl.render.device_elements import constraint_elements, device_element

_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceArguments:
    """What was typed, word for word."""

    name: str
    size: str
    replicas: str
    pool: str | None = None
    nodes: tuple[str, ...] = ()
    prefer: str | None = None
    initiators: tuple[str, ...] = ()
    sync: Mapping[str, str] = field(default_factory=dict)
    cache: CachePolicy = NO_CACHE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """A request whose words are well formed; None where they were not, or nothing was said."""

    name: DeviceName | None
    size: ByteSize | None
    replicas: int | None
    pool: PoolName | None
    nodes: tuple[NodeName, ...]
    prefer: NodeName | None
    initiators: tuple[Iqn, ...]
    malformed: tuple[Problem, ...]
    sync: SyncPolicy = DEFAULT_SYNC_POLICY
    asked_pool: bool = False
    asked_nodes: bool = False
    cache: CachePolicy = NO_CACHE


@dataclass(slots=True)
class _Reader:
    problems: list[Problem] = field(default_factory=list)

    def read(self, parse: Callable[[str], _Parsed], text: str) -> _Parsed | None:
        try:
            return parse(text)
        except UsageError as error:
            self.problems.extend(error.problems)
            return None


def parse_device_request(request: DeviceArguments) -> DeviceRequest:
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
    sync = DEFAULT_SYNC_POLICY
    try:
        sync = DEFAULT_SYNC_POLICY.changed(request.sync)
    except UsageError as error:
        reader.problems.extend(error.problems)
    if size is not None:
        subject = "the device" if name is None else f"device {name}"
        reader.problems.extend(read_cache_problems(subject, size, request.cache.read_bytes))
    return DeviceRequest(
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


def creation_problems(
    wish: DeviceRequest, cluster: Cluster, topology: Topology, *, drbd_version: str | None
) -> tuple[Problem, ...]:
    """Return everything in the cluster's state that stands against a wish."""
    problems: list[Problem] = [*quorum_problems(cluster)]
    if wish.name is not None:
        problems.extend(_name_problems(wish.name, cluster))
    if wish.replicas is not None:
        lacking = drbd_version_problem(wish.replicas, drbd_version)
        problems += [lacking] if lacking is not None else []
    pool = _pool_of(wish, topology, problems)
    named = tuple(dict.fromkeys((*wish.nodes, *((wish.prefer,) if wish.prefer else ()))))
    sound = [node for node in named if is_storage_node(node, topology, problems)]
    if pool is None:
        return tuple(problems)
    members = topology.pool(pool)
    assert members is not None
    for node in sound:
        problems.extend(pool_membership_problems(topology, pool, node))
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


def _pool_of(wish: DeviceRequest, topology: Topology, problems: list[Problem]) -> PoolName | None:
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


def plan_creation(
    wish: DeviceRequest, cluster: Cluster, topology: Topology, *, uuid: str
) -> tuple[DeviceSpec, tuple[Change, ...]] | Problem:
    """Turn a wish without objections into a device and the change that creates it."""
    assert wish.name and wish.size and wish.replicas
    pool = wish.pool or topology.pools[0].name
    members = topology.pool(pool)
    assert members is not None
    pinned: Sequence[NodeName] = (wish.prefer,) if wish.prefer else ()
    candidates = placement_candidates(
        cluster,
        topology,
        pool,
        [
            node
            for node in (wish.nodes or members.nodes)
            if not node_problems(cluster, pool, node, wish.size.bytes)
        ],
    )
    nodes = place_device(candidates, replicas=wish.replicas, pinned=pinned)
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
