# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds the device a command is about, and what forbids to change any device now."""

from __future__ import annotations

from sanctl.errors import Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.plan.device.creation import no_quorum_problem


def existing_device(cluster: Cluster, name: DeviceName) -> DeviceSpec:
    """Return the device of that name.

    Raises:
        Refused: there is none, or its entry in the CIB does not read as a device.
    """
    device = cluster.cib.device(name)
    if device is not None:
        return device
    for identifier, reason in cluster.cib.unreadable:
        if identifier == name.value:
            raise Refused(
                Problem(
                    "SAN-DEV-019",
                    f"the CIB's entry for device {name} cannot be read: {reason}",
                    f"compare it with another device: cibadmin --query --xpath "
                    f"\"//clone[@id='sanctl-{name}']\"",
                )
            )
    known = ", ".join(device.name.value for device in cluster.cib.devices[:8])
    more = " ..." if len(cluster.cib.devices) > 8 else ""
    raise Refused(
        Problem(
            "SAN-DEV-002",
            f"there is no device {name}",
            f"devices are: {known}{more}" if known else "there are no devices",
        )
    )


def refuse_unless_changeable(cluster: Cluster, device: DeviceSpec) -> None:
    """Check that Pacemaker would carry out a change of this device.

    Raises:
        Refused: no quorum, Pacemaker told to leave it alone, or it is being deleted.
    """
    problems = []
    if not cluster.mon.has_quorum:
        problems.append(no_quorum_problem())
    problems.extend(unmanaged_problems(cluster, device))
    if device.is_stopping:
        problems.append(
            Problem(
                "SAN-DEV-014",
                f"device {device.name} is stopped: its deletion has begun",
                f"finish it with 'sanctl device delete {device.name}', or take it back with "
                f"'crm_resource --resource sanctl-{device.name} --meta "
                f"--delete-parameter target-role'",
            )
        )
    if problems:
        raise Refused(*problems)


def maintenance_problems(cluster: Cluster) -> tuple[Problem, ...]:
    """Return why Pacemaker would not act on anything."""
    if not cluster.is_maintenance:
        return ()
    return (
        Problem(
            "SAN-DEV-018",
            "the cluster is in maintenance mode: Pacemaker leaves everything alone",
            "end it: crm_attribute --name maintenance-mode --delete",
        ),
    )


def unmanaged_problems(cluster: Cluster, device: DeviceSpec) -> tuple[Problem, ...]:
    """Return why Pacemaker would not act on this device."""
    if cluster.is_maintenance:
        return maintenance_problems(cluster)
    if not device.is_managed:
        return (
            Problem(
                "SAN-DEV-018",
                f"device {device.name} is unmanaged: Pacemaker leaves it alone",
                "let Pacemaker manage it again: remove is-managed or maintenance from it",
            ),
        )
    return ()
