# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what is refused while a device goes back to a restore point."""

from __future__ import annotations

from sanctl.errors import Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import HELD, ORDERED, RestoreOrder
from sanctl.model.restore_point import RestorePoint


def being_restored_problem(device: DeviceSpec) -> Problem:
    """Return that a device is going back to a restore point, or is held as a copy."""
    if device.restore is not None and device.restore.state == HELD:
        return held_problem(device, device.restore)
    return Problem(
        "SAN-REST-005",
        f"device {device.name} is being restored, from "
        f"{device.restore.source if device.restore else '?'}",
        f"wait until it has: 'sanctl device show {device.name}' shows how far it is"
        + (
            f"; nothing is written yet: 'sanctl device restore {device.name} --cancel' withdraws it"
            if device.restore is not None and device.restore.state == ORDERED
            else ""
        ),
    )


def held_problem(device: DeviceSpec, order: RestoreOrder) -> Problem:
    """Return that a device is held: it is a copy, and no host is let in."""
    return Problem(
        "SAN-REST-014",
        f"device {device.name} is held as {order.source}: no host is let in, and nothing but a "
        "later copy changes it",
        f"'sanctl replicate failback {device.name} --release' lets hosts in to that copy"
        + (
            f"; 'sanctl device restore {device.name}' goes back to what was kept"
            if order.kept_token
            else ""
        ),
    )


def refuse_while_restoring(device: DeviceSpec) -> None:
    """Raise Refused if a device is going back to a restore point."""
    if device.is_restoring:
        raise Refused(being_restored_problem(device))


def refuse_deletion_of(cluster: Cluster, point: RestorePoint) -> None:
    """Raise Refused if a restore of a device needs a restore point: its goal, or the way back."""
    device = cluster.cib.device(point.device)
    if device is None or not device.is_restoring:
        return
    order = device.restore
    if order is None or point.token in {order.point_token, order.kept_token}:
        raise Refused(being_restored_problem(device))
