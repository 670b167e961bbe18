# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks for hosts that lack a path to a device which they are logged in to."""

from __future__ import annotations

from sanctl.errors import CommandError
from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding
from sanctl.ops.session import Session
from sanctl.plan.health.path_health import lacked_paths, path_findings


def host_path_findings(session: Session, cluster: Cluster) -> tuple[Finding, ...]:
    """Return what is known of that; nothing where the nodes' sessions cannot be asked for.

    `cluster` is what the session has observed last.
    """
    if not any(device.hosts or device.initiators for device in cluster.cib.devices):
        return ()
    try:
        lacked = lacked_paths(cluster, session.host_sessions())
    except CommandError:
        return ()
    if not lacked:
        return ()
    return tuple(path_findings(lacked, session.change_times(), now_s=session.clock.wall_s()))
