# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on backups: devices whose last one failed, or of which a timer makes none any more."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.model.utc_time import utc_text
from sanctl.plan.device.backup_failures import is_outlived, is_overdue, newest_success


def backup_findings(cluster: Cluster, *, now_s: float) -> Iterator[Finding]:
    """Return the devices whose last backup into a repository failed, or whose newest is old."""
    yield from _failed(cluster)
    yield from _overdue(cluster, now_s)


def _failed(cluster: Cluster) -> Iterator[Finding]:
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
        again = _again(device, where)
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


def _overdue(cluster: Cluster, now_s: float) -> Iterator[Finding]:
    """Yield where a timer has made no backup, and no run of it has said that it failed.

    Its units are gone or off, or each node leaves the backup to another one.
    """
    for success in cluster.cib.backup_successes:
        device = cluster.cib.device(success.device)
        is_newest = newest_success(cluster, success.device, success.repository) == success
        if device is None or not is_newest or not is_overdue(success, now_s):
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


def _again(device: DeviceSpec, where: str) -> str:
    is_alone = len(device.nodes) == 1
    return f"'sanctl backup run {where}" + (" --on-active'" if is_alone else "' on a standby")
