# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether devices can be created as requested (all problems), and their CIB change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sanctl.errors import Problem, Refused
from sanctl.model.cib_names import clone_id
from sanctl.model.clone_origin import CloneOrigin
from sanctl.model.cluster import Cluster
from sanctl.model.device import (
    MINORS,
    DeviceSpec,
)
from sanctl.model.names import ByteSize, DeviceName, NodeName, PoolName
from sanctl.model.release_needs import RESERVATIONS
from sanctl.model.restore_point import RestorePoint
from sanctl.model.topology import Topology
from sanctl.plan.cache.policy_request import read_cache_problems
from sanctl.plan.cluster.preconditions import quorum_problems, unknown_pool_problem
from sanctl.plan.device.cloning import (
    clone_candidates,
    node_choice_problems,
    older_release_problem,
    origin_problems,
)
from sanctl.plan.device.creation_request import DeviceRequest
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
from sanctl.plan.device.reservations import keeping_problem
from sanctl.plan.device.restore_points import existing_point
from sanctl.plan.drbd.version_limits import drbd_version_problem, full_resync_problem
from sanctl.plan.host.access import host_iqn_problems
from sanctl.plan.host.definition import no_host_problem, unreadable_host_problems
from sanctl.plan.host.groups import group_problems, hosts_of_groups
from sanctl.render.device_elements import constraint_elements, device_element


def creation_problems(
    request: DeviceRequest, cluster: Cluster, topology: Topology, *, drbd_version: str | None
) -> tuple[Problem, ...]:
    """Return every reason in the cluster's state against a request."""
    problems: list[Problem] = [*quorum_problems(cluster)]
    point = _point_of(request, cluster, problems)
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
    problems.extend(
        problem for group in request.host_groups for problem in group_problems(cluster, group)
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
    request: DeviceRequest, cluster: Cluster, problems: list[Problem]
) -> RestorePoint | None:
    if request.origin is None:
        return None
    device, name = request.origin
    try:
        point = existing_point(cluster, device, name)
    except Refused as error:
        problems.extend(error.problems)
        return None
    problems.extend(origin_problems(cluster, point, pool=request.pool))
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
    # A node of an older release would also let hosts in to a device that is to be filled first.
    needs_this_release = point is not None or request.restore is not None
    problem = older_release_problem(cluster, pool, nodes) if needs_this_release else None
    if problem is not None:
        return problem
    keeping = keeping_problem(cluster, pool, nodes) if request.reservations else None
    if keeping is not None:
        return keeping
    minor = free_minor(cluster, MINORS)
    if minor is None:
        return Problem(
            "SAN-DEV-011",
            f"all {len(MINORS)} minor numbers are in use",
            "delete a device that is not needed any more first; a cluster has no more of them",
        )
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
        hosts=tuple(
            sorted(
                {
                    *(host for host in cluster.cib.hosts if host.name in request.hosts),
                    *hosts_of_groups(cluster, request.host_groups),
                }
            )
        ),
        host_groups=request.host_groups,
        origin=None if point is None else CloneOrigin.of(point),
        restore=request.restore,
        is_restoring=request.restore is not None,
        reservations=request.reservations,
        needs=(RESERVATIONS,) if request.reservations else (),
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
