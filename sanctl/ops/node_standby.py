# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `node standby` and `online`: waits for devices to leave, for replicas to sync."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sanctl.model.cib_change import Change
from sanctl.model.cib_names import STANDBY_ATTRIBUTE
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Failure
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import online_progress, standby_progress
from sanctl.plan.cluster.draining import StrandedDevice
from sanctl.plan.cluster.standby import plan_online, plan_standby, stranded_devices


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyOutcome:
    """What came of `node standby`.

    Attributes:
        is_changed: false: the node was in standby already.
        stopped: devices that no node serves now, as no other can, with the reason.
    """

    is_changed: bool
    stopped: tuple[StrandedDevice, ...]


def put_in_standby(
    session: Session, name: NodeName, *, accepted: Collection[str], timeout_s: float
) -> StandbyOutcome:
    """Move all devices off a node and keep them off.

    Raises:
        Refused: unknown node, or a device would stop being served.
        CommandError: a device's agent failed on the way.
        NotConverged: the node is in standby, and not every device has moved away.
    """
    served: list[DeviceName] = []
    stopped: list[StrandedDevice] = []
    known: list[Failure] = []
    resources: list[str] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = cluster.mon.failures
        resources[:] = [device.name.value for device in cluster.cib.devices]
        changes = plan_standby(cluster, name, accepted=accepted)
        # A device that no other node can serve stops, which was accepted: it is not waited for.
        until_s = session.clock.wall_s() + timeout_s
        stopped[:] = [
            StrandedDevice(device=device, reason=reason)
            for device, reason in stranded_devices(cluster, name, waits_until_s=until_s)
        ]
        stranded = {each.device for each in stopped}
        served[:] = [
            device.name
            for device in cluster.cib.devices
            if cluster.serves(device.name, name)
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
    return StandbyOutcome(is_changed=bool(changes), stopped=tuple(stopped))


def bring_online(session: Session, name: NodeName, *, timeout_s: float) -> bool:
    """End a node's standby and wait until its replicas are up to date.

    Raises:
        Refused: unknown node, or a failed action keeps it in standby.
        CommandError: an agent failed.
        NotConverged: the node is back, and not all its replicas are up to date.
    """
    known: list[Failure] = []
    resources: list[str] = []
    transient: list[str] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = cluster.mon.failures
        transient[:] = cluster.cib.standby_until_reboot & {name.value}
        resources[:] = [d.name.value for d in cluster.cib.devices if name in d.nodes]
        return plan_online(cluster, name)

    changes = session.change(decide)
    if transient:
        session.set_transient_attribute(name, STANDBY_ATTRIBUTE, None)
    session.wait(
        lambda seen: online_progress(seen, name),
        waiting_for=f"node {name} to be back with its replicas up to date",
        timeout_s=timeout_s,
        resources=resources,
        known_failures=tuple(known),
        look="a resync goes on by itself; a node that is off has to be started",
    )
    return bool(changes or transient)
