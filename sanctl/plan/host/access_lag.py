# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which nodes do not carry out a change of an access list, however long one waits.

A node in maintenance is told nothing, and neither is one whose Pacemaker was stopped meanwhile: in
maintenance Pacemaker stops without stopping anything, so its target goes on letting hosts in.
"""

from __future__ import annotations

from typing import NamedTuple

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.device import DeviceSpec, access_digest
from sanctl.model.names import DeviceName, NodeName
from sanctl.plan.cluster.convergence import nodes_with_other_access
from sanctl.plan.cluster.preconditions import kept_nodes


class AccessLag(NamedTuple):
    """A node on which a device's access list is not in force, or may not be.

    Attributes:
        device: the device.
        node: the node, which is in maintenance.
        is_seen: its Pacemaker runs; else nothing is known of it, and it may be off.
    """

    device: DeviceName
    node: NodeName
    is_seen: bool


def unseen_nodes(cluster: Cluster, device: DeviceSpec) -> tuple[NodeName, ...]:
    """Return the nodes with a replica that are in maintenance and whose Pacemaker does not run."""
    maintained = {each.name for each in cluster.cib.nodes if each.wants_maintenance}
    return tuple(
        node
        for node in device.nodes
        if node in maintained and cluster.mon.state(node) not in MEMBER_STATES
    )


def not_waited_for(cluster: Cluster, device: DeviceSpec) -> tuple[NodeName, ...]:
    """Return the nodes that carry out no change of a device before their maintenance ends."""
    return (*kept_nodes(cluster, device), *unseen_nodes(cluster, device))


def access_lags(cluster: Cluster, device: DeviceSpec) -> tuple[AccessLag, ...]:
    """Return on which nodes in maintenance a device's access list is not in force."""
    others = nodes_with_other_access(cluster, device, access_digest(device.access))
    kept, unseen = kept_nodes(cluster, device), unseen_nodes(cluster, device)
    return tuple(
        AccessLag(device.name, node, node in kept)
        for node in device.nodes
        if node in unseen or (node in kept and node in others)
    )
