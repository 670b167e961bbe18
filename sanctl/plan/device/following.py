# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which resource of Pacemaker a device may follow, and what holds while it does."""

from __future__ import annotations

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import AddFollow, Change, RemoveFollow
from sanctl.model.cib_names import follow_id
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, Role
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName
from sanctl.plan.cluster.preconditions import existing_device, refuse_unless_changeable

#: Where an instance in one of these roles is, the resource runs, or is about to.
_RUNS = frozenset({Role.STARTED, Role.STARTING, Role.PROMOTED, Role.UNPROMOTED})
_NAMED = 8


def plan_follow(cluster: Cluster, name: DeviceName, resource: str | None) -> tuple[Change, ...]:
    """Return the change by which a device follows a resource, or none any more.

    Nothing when that is so already.

    Raises:
        Refused: Pacemaker has no such resource, or would not carry the change out; or a node with a
            replica has a release that does not know this.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    current = cluster.cib.follow(name)
    if resource == (current.resource if current is not None else None):
        return ()
    leftover: tuple[Change, ...] = (RemoveFollow(name=name),) if current is not None else ()
    if resource is None:
        return leftover
    problem = _resource_problem(cluster, resource) or _release_problem(cluster, device)
    # A device called NAME-follow, of a release that did not reserve this.
    if problem is None and current is None and follow_id(name) in cluster.cib.ids:
        problem = Problem(
            "SAN-DEV-026",
            f"the CIB has another element {follow_id(name)}",
            "that id is needed for the constraint",
        )
    if problem is not None:
        raise Refused(problem)
    return (*leftover, AddFollow(name=name, resource=resource))


def _resource_problem(cluster: Cluster, resource: str) -> Problem | None:
    if resource in cluster.cib.guests:
        return None
    known = sorted(cluster.cib.guests)
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return Problem(
        "SAN-DEV-026",
        f"Pacemaker has no resource {resource!r} that a device could follow",
        f"one of {', '.join(known[:_NAMED])}{more}"
        if known
        else "there is none: a primitive, or a group, that runs on one node at a time",
    )


def _release_problem(cluster: Cluster, device: DeviceSpec) -> Problem | None:
    """Return the problem of nodes whose release gives a disconnected replica too high a score.

    With the guest there Pacemaker would take the device from a Primary that hosts do not reach to
    such a replica, which may be behind (model/promotion_score.py). A node that says nothing may
    be one of these.
    """
    older = [
        node
        for node in device.nodes
        if not ((usage := cluster.pool(device.pool, node)) and usage.follows_guests)
    ]
    if not older:
        return None
    return Problem(
        "SAN-DEV-028",
        f"the release of sanctl on {', '.join(map(str, older))} does not say that its devices can "
        "follow a guest",
        "run the playbook on all nodes, and try again after half a minute",
    )


def guest_nodes(cluster: Cluster, resource: str) -> tuple[str, ...]:
    """Return the nodes that a resource runs on, as far as they are members; none: it is stopped."""
    found = {
        instance.node
        for primitive in cluster.cib.guests.get(resource, ())
        for instance in cluster.mon.instances_of(primitive)
        if instance.role in _RUNS and cluster.mon.state(instance.node) in MEMBER_STATES
    }
    return tuple(sorted(found))


def way_back_problem(cluster: Cluster, device: DeviceSpec, node: NodeName) -> Problem | None:
    """Return why a device would not stay on a node: the guest that it follows is on another.

    None where nothing would bring it back: it follows none, that one is stopped, or is where the
    device has no replica.
    """
    follow = cluster.cib.follow(device.name)
    if follow is None:
        return None
    nodes = guest_nodes(cluster, follow.resource)
    replicas = {each.value for each in device.nodes}
    if node.value in nodes or not replicas & set(nodes):
        return None
    return Problem(
        "SAN-DEV-027",
        f"device {device.name} follows {follow.resource}, which runs on {', '.join(nodes)}: it "
        f"would go back there from {node}",
        f"move {follow.resource}, and the device moves with it; or "
        f"'sanctl device follow {device.name} --none' first",
    )
