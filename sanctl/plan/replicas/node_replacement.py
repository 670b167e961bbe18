# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what `node replace OLD NEW` requests of `device replicas`, device by device."""

from __future__ import annotations

from sanctl.errors import Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName
from sanctl.plan.cluster.preconditions import (
    existing_node,
    refuse_without_quorum,
    unreadable_device_problems,
)
from sanctl.plan.replicas.replica_choice import ReplicaRequest
from sanctl.plan.replicas.replica_safety import is_known_up_to_date


def plan_replacement(
    cluster: Cluster, old: NodeName, new: NodeName
) -> tuple[tuple[DeviceName, ReplicaRequest], ...]:
    """Return the request for each device, in the order of their names.

    A device that has fewer replicas than wanted is included: where the replica had to be dropped
    before the new one could be added, an interrupted replacement has left it like that. So is one
    whose replica on the new node is not in sync yet.

    Raises:
        Refused: the new node does not exist, or is the old one; no quorum; or a device cannot be
            read: it would be left out, and the old node taken for one without replicas.
    """
    existing_node(cluster, new)
    if old == new:
        raise Refused(
            Problem("SAN-REP-006", f"{old} cannot replace itself", "name two different nodes")
        )
    refuse_without_quorum(cluster)
    unread = unreadable_device_problems(
        cluster,
        f"may have a replica on {old}; 'sanctl device replicas' moves those of other devices",
    )
    if unread:
        raise Refused(*unread)
    return tuple(
        (device.name, replacement_request(device, old, new))
        for device in cluster.cib.devices
        if not device.is_stopping
        and (
            old in device.nodes
            or len(device.nodes) < device.replicas
            or (new in device.nodes and not is_known_up_to_date(cluster, device, new))
        )
    )


def replacement_request(device: DeviceSpec, old: NodeName, new: NodeName) -> ReplicaRequest:
    """Return the request for one device.

    Where the new node has a replica already, another node is chosen; else the new node gets the
    old one's.
    """
    return ReplicaRequest(
        replicas=device.replicas,
        add=() if new in device.nodes and old in device.nodes else (new,),
        drop=(old,),
    )
