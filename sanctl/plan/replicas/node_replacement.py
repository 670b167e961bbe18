# SPDX-License-Identifier: GPL-2.0-or-later
"""Replacing a node: what is asked of each device that has a copy there, or lacks one already."""

from __future__ import annotations

from sanctl.errors import Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName
from sanctl.plan.cluster.node_service import existing_node
from sanctl.plan.device.creation import no_quorum_problem
from sanctl.plan.replicas.replica_choice import LevelRequest
from sanctl.plan.replicas.replica_safety import is_good


def replacements(
    cluster: Cluster, old: NodeName, new: NodeName
) -> tuple[tuple[DeviceName, LevelRequest], ...]:
    """Return what is asked of each device, in the order of their names.

    A device that has fewer copies than wanted is among them: where the copy had to be dropped
    before the new one could be added, an interrupted replacement has left it like that. So is one
    whose copy on the new node is not in sync yet.

    Raises:
        Refused: the new node is not there, or is the old one; or no quorum.
    """
    existing_node(cluster, new)
    if old == new:
        raise Refused(
            Problem("SAN-REP-006", f"{old} cannot take its own place", "name two different nodes")
        )
    if not cluster.mon.has_quorum:
        raise Refused(no_quorum_problem())
    return tuple(
        (device.name, replacement_of(device, old, new))
        for device in cluster.cib.devices
        if not device.is_stopping
        and (
            old in device.nodes
            or len(device.nodes) < device.replicas
            or (new in device.nodes and not is_good(cluster, device, new))
        )
    )


def replacement_of(device: DeviceSpec, old: NodeName, new: NodeName) -> LevelRequest:
    """Return what is asked of one device.

    Where the new node has a copy already, another is chosen; where only the old one has a copy to
    be moved, the new one gets it.
    """
    return LevelRequest(
        replicas=device.replicas,
        add=() if new in device.nodes and old in device.nodes else (new,),
        drop=(old,),
    )
