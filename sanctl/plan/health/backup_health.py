# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on backups: devices whose last one failed."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.utc_time import utc_text
from sanctl.plan.device.backup_failures import is_outlived


def backup_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return the devices whose last backup into a repository failed."""
    for failure in cluster.cib.backup_failures:
        device = cluster.cib.device(failure.device)
        # A device of that name that was made since has had no backup that failed.
        if device is None or device.uuid != failure.uuid or is_outlived(cluster, failure):
            continue
        since = (
            f", and none has succeeded since {utc_text(failure.since_s)} UTC"
            if failure.since_s < failure.failed_s
            else ""
        )
        where = f"{failure.device} --repository {failure.repository}"
        is_alone = len(device.nodes) == 1
        again = f"'sanctl backup run {where}" + (" --on-active'" if is_alone else "' on a standby")
        yield Finding(
            code="SAN-HLT-158",
            severity=Severity.WARNING,
            subject=f"device {failure.device}",
            what=f"its last backup into repository {failure.repository} failed on {failure.node}, "
            f"at {utc_text(failure.failed_s)} UTC ({failure.code}){since}",
            why="what was written since the newest backup is in none",
            do=f"'sanctl explain {failure.code}', and on {failure.node} 'journalctl "
            f"SANCTL_DEVICE={failure.device} SANCTL_ACTION=backup'; then {again}: the "
            f"finding ends with its success. If there is to be none "
            f"any more, or 'sanctl backup list {where}' shows a newer one: 'sanctl backup forget "
            f"{where}'",
        )
