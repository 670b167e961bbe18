# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which failed backups the CIB notes, and when a note goes.

A success is noted with the removal of the backup's restore point: a change of the CIB of its own
would abort once more what Pacemaker is about to do. It takes the failures before it away, and
failures before it that are told afterwards are none.
"""

from __future__ import annotations

from sanctl.model.backup_failure import BackupFailure, BackupSuccess
from sanctl.model.cib_change import (
    Change,
    RemoveBackupFailure,
    SetBackupFailure,
    SetBackupSuccess,
)
from sanctl.model.cluster import Cluster


def plan_failure_note(
    cluster: Cluster, device: str, repository: str, *, code: str, node: str, failed_s: int
) -> tuple[Change, ...]:
    """Return the changes after a backup failed: it is noted, and since when none succeeds.

    None where a later failure or success is known: of one that broke off a node may tell days
    afterwards.

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
    success = newest_success(cluster, device, repository)
    if success is not None and success.succeeded_s > failed_s:
        return ()
    if before is not None and (before.uuid != found.uuid or is_outlived(cluster, before)):
        before = None
    if before is not None and before.failed_s > failed_s:
        return ()
    since_s = failed_s if before is None else before.since_s
    failure = BackupFailure(device, repository, found.uuid, code, node, failed_s, since_s)
    return (SetBackupFailure(failure=failure),)


def plan_succeeded(cluster: Cluster, success: BackupSuccess) -> tuple[Change, ...]:
    """Return the changes after a success: it is noted, and no failure before it is any more.

    None where a later success is known, and of a device that is gone.
    """
    found = cluster.cib.device(success.device)
    if found is None or found.uuid != success.uuid:
        return ()
    changes: list[Change] = []
    newest = newest_success(cluster, success.device, success.repository)
    if newest is None or newest.succeeded_s < success.succeeded_s:
        changes.append(SetBackupSuccess(success=success))
    before = _known(cluster, success.device, success.repository)
    if before is not None and (before.uuid != found.uuid or before.failed_s <= success.succeeded_s):
        changes.append(RemoveBackupFailure(failure=before))
    return tuple(changes)


def plan_failure_removal(cluster: Cluster, device: str, repository: str) -> tuple[Change, ...]:
    """Return the changes where no backup is to be made there any more, or a newer one is known."""
    known = _known(cluster, device, repository)
    return () if known is None else (RemoveBackupFailure(failure=known),)


def is_outlived(cluster: Cluster, failure: BackupFailure) -> bool:
    """Whether a backup has succeeded after a failure whose note nobody has taken away."""
    success = newest_success(cluster, failure.device, failure.repository)
    return success is not None and success.succeeded_s > failure.failed_s


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


def _known(cluster: Cluster, device: str, repository: str) -> BackupFailure | None:
    return next(
        (
            each
            for each in cluster.cib.backup_failures
            if (each.device, each.repository) == (device, repository)
        ),
        None,
    )
