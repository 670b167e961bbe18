# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which devices a `node drain` or a typed reboot moves away, and which are stranded.

A drained node may serve nothing, while its replicas go on. So a device is demoted on it and
promoted on another node, and only then are replicas taken down. Pacemaker's own shutdown and
standby take a node's replica down before they promote another, and hosts wait for that too.
"""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.names import DeviceName, NodeName
from sanctl.plan.cluster.takeover import stranded_reason

#: The constraint, made by the playbook, that gives the drained attribute its effect.
DRAIN_CONSTRAINT = "drained-serves-nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrandedDevice:
    """A device that stops being served when its node leaves, and why no other node takes over."""

    device: DeviceName
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOutlook:
    """What becomes of the devices that a node serves.

    Attributes:
        moving: another node can take these over.
        stranded: these stop with the node.
    """

    moving: tuple[DeviceName, ...]
    stranded: tuple[StrandedDevice, ...]


def drain_outlook(cluster: Cluster, node: NodeName, *, waits_until_s: float) -> DrainOutlook:
    """Return what becomes of the devices that a node serves now, for one who waits so long.

    Evaluated again while the node drains: another node may have begun to leave meanwhile, and two
    nodes that wait for each other would both wait in vain.
    """
    moving, stranded = [], []
    for device in cluster.cib.devices:
        if cluster.serves(device.name, node):
            reason = stranded_by_drain(cluster, device, node, waits_until_s=waits_until_s)
            if reason is None:
                moving.append(device.name)
            else:
                stranded.append(StrandedDevice(device=device.name, reason=reason))
    return DrainOutlook(moving=tuple(moving), stranded=tuple(stranded))


def stranded_by_drain(
    cluster: Cluster, device: DeviceSpec, leaving: NodeName, *, waits_until_s: float
) -> str | None:
    """Return why no other node takes a device over from a node that is drained; None: one does.

    A drained node is still there: where Pacemaker leaves the node alone nothing is demoted on it.
    """
    if cluster.mon.state(leaving) is NodeState.MAINTENANCE:
        return f"{leaving} is in maintenance: Pacemaker moves nothing off it"
    return stranded_reason(cluster, device, leaving, waits_until_s=waits_until_s)


def devices_being_flushed(cluster: Cluster, leaving: NodeName) -> tuple[DeviceName, ...]:
    """Return the devices of which the leaving node alone has all on stable storage.

    Another replica was just filled, and is flushed within seconds. If its node lost its power
    before, after this one has left and others have written, neither would have everything.
    """
    return tuple(
        device.name
        for device in cluster.cib.devices
        if leaving in device.nodes
        and cluster.replica(device.name, leaving).is_up_to_date
        and any(each.is_settling for _, each in _up_to_date_elsewhere(cluster, device, leaving))
        and not any(
            not each.is_settling and _has_all(cluster, device, node, leaving)
            for node, each in _up_to_date_elsewhere(cluster, device, leaving)
        )
    )


def _up_to_date_elsewhere(
    cluster: Cluster, device: DeviceSpec, leaving: NodeName
) -> list[tuple[NodeName, ReplicaState]]:
    replicas = [
        (node, cluster.replica(device.name, node))
        for node in device.nodes
        if node != leaving and cluster.mon.state(node) in MEMBER_STATES
    ]
    return [each for each in replicas if each[1].is_up_to_date and not each[1].is_suspect]


def _has_all(cluster: Cluster, device: DeviceSpec, node: NodeName, leaving: NodeName) -> bool:
    """Whether a replica has what those of the leaving node and of the one that serves have.

    One that has lost them calls itself UpToDate until it is marked, and with a mark as well.
    """
    serving = cluster.active_node(device.name)
    others = {each for each in device.nodes if each == leaving or each.value == serving} - {node}
    replica = cluster.replica(device.name, node)
    return replica.is_in_sync_with(others) and not cluster.is_marked(device, node)


def devices_between_nodes(
    cluster: Cluster, names: tuple[DeviceName, ...], leaving: NodeName, *, waits_until_s: float
) -> tuple[DeviceName, ...]:
    """Return which devices are between two nodes: demoted on one, served by no other yet.

    A device that no other node can take over any more is left out: nothing would come of waiting.
    """
    return tuple(
        name
        for name in names
        if (device := cluster.cib.device(name)) is not None
        and not device.is_stopping
        and cluster.active_node(name) is None
        and stranded_by_drain(cluster, device, leaving, waits_until_s=waits_until_s) is None
    )
