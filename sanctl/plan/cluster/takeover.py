# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what keeps a node from serving a device, and which devices would have no node left."""

from __future__ import annotations

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName
from sanctl.plan.cluster.preconditions import unmanaged_problems

#: A node in maintenance goes on serving what it serves.
_SERVES_ON = frozenset({NodeState.ONLINE, NodeState.MAINTENANCE})
#: A constraint ends by the clock of the DC.
_CLOCKS_DIFFER_S = 60.0


def takeover_obstacle(
    cluster: Cluster, device: DeviceSpec, node: NodeName, *, waits_until_s: float | None = None
) -> str | None:
    """Return what keeps a node from serving a device now; None when nothing is known to.

    `waits_until_s` as for `constraint_obstacle`.
    """
    state = cluster.mon.state(node)
    if state is not NodeState.ONLINE:
        return f"{node} is {state.value}"
    leaving = leaving_reason(cluster, node.value)
    if leaving is not None:
        return leaving
    return constraint_obstacle(
        cluster, device, node, waits_until_s=waits_until_s
    ) or replica_obstacle(cluster, device, node)


def constraint_obstacle(
    cluster: Cluster, device: DeviceSpec, node: NodeName, *, waits_until_s: float | None = None
) -> str | None:
    """Return which constraint of others keeps a device off a node; None: none is known to.

    What refuses goes by all that may. What waits for a device to move gives the end of its wait in
    seconds since 1970, by this node's clock: where it takes a device for stranded that Pacemaker
    moves after all, the node stops in the middle.
    """
    for each in cluster.cib.constraints_of(device.name):
        if waits_until_s is not None and not each.is_ban_until(waits_until_s + _CLOCKS_DIFFER_S):
            continue
        # One whose rule names no node may be about this one; one that has ended, by Pacemaker's
        # clock, counts until it is removed.
        if each.is_ban and each.node in {"", node.value}:
            return f"constraint {each.id} keeps it off {node}: '{each.removal}'"
    return None


def replica_obstacle(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str | None:
    """Return why a replica is none that may be served; None when nothing is known against it."""
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


def leaving_reason(cluster: Cluster, node: str) -> str | None:
    """Return why a node is about to serve nothing any more; None: it is not known to be."""
    state = cluster.mon.state(node)
    if state not in _SERVES_ON:
        return f"{node} is {state.value}"
    if any(each.name.value == node and each.wants_standby for each in cluster.cib.nodes):
        return f"{node} goes into standby"
    if node in cluster.cib.drained:
        return f"{node} is drained"
    if cluster.mon.is_being_fenced(node):
        return f"{node} is being fenced"
    return None


def stranded_reason(
    cluster: Cluster, device: DeviceSpec, leaving: NodeName, *, waits_until_s: float | None = None
) -> str | None:
    """Return why no other node would take over a device from a leaving node; None: one would.

    `waits_until_s` as for `constraint_obstacle`.
    """
    if not cluster.mon.has_quorum:
        return "there is no quorum"
    if unmanaged_problems(cluster, device):
        return "Pacemaker is told to leave the device alone"
    reasons = [
        takeover_obstacle(cluster, device, other, waits_until_s=waits_until_s)
        for other in device.nodes
        if other != leaving
    ]
    if None in reasons:
        return None
    return ", ".join(reason for reason in reasons if reason) or "the device has no other replica"


def lost_without(
    cluster: Cluster, device: DeviceSpec, node: NodeName, *, waits_until_s: float | None = None
) -> str | None:
    """Return why a device would be served no more, or not again, without a node; None: it would.

    Also where the node does not serve it yet: two nodes that leave one after the other leave
    nobody, where the device is still on its way from the first to the second. And where the node is
    drained: it is the one that could serve it again. `waits_until_s` as for `constraint_obstacle`.
    """
    if node.value not in cluster.mon.active_nodes(device.name) and (
        device.is_stopping
        or node not in device.nodes
        or has_lasting_server(cluster, device.name)
        or replica_obstacle(cluster, device, node) is not None
    ):
        return None
    return stranded_reason(cluster, device, node, waits_until_s=waits_until_s)


def has_lasting_server(cluster: Cluster, name: DeviceName | str) -> bool:
    """Whether a node serves a device that is not about to leave."""
    return any(leaving_reason(cluster, server) is None for server in cluster.mon.active_nodes(name))
