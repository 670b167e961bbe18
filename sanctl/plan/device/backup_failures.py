# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which failed backups the CIB notes, and when a note goes.

A success is not noted: it takes the failures before it away, and a device that had none costs no
change of the CIB, which would abort what Pacemaker is about to do.
"""

from __future__ import annotations

from sanctl.model.backup_failure import BackupFailure
from sanctl.model.cib_change import Change, RemoveBackupFailure, SetBackupFailure
from sanctl.model.cluster import Cluster


def plan_failure_note(
    cluster: Cluster, device: str, repository: str, *, code: str, node: str, failed_s: int
) -> tuple[Change, ...]:
    """Return the changes after a backup failed: it is noted, and since when none succeeds.

    None where a later failure is known: of one that broke off a node may tell days afterwards.

    Args:
        cluster: as observed.
        device: the device's name.
        repository: the repository's name.
        code: the code of the failure.
        node: the node on which it failed.
        failed_s: when, in seconds since 1970.
    """
    found = cluster.cib.device(device)
    if found is None:
        return ()
    before = _known(cluster, device, repository)
    is_same = before is not None and before.uuid == found.uuid
    if before is not None and is_same and before.failed_s > failed_s:
        return ()
    since_s = before.since_s if before is not None and is_same else failed_s
    failure = BackupFailure(device, repository, found.uuid, code, node, failed_s, since_s)
    return (SetBackupFailure(failure=failure),)


def plan_failure_removal(cluster: Cluster, device: str, repository: str) -> tuple[Change, ...]:
    """Return the changes after a success, or where no backup is to be made there any more."""
    known = _known(cluster, device, repository)
    return () if known is None else (RemoveBackupFailure(failure=known),)


def _known(cluster: Cluster, device: str, repository: str) -> BackupFailure | None:
    return next(
        (
            each
            for each in cluster.cib.backup_failures
            if (each.device, each.repository) == (device, repository)
        ),
        None,
    )
