# SPDX-License-Identifier: GPL-2.0-or-later
"""Emptying a node that is about to leave: what moves away, and what cannot, with the reason.

A drained node may serve nothing, while its replicas go on: so a device is demoted here, promoted
there, and only then are replicas taken down. Pacemaker's own shutdown and standby take a node's
replica down before they promote another, and hosts wait for that too.
"""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName
from sanctl.plan.cluster.node_service import takeover_obstacle
from sanctl.plan.cluster.preconditions import unmanaged_problems

#: The constraint, made by the playbook, that gives the attribute DRAINED its effect.
CONSTRAINT = "drained-serves-nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranded:
    """A device that stops being served when its node leaves, and why nobody takes it over."""

    device: DeviceName
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What becomes of the devices that a node serves.

    Attributes:
        moving: another node can take these over.
        stranded: these stop with the node.
    """

    moving: tuple[DeviceName, ...]
    stranded: tuple[Stranded, ...]


def outlook(cluster: Cluster, node: NodeName) -> Outlook:
    """Judge the devices that a node serves now.

    Asked again while it drains: another node may have begun to leave meanwhile, and two nodes
    that wait for each other would both wait in vain.
    """
    moving, stranded = [], []
    for device in cluster.cib.devices:
        if node.value in cluster.mon.active_nodes(device.name):
            reason = why_stranded(cluster, device, node)
            if reason is None:
                moving.append(device.name)
            else:
                stranded.append(Stranded(device=device.name, reason=reason))
    return Outlook(moving=tuple(moving), stranded=tuple(stranded))


def why_stranded(cluster: Cluster, device: DeviceSpec, leaving: NodeName) -> str | None:
    """Return why no other node would take a device over from one that leaves; None: one would."""
    if not cluster.mon.has_quorum:
        return "there is no quorum"
    if unmanaged_problems(cluster, device):
        return "Pacemaker is told to leave it alone"
    reasons = [
        takeover_obstacle(cluster, device, other) for other in device.nodes if other != leaving
    ]
    if None in reasons:
        return None
    return ", ".join(reason for reason in reasons if reason) or "it has no other replica"


def unserved(
    cluster: Cluster, names: tuple[DeviceName, ...], leaving: NodeName
) -> tuple[DeviceName, ...]:
    """Return which devices are between two nodes: left by one, served by no other yet.

    What another node cannot take over any more is not waited for.
    """
    return tuple(
        name
        for name in names
        if (device := cluster.cib.device(name)) is not None
        and not device.is_stopping
        and cluster.active_node(name) is None
        and why_stranded(cluster, device, leaving) is None
    )
