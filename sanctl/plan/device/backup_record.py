# SPDX-License-Identifier: GPL-2.0-or-later
"""What the CIB knows of a device's backups into one repository."""

from __future__ import annotations

from sanctl.model.backup_failure import BackupFailure, BackupSuccess, ExpectedBackup, PruneFailure
from sanctl.model.cluster import Cluster


def newest_success(cluster: Cluster, device: str, repository: str) -> BackupSuccess | None:
    """Return the newest known success of a device's backups; not of one that had its name."""
    found = cluster.cib.device(device)
    return next(
        (
            each
            for each in cluster.cib.backup_successes
            if (each.device, each.repository) == (device, repository)
            and found is not None
            and each.uuid == found.uuid
        ),
        None,
    )


def noted_failure(cluster: Cluster, device: str, repository: str) -> BackupFailure | None:
    """Return the failure that is noted, also of a device that had the name."""
    return next(
        (
            each
            for each in cluster.cib.backup_failures
            if (each.device, each.repository) == (device, repository)
        ),
        None,
    )


def noted_expected(cluster: Cluster, device: str, repository: str) -> ExpectedBackup | None:
    """Return which backups are expected, also of a device that had the name."""
    return next(
        (
            each
            for each in cluster.cib.expected_backups
            if (each.device, each.repository) == (device, repository)
        ),
        None,
    )


def noted_prune_failure(cluster: Cluster, device: str, repository: str) -> PruneFailure | None:
    """Return the failed prune that is noted, also of a device that had the name."""
    return next(
        (
            each
            for each in cluster.cib.prune_failures
            if (each.device, each.repository) == (device, repository)
        ),
        None,
    )
