# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `node standby` and `online`: waits for devices to leave, for replicas to sync."""

from __future__ import annotations

from collections.abc import Collection

from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Failure
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import online_progress, standby_progress
from sanctl.plan.cluster.standby import plan_online, plan_standby, stranded_devices


def put_in_standby(
    session: Session, name: NodeName, *, accepted: Collection[str], timeout_s: float
) -> bool:
    """Move all devices off a node and keep them off; return whether anything was to change.

    Raises:
        Refused: unknown node, or a device would stop being served.
        CommandError: a device's agent failed on the way.
        NotConverged: the node is in standby, and not every device has moved away.
    """
    served: list[DeviceName] = []
    known: list[Failure] = []
    resources: list[str] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = cluster.mon.failures
        resources[:] = [device.name.value for device in cluster.cib.devices]
        changes = plan_standby(cluster, name, accepted=accepted)
        # A device that no other node can serve stops, which was accepted: it is not waited for.
        stranded = {device for device, _ in stranded_devices(cluster, name, is_certain=True)}
        served[:] = [
            device.name
            for device in cluster.cib.devices
            if name.value in cluster.mon.active_nodes(device.name)
            and not device.is_stopping
            and device.name not in stranded
        ]
        return changes

    changes = session.change(decide)
    session.wait(
        lambda seen: standby_progress(seen, name, served),
        waiting_for=f"node {name} to be free of devices",
        timeout_s=timeout_s,
        resources=resources,
        known_failures=tuple(known),
        look="the node stays in standby; 'sanctl status' shows which devices are still there",
    )
    return bool(changes)


def bring_online(session: Session, name: NodeName, *, timeout_s: float) -> bool:
    """End a node's standby and wait until its replicas are up to date.

    Raises:
        Refused: unknown node.
        CommandError: an agent failed.
        NotConverged: the node is back, and not all its replicas are up to date.
    """
    known: list[Failure] = []
    resources: list[str] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = cluster.mon.failures
        resources[:] = [d.name.value for d in cluster.cib.devices if name in d.nodes]
        return plan_online(cluster, name)

    changes = session.change(decide)
    session.wait(
        lambda seen: online_progress(seen, name),
        waiting_for=f"node {name} to be back with its replicas up to date",
        timeout_s=timeout_s,
        resources=resources,
        known_failures=tuple(known),
        look="a resync goes on by itself; a node that is off has to be started",
    )
    return bool(changes)
