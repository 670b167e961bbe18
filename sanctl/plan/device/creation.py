# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether devices can be created as requested (all problems), and their CIB change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sanctl.errors import Problem, Refused, UsageError
from sanctl.model.cache_policy import NO_CACHE, CachePolicy
from sanctl.model.clone_origin import CloneOrigin
from sanctl.model.cluster import Cluster, clone_id
from sanctl.model.device import (
    MINORS,
    REPLICAS_RANGE,
    DeviceSpec,
)
from sanctl.model.host import HostName
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName
from sanctl.model.restore_point import RestorePoint
from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY, SyncPolicy
from sanctl.model.topology import Topology
from sanctl.plan.cache.policy_request import read_cache_problems
from sanctl.plan.cluster.preconditions import quorum_problems, unknown_pool_problem
from sanctl.plan.device.cloning import (
    clone_candidates,
    node_choice_problems,
    older_release_problem,
    origin_problems,
)
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
from sanctl.plan.device.reserved_names import reserved_name_problem
from sanctl.plan.device.restore_points import existing_point, split_point
from sanctl.plan.drbd.version_limits import drbd_version_problem, full_resync_problem
from sanctl.plan.host.access import host_iqn_problems
from sanctl.plan.host.definition import no_host_problem, unreadable_host_problems
from sanctl.render.device_elements import constraint_elements, device_element

_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceArguments:
    """The arguments of `device create` as typed; a clone has an origin, and its size from that."""

    name: str
    size: str
    replicas: str
    origin: str | None = None
    pool: str | None = None
    nodes: tuple[str, ...] = ()
    prefer: str | None = None
    initiators: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    sync: Mapping[str, str] = field(default_factory=dict)
    cache: CachePolicy = NO_CACHE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """A parsed request; None where an argument was malformed or not given."""

    name: DeviceName | None
    size: ByteSize | None
    replicas: int | None
    pool: PoolName | None
    nodes: tuple[NodeName, ...]
    prefer: NodeName | None
    initiators: tuple[Iqn, ...]
    malformed: tuple[Problem, ...]
    sync: SyncPolicy = DEFAULT_SYNC_POLICY
    is_pool_given: bool = False
    are_nodes_given: bool = False
    cache: CachePolicy = NO_CACHE
    hosts: tuple[HostName, ...] = ()
    origin: tuple[DeviceName, str] | None = None
    """The restore point that it is made from: a device and the restore point's name."""


@dataclass(slots=True)
class _Reader:
    problems: list[Problem] = field(default_factory=list)

    def read(self, parse: Callable[[str], _Parsed], text: str) -> _Parsed | None:
        try:
            return parse(text)
        except UsageError as error:
            self.problems.extend(error.problems)
            return None


def parse_device_request(arguments: DeviceArguments) -> DeviceRequest:
    """Parse the arguments of `device create`; malformed ones are collected, not raised."""
    reader = _Reader()
    name = reader.read(DeviceName.parse, arguments.name)
    reserved = reserved_name_problem(name) if name is not None else None
    reader.problems += [reserved] if reserved is not None else []
    size = reader.read(ByteSize.parse, arguments.size) if arguments.origin is None else None
    origin = reader.read(split_point, arguments.origin) if arguments.origin is not None else None
    if arguments.origin is not None and arguments.size:
        reader.problems.append(
            Problem(
                "SAN-CLONE-001",
                "a device that is made from a restore point has the size of that",
                "leave --size away; 'sanctl device resize' makes it larger afterwards",
            )
        )
    replicas = reader.read(parse_replica_count, arguments.replicas)
    pool = reader.read(PoolName.parse, arguments.pool) if arguments.pool is not None else None
    nodes = [reader.read(NodeName.parse, text) for text in arguments.nodes]
    known = tuple(node for node in nodes if node is not None)
    reader.problems.extend(
        Problem("SAN-DEV-007", f"node {node} is given twice", "name each node once")
        for node in sorted({node for node in known if known.count(node) > 1})
    )
    if arguments.nodes and replicas is not None and len(arguments.nodes) != replicas:
        reader.problems.append(
            Problem(
                "SAN-DEV-006",
                f"{replicas} replicas are asked for, and {len(arguments.nodes)} named: "
                f"{', '.join(arguments.nodes)}",
                "name one node for each replica, or none and let sanctl choose",
            )
        )
    prefer = reader.read(NodeName.parse, arguments.prefer) if arguments.prefer is not None else None
    if prefer is not None and len(known) == len(arguments.nodes) > 0 and prefer not in known:
        reader.problems.append(
            Problem(
                "SAN-DEV-008",
                f"preferred node {prefer} is not among the nodes {', '.join(map(str, known))}",
                "prefer one of the nodes that hold a replica",
            )
        )
    initiators: list[Iqn] = []
    for text in arguments.initiators:
        iqn = reader.read(Iqn.parse, text)
        if iqn is not None and iqn not in initiators:
            initiators.append(iqn)
    hosts = {reader.read(HostName.parse, text) for text in arguments.hosts}
    sync = DEFAULT_SYNC_POLICY
    try:
        sync = DEFAULT_SYNC_POLICY.changed(arguments.sync)
    except UsageError as error:
        reader.problems.extend(error.problems)
    if size is not None:
        subject = "the device" if name is None else f"device {name}"
        reader.problems.extend(read_cache_problems(subject, size, arguments.cache.read_bytes))
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
        is_pool_given=arguments.pool is not None,
        are_nodes_given=bool(arguments.nodes),
        cache=arguments.cache,
        hosts=tuple(sorted(each for each in hosts if each is not None)),
        origin=origin,
    )


