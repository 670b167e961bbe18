# SPDX-License-Identifier: GPL-2.0-or-later
"""What commands show of a device that goes back to what it was, or to a copy."""

from __future__ import annotations

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.site_copy import SiteCopy
from sanctl.plan.device.restore_progress import progress_text


def kept_point(cluster: Cluster, device: DeviceSpec) -> str | None:
    """Return the restore point that keeps what a device held before its restore; None: none."""
    token = device.restore.kept_token if device.restore else ""
    points = cluster.cib.points_of(device.name)
    return next((each.name for each in points if token and each.token == token), None)


def restore_text(cluster: Cluster, device: DeviceSpec) -> str:
    """Return in one line how far a device is that is being restored."""
    source = device.restore.source if device.restore else "?"
    return f"from {source}: {progress_text(cluster, device)}; no host is let in"


def held_text(cluster: Cluster, device: DeviceSpec, copy: SiteCopy) -> str:
    """Return what can be done with a device that is held as a copy, with the commands."""
    failback = f"sanctl replicate failback {device.name}"
    again = f"{failback} --from {copy.site} --copy COPY"
    if copy.uuid == device.uuid:
        # Nothing goes on instead of it by a copy of its own.
        later = f"A later copy: '{again} --hold'"
    else:
        later = f"The last copy, and the turn of the roles: '{again} --takeover'"
    if taken := cluster.cib.takeovers_of(device):
        ends = (
            "or, where the other one is given up, let hosts in to this one: 'sanctl replicate "
            f"giveback {device.name} --at {taken[0].site}' and then '{failback} --release'"
        )
    else:
        ends = (
            "or let hosts in to this one, unless another device goes on instead of it: "
            f"'{failback} --release'"
        )
    return f"it is held: no host is let in. {later}\n{ends}"
