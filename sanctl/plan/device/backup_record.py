# SPDX-License-Identifier: GPL-2.0-or-later
"""What the CIB knows of a device's backups into one repository."""

from __future__ import annotations

from sanctl.model.backup import parse_repository_name
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


def repository_meant(cluster: Cluster, device: str, name: str | None) -> str | None:
    """Return the repository that a command means on a node that cannot say which ones there are.

    One that backups of the device go into, or are to. None: the named one is none of these, as one
    that was typed wrongly, of which no success would follow; or without a name there is none, or
    there are several.

    Raises:
        UsageError: the name is none of a repository.
    """
    wanted = None if name is None else parse_repository_name(name)
    found, cib = cluster.cib.device(device), cluster.cib
    notes: tuple[BackupSuccess | ExpectedBackup | BackupFailure, ...] = (
        *cib.backup_successes,
        *cib.expected_backups,
        *cib.backup_failures,
    )
    known = {
        each.repository
        for each in notes
        if found is not None and (each.device, each.uuid) == (device, found.uuid)
    }
    if wanted is not None:
        return wanted if wanted in known else None
    return known.pop() if len(known) == 1 else None
