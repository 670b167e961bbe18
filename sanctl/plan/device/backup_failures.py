# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which failed backups the CIB notes, and when a note goes.

A success is noted with the removal of the backup's restore point: a change of the CIB of its own
would abort once more what Pacemaker is about to do. It takes the failures before it away, and
failures before it that are told afterwards are none.

Each time is that of the clock of the node that has noted it. A success whose time is yet to come
was noted by a clock that was ahead: when it was is not known, and it counts for no later than the
failure that is told. A failure too many may be told so, and none is hidden until that time is over.
"""

from __future__ import annotations

from sanctl.model.backup_failure import BackupFailure, BackupSuccess
from sanctl.model.cib_change import (
    Change,
    RemoveBackupFailure,
    RemoveExpectedBackup,
    SetBackupFailure,
    SetBackupSuccess,
)
from sanctl.model.cluster import Cluster
from sanctl.plan.device.backup_intervals import shortest_s
from sanctl.plan.device.backup_record import newest_success, noted_expected, noted_failure

#: By so much a clock may be set back between a success and its note.
_SET_BACK_S = 60


def plan_failure_note(
    cluster: Cluster,
    device: str,
    repository: str,
    *,
    code: str,
    node: str,
    failed_s: int,
    now_s: int,
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
        now_s: the time now, by the clock that `failed_s` is of.
    """
    found = cluster.cib.device(device)
    if found is None:
        return ()
    before = noted_failure(cluster, device, repository)
    success = newest_success(cluster, device, repository)
    put_right: tuple[Change, ...] = ()
    if success is not None and success.succeeded_s > now_s:
        # Else it would hide this failure as soon as its time has come.
        success = success._replace(succeeded_s=failed_s)
        put_right = (SetBackupSuccess(success=success),)
    if success is not None and success.succeeded_s > failed_s:
        return ()
    if before is not None and (before.uuid != found.uuid or _is_before(before, success)):
        before = None
    if before is not None and before.failed_s > failed_s:
        return put_right
    since_s = failed_s if before is None else before.since_s
    failure = BackupFailure(device, repository, found.uuid, code, node, failed_s, since_s)
    return (*put_right, SetBackupFailure(failure=failure))


def plan_succeeded(cluster: Cluster, success: BackupSuccess, *, now_s: float) -> tuple[Change, ...]:
    """Return the changes after a success: it is noted, and no failure before it is any more.

    None where a later success is known, and of a device that is gone. None either of one whose time
    is yet to come: it is told after the clock was set back, and a failure may have followed it.

    Args:
        cluster: as observed.
        success: what is told, at once or days afterwards.
        now_s: the time now, in seconds since 1970, by the clock of the node that tells it.
    """
    found = cluster.cib.device(success.device)
    latest_s = now_s + _SET_BACK_S
    if found is None or found.uuid != success.uuid or success.succeeded_s > latest_s:
        return ()
    changes: list[Change] = []
    newest = newest_success(cluster, success.device, success.repository)
    expected = noted_expected(cluster, success.device, success.repository)
    if expected is not None:
        changes.append(RemoveExpectedBackup(expected=expected))
        # It may be of a device that had the name.
        expected = expected if expected.uuid == found.uuid else None
    if newest is None or not success.succeeded_s <= newest.succeeded_s <= latest_s:
        # One that a person has made is none of the timer's, which goes on. Nor is the longer
        # interval of another timer: the next backup is due when that of the shorter one is.
        known = (each.every_s for each in (success, newest, expected) if each is not None)
        every_s = shortest_s(known)
        changes.append(SetBackupSuccess(success=success._replace(every_s=every_s)))
    before = noted_failure(cluster, success.device, success.repository)
    if before is not None and (before.uuid != found.uuid or before.failed_s <= success.succeeded_s):
        changes.append(RemoveBackupFailure(failure=before))
    return tuple(changes)


def plan_failure_removal(cluster: Cluster, device: str, repository: str) -> tuple[Change, ...]:
    """Return the changes where no backup is to be made there any more, or a newer one is known.

    None is awaited after an interval either, until a timer's run has succeeded again, or one is
    set up or runs of which none has succeeded.
    """
    known = noted_failure(cluster, device, repository)
    success = newest_success(cluster, device, repository)
    changes: list[Change] = [] if known is None else [RemoveBackupFailure(failure=known)]
    if success is not None and success.every_s:
        changes.append(SetBackupSuccess(success=success._replace(every_s=0)))
    expected = noted_expected(cluster, device, repository)
    if expected is not None:
        changes.append(RemoveExpectedBackup(expected=expected))
    return tuple(changes)


def is_outlived(cluster: Cluster, failure: BackupFailure) -> bool:
    """Whether a backup has succeeded after a failure whose note nobody has taken away."""
    return _is_before(failure, newest_success(cluster, failure.device, failure.repository))


def _is_before(failure: BackupFailure, success: BackupSuccess | None) -> bool:
    return success is not None and success.succeeded_s > failure.failed_s
