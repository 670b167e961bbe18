# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: the CIB change for node standby and online, and which devices would then stop."""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import Change, RemoveNodeAttribute, SetNodeAttribute
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName
from sanctl.plan.cluster.preconditions import existing_node, refuse_without_quorum

ACCEPT_STOP = "SAN-NODE-004"


def takeover_obstacle(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str | None:
    """Return what keeps a node from serving a device now; None when nothing is known to."""
    state = cluster.mon.state(node)
    if state is not NodeState.ONLINE:
        return f"{node} is {state.value}"
    if node.value in cluster.cib.drained:
        return f"{node} is drained"
    replica = cluster.replica(device.name, node)
    if not replica.is_up_to_date:
        return f"the replica on {node} is {replica.brief()}"
    if cluster.is_marked(device, node):
        return f"the replica on {node} is marked as outdated"
    if replica.is_suspect:
        return f"the replica on {node} is suspect"
    if replica.lacks:
        return f"the release of sanctl on {node} does not know what it needs"
    return None


def stranded_devices(cluster: Cluster, name: NodeName) -> tuple[DeviceName, ...]:
    """Return the devices a node serves that no other node could serve now."""
    return tuple(
        device.name
        for device in cluster.cib.devices
        if name.value in cluster.mon.active_nodes(device.name)
        and not any(
            other != name and takeover_obstacle(cluster, device, other) is None
            for other in device.nodes
        )
    )


def stop_problems(cluster: Cluster, name: NodeName) -> tuple[Problem, ...]:
    """Return which devices would stop, or may, if a node served nothing any more.

    Of a device that cannot be read nothing says where its other replicas are.
    """
    return (
        *(
            Problem(
                ACCEPT_STOP,
                f"device {device} would stop: no other node has an up-to-date replica of it",
                f"wait for the resync, or accept that with --accept {ACCEPT_STOP}",
            )
            for device in stranded_devices(cluster, name)
        ),
        *(
            Problem(
                ACCEPT_STOP,
                f"device {identifier} may stop: {name} serves it, and its entry in the CIB cannot "
                f"be read ({reason}), so whether another node can is not known",
                "upgrade sanctl on this node if a later release made the entry; else correct it; "
                f"or accept that with --accept {ACCEPT_STOP}",
            )
            for identifier, reason in cluster.cib.unreadable
            if name.value in cluster.mon.active_nodes(identifier)
        ),
    )


def plan_standby(
    cluster: Cluster, name: NodeName, *, accepted: Collection[str] = ()
) -> tuple[Change, ...]:
    """Return the change that puts a node into standby; nothing when it is in standby.

    Raises:
        Refused: a device would stop being served, or may, and that was not accepted.
    """
    node = existing_node(cluster, name)
    refuse_without_quorum(cluster)
    if node.wants_standby:
        return ()
    problems = stop_problems(cluster, name)
    if problems and ACCEPT_STOP not in accepted:
        raise Refused(*problems)
    return (SetNodeAttribute(node=name, attribute="standby", value="on"),)


def check_fencing(cluster: Cluster, name: NodeName) -> None:
    """Check that a node exists and that something could fence it.

    Raises:
        Refused: it does not, or nothing can.
    """
    existing_node(cluster, name)
    # A fencing device without a host list asks its hardware; it may be for this node.
    if not any(not f.targets or name.value in f.targets for f in cluster.cib.fencing):
        raise Refused(
            Problem(
                "SAN-FEN-004",
                f"no fencing device is for node {name}",
                "run the rollout again with a fencing device for it",
            )
        )


def plan_online(cluster: Cluster, name: NodeName) -> tuple[Change, ...]:
    """Return the change that ends a node's standby; nothing when it is in none."""
    node = existing_node(cluster, name)
    refuse_without_quorum(cluster)
    if "standby" not in node.attributes:
        return ()
    return (RemoveNodeAttribute(node=name, attribute="standby"),)
