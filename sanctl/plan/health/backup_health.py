# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on backups: devices whose last one, or prune, failed, or of which none is made."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.backup_failure import BackupFailure, ExpectedBackup
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.model.utc_time import utc_text
from sanctl.plan.device.backup_failures import is_outlived
from sanctl.plan.device.backup_intervals import is_overdue
from sanctl.plan.device.backup_record import newest_success, noted_expected, noted_failure

#: There is no room left in a repository.
_FULL = "SAN-BKP-013"


def backup_findings(cluster: Cluster, *, now_s: float) -> Iterator[Finding]:
    """Return the devices whose last backup failed, or is old or missing, or whose prune failed."""
    yield from _failed(cluster)
    yield from _overdue(cluster, now_s)
    yield from _never_made(cluster, now_s)
    yield from _unpruned(cluster)


def _failed(cluster: Cluster) -> Iterator[Finding]:
    for failure in cluster.cib.backup_failures:
        device = cluster.cib.device(failure.device)
        # A device of that name that was made since has had no backup that failed.
        if device is None or device.uuid != failure.uuid or is_outlived(cluster, failure):
            continue
        where = f"{failure.device} --repository {failure.repository}"
        again = _again(device, where)
        yield Finding(
            code="SAN-HLT-158",
            severity=Severity.WARNING,
            subject=f"device {failure.device}",
            what=f"its last backup into repository {failure.repository} failed on {failure.node}, "
            f"at {utc_text(failure.failed_s)} UTC ({failure.code}){_since(cluster, failure)}",
            why="what was written since the newest backup is in none",
            do=f"'sanctl explain {failure.code}', and on {failure.node} 'journalctl "
            f"SANCTL_DEVICE={failure.device} SANCTL_ACTION=backup'; then {again}: the "
            f"finding ends with its success. If there is to be none "
            f"any more, or 'sanctl backup list {where}' shows a newer one: 'sanctl backup forget "
            f"{where}'",
        )


def _since(cluster: Cluster, failure: BackupFailure) -> str:
    """Return since when no backup has succeeded; empty: one did before this failure."""
    first_s, what = failure.since_s, ""
    if newest_success(cluster, failure.device, failure.repository) is None:
        what = "the first try, at "
        expected = noted_expected(cluster, failure.device, failure.repository)
        if expected is not None and expected.uuid == failure.uuid:
            first_s = min(first_s, expected.since_s)
    if first_s < failure.failed_s:
        return f", and none has succeeded since {what}{utc_text(first_s)} UTC"
    return ": it was the first try" if what else ""


def _overdue(cluster: Cluster, now_s: float) -> Iterator[Finding]:
    """Yield where a timer has made no backup, and no run of it has said that it failed.

    Its units are gone or off, or each node leaves the backup to another one.
    """
    for success in cluster.cib.backup_successes:
        device = cluster.cib.device(success.device)
        is_newest = newest_success(cluster, success.device, success.repository) == success
        if (
            device is None
            or not is_newest
            or not is_overdue(success.succeeded_s, success.every_s, now_s)
        ):
            continue
        where = f"{success.device} --repository {success.repository}"
        is_old = success.succeeded_s <= now_s
        moment = f"{utc_text(success.succeeded_s)} UTC"
        yield Finding(
            code="SAN-HLT-169",
            severity=Severity.WARNING,
            subject=f"device {success.device}",
            what=f"its newest backup into repository {success.repository} is of {moment}, and "
            f"its timer is to make one every {success.every_s / 3600:g} h"
            if is_old
            else f"its newest backup into repository {success.repository} is said to be of "
            f"{moment}, which is yet to come: a node's clock was ahead, and how old it is is not "
            "known",
            why="what was written since is in no backup, and none is known to have failed",
            do="'systemctl list-timers \"sanctl-backup-*\"' on each storage node, and 'journalctl "
            f"SANCTL_DEVICE={success.device} SANCTL_ACTION=backup'; {_again(device, where)} makes "
            f"one now. If its timer is to make none any more, or fewer: 'sanctl backup forget "
            f"{where}'",
        )


def _never_made(cluster: Cluster, now_s: float) -> Iterator[Finding]:
    """Yield where a timer was set up or has run, and no run has told of a success or a failure."""
    for expected in cluster.cib.expected_backups:
        name, repository = expected.device, expected.repository
        device = cluster.cib.device(name)
        if (
            device is None
            or device.uuid != expected.uuid
            or newest_success(cluster, name, repository) is not None
            or _has_failed(cluster, expected)
            or not is_overdue(expected.since_s, expected.every_s, now_s)
        ):
            continue
        where = f"{name} --repository {repository}"
        is_old = expected.since_s <= now_s
        yield Finding(
            code="SAN-HLT-171",
            severity=Severity.WARNING,
            subject=f"device {name}",
            what=f"its timer is to make a backup into repository {repository} every "
            f"{expected.every_s / 3600:g} h, and none is known since it was set up or ran first, "
            f"{utc_text(expected.since_s)} UTC"
            + ("" if is_old else ", which is yet to come: a node's clock was ahead"),
            why="the device has no backup there, and none is known to have failed",
            do="'systemctl list-timers \"sanctl-backup-*\"' on each storage node, and 'journalctl "
            f'--unit "sanctl-backup-{name}*"\' there: a first one may still be under way; '
            f"{_again(device, where)} makes one now. If there is to be none: 'sanctl backup "
            f"forget {where}'",
        )


def _unpruned(cluster: Cluster) -> Iterator[Finding]:
    """Yield where the last prune failed, in a unit that nobody may have looked at."""
    for failure in cluster.cib.prune_failures:
        device = cluster.cib.device(failure.device)
        if device is None or device.uuid != failure.uuid:
            continue
        where = f"{failure.device} --repository {failure.repository}"
        since = (
            f", and none has succeeded since {utc_text(failure.since_s)} UTC"
            if failure.since_s < failure.failed_s
            else ""
        )
        yield Finding(
            code="SAN-HLT-172",
            severity=Severity.WARNING,
            subject=f"device {failure.device}",
            what=f"the last prune of its backups in repository {failure.repository} failed on "
            f"{failure.node}, at {utc_text(failure.failed_s)} UTC ({failure.code}){since}",
            why="there is no room left, and a prune needs some itself: no backup is made there "
            "before there is some"
            if failure.code == _FULL
            else "backups beyond those to keep stay, until the repository has no room for the next",
            do=f"'sanctl explain {failure.code}', and on {failure.node} 'journalctl "
            f"SANCTL_DEVICE={failure.device} SANCTL_ACTION=backup'; then prune again, as the timer "
            "does: the finding ends with its success. If none is to follow: 'sanctl backup forget "
            f"{where}'",
        )


def _has_failed(cluster: Cluster, expected: ExpectedBackup) -> bool:
    """Whether a run of the timer has told that it failed: the finding on that says more."""
    failure = noted_failure(cluster, expected.device, expected.repository)
    return failure is not None and failure.uuid == expected.uuid


def _again(device: DeviceSpec, where: str) -> str:
    is_alone = len(device.nodes) == 1
    return f"'sanctl backup run {where}" + (" --on-active'" if is_alone else "' on a standby")
