# SPDX-License-Identifier: GPL-2.0-or-later
"""What commands show of a device that goes back to what it was, or to a copy."""

from __future__ import annotations

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
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