def parse_replica_count(text: str) -> int:
    """Return a number of replicas.

    Raises:
        UsageError: it is no number, or no device can have so many.
    """
    # Compared as text: what has thousands of digits is no int (SAN-BUG-001).
    if text not in map(str, REPLICAS_RANGE):
        raise UsageError(
            Problem(
                "SAN-DEV-003",
                f"{text!r} is not a number of replicas",
                f"a device has {REPLICAS_RANGE[0]} to {REPLICAS_RANGE[-1]}",
            )
        )
    return int(text)


def creation_problems(
    request: DeviceRequest, cluster: Cluster, topology: Topology, *, drbd_version: str | None
) -> tuple[Problem, ...]:
    """Return every reason in the cluster's state against a request."""
    problems: list[Problem] = [*quorum_problems(cluster)]
    point = _point_of(request, cluster, problems, drbd_version)
    if point is not None:
        request = _with_origin(request, point)
    elif request.origin is not None:
        # Without it no pool is known, and that is no problem of its own.
        request = replace(request, is_pool_given=True)
    if request.name is not None:
        problems.extend(_name_problems(request.name, cluster))
    if request.replicas is not None:
        lacking = drbd_version_problem(request.replicas, drbd_version)
        problems += [lacking] if lacking is not None else []
    unable = full_resync_problem(request.sync.full_above_percent, drbd_version)
    problems += [unable] if unable is not None else []
    problems.extend(host_iqn_problems(cluster, request.initiators))
    problems.extend(unreadable_host_problems(cluster) if request.initiators else ())
    problems.extend(
        no_host_problem(cluster, host) for host in request.hosts if cluster.cib.host(host) is None
    )
    pool = _pool_of(request, topology, problems)
    named = tuple(dict.fromkeys((*request.nodes, *((request.prefer,) if request.prefer else ()))))
    sound = [node for node in named if is_storage_node(node, topology, problems)]
    if pool is None:
        return tuple(problems)
    members = topology.pool(pool)
    assert members is not None
    for node in sound:
        problems.extend(pool_membership_problems(topology, pool, node))
    if request.replicas is not None and request.replicas > len(members.nodes):
        problems.append(
            Problem(
                "SAN-DEV-005",
                f"{request.replicas} replicas need {request.replicas} nodes; "
                f"pool {pool} is on {len(members.nodes)}",
                "ask for fewer replicas, or add storage nodes to the pool",
            )
        )
    if request.size is None or (request.are_nodes_given and len(sound) < len(named)):
        return tuple(problems)
    usable: list[NodeName] = []
    if request.are_nodes_given:
        for node in sound:
            if node in members.nodes:
                problems.extend(node_problems(cluster, pool, node, request.size.bytes))
    elif request.replicas is not None and request.replicas <= len(members.nodes):
        against = {
            node: node_problems(cluster, pool, node, request.size.bytes) for node in members.nodes
        }
        usable = [node for node, objection in against.items() if not objection]
        if len(usable) < request.replicas:
            problems.extend(problem for node in sorted(against) for problem in against[node])
        elif request.prefer is not None:
            problems.extend(against.get(request.prefer, ()))
    if point is not None:
        problems.extend(
            node_choice_problems(point, nodes=request.nodes, prefer=request.prefer, usable=usable)
        )
    return tuple(problems)


def _point_of(
    request: DeviceRequest, cluster: Cluster, problems: list[Problem], drbd_version: str | None
) -> RestorePoint | None:
    if request.origin is None:
        return None
    device, name = request.origin
    try:
        point = existing_point(cluster, device, name)
    except Refused as error:
        problems.extend(error.problems)
        return None
    problems.extend(origin_problems(cluster, point, pool=request.pool, drbd_version=drbd_version))
    size = ByteSize(bytes=point.size_bytes)
    problems.extend(read_cache_problems("the restore point", size, request.cache.read_bytes))
    return point


def _with_origin(request: DeviceRequest, point: RestorePoint) -> DeviceRequest:
    """Return the request with what a restore point says: size, and pool where none was named."""
    return replace(
        request,
        size=ByteSize(bytes=point.size_bytes),
        pool=request.pool or PoolName.parse(point.pool),
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
            "choose another name, or wait until that node is back and has removed it",
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


def _pool_of(
    request: DeviceRequest, topology: Topology, problems: list[Problem]
) -> PoolName | None:
    names = ", ".join(str(pool.name) for pool in topology.pools)
    if request.pool is not None:
        if topology.pool(request.pool) is not None:
            return request.pool
        problems.append(unknown_pool_problem(topology, request.pool))
    elif not request.is_pool_given:
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
    request: DeviceRequest, cluster: Cluster, topology: Topology, *, uuid: str
) -> DeviceSpec | Problem:
    """Return the device of a request without problems."""
    point = existing_point(cluster, *request.origin) if request.origin is not None else None
    if point is not None:
        request = _with_origin(request, point)
    assert request.name and request.size and request.replicas
    pool = request.pool or topology.pools[0].name
    members = topology.pool(pool)
    assert members is not None
    pinned: Sequence[NodeName] = (request.prefer,) if request.prefer else ()
    usable = tuple(
        node
        for node in (request.nodes or members.nodes)
        if not node_problems(cluster, pool, node, request.size.bytes)
    )
    if point is not None:
        usable, always = clone_candidates(point, usable, replicas=request.replicas)
        pinned = tuple(dict.fromkeys((*pinned, *always)))
    candidates = placement_candidates(cluster, topology, pool, usable)
    nodes = place_device(candidates, replicas=request.replicas, pinned=pinned)
    problem = older_release_problem(cluster, pool, nodes) if point is not None else None
    if problem is not None:
        return problem
    minor = free_minor(cluster, MINORS)
    if minor is None:
        return Problem("SAN-DEV-011", f"all {len(MINORS)} minor numbers are in use")
    device = DeviceSpec(
        name=request.name,
        uuid=uuid,
        size=request.size,
        pool=pool,
        replicas=request.replicas,
        nodes=nodes,
        minor=minor,
        initiators=request.initiators,
        prefer=request.prefer,
        sync=request.sync,
        is_new=True,
        cache=request.cache,
        hosts=tuple(host for host in cluster.cib.hosts if host.name in request.hosts),
        origin=None if point is None else CloneOrigin.of(point),
    )
    clash = sorted(cluster.cib.ids.intersection(_identifiers(device)))
    if clash:
        return Problem(
            "SAN-DEV-009",
            f"something else in the CIB has the id {clash[0]}",
            "choose another name for the device",
        )
    return device


def plan_creations(
    requests: Sequence[tuple[DeviceRequest, str]],
    cluster: Cluster,
    topology: Topology,
    *,
    drbd_version: str | None,
) -> tuple[DeviceSpec, ...]:
    """Return the devices of several requests, each placed beside those before it.

    One change of the CIB creates all of them, or none.

    Args:
        requests: requests without malformed arguments, each with a new device's UUID.
        cluster: as it is before the first of them.
        topology: the cluster's nodes and pools.
        drbd_version: the kernel's DRBD, None where that is not known.

    Raises:
        Refused: for one of them at least; every reason is listed, with the device's name where
            several are requested.
    """
    problems: list[Problem] = []
    devices: list[DeviceSpec] = []
    for request, uuid in requests:
        against = creation_problems(request, cluster, topology, drbd_version=drbd_version)
        if not against:
            planned = plan_creation(request, cluster, topology, uuid=uuid)
            if isinstance(planned, DeviceSpec):
                devices.append(planned)
                cluster = _with_device(cluster, planned)
                continue
            against = (planned,)
        for problem in against:
            text = f"{request.name}: {problem.text}" if len(requests) > 1 else problem.text
            problems.append(Problem(problem.code, text, problem.hint))
    if problems:
        raise Refused(*dict.fromkeys(problems))
    return tuple(devices)


def _with_device(cluster: Cluster, device: DeviceSpec) -> Cluster:
    """Return the cluster with one device more, which no node serves yet."""
    cib = cluster.cib
    return replace(
        cluster,
        cib=replace(
            cib,
            devices=(*cib.devices, device),
            ids=cib.ids.union(_identifiers(device)),
        ),
    )


def _identifiers(device: DeviceSpec) -> tuple[str, ...]:
    """Return the ids of a device's elements in the CIB."""
    elements = (device_element(device), *constraint_elements(device))
    return tuple(
        identifier
        for element in elements
        for part in element.iter()
        if (identifier := part.get("id")) is not None
    )
