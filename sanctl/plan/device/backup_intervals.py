# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: how often timers are to back a device up, and when a backup is overdue.

Several timers may back a device up into one repository, a daily and a weekly one. The newest backup
is to be no older than the shortest of their intervals allows, whichever of them made it: so the
shortest that was told stays. It ends where somebody says so: `backup forget`, or `backup expect`
with another interval, as the playbook does after it has changed a timer.

Of a timer of which no backup has succeeded the CIB notes since when they are expected: since it was
set up, or ran first.
"""

from __future__ import annotations

from collections.abc import Iterable

from sanctl.model.backup_failure import ExpectedBackup
from sanctl.model.cib_change import Change, SetBackupSuccess, SetExpectedBackup
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.backup_record import newest_success, noted_expected


def shortest_s(intervals: Iterable[int]) -> int:
    """Return the shortest interval in seconds; 0: none was told, as one of 0 says."""
    return min((each for each in intervals if each), default=0)


def is_overdue(since_s: int, every_s: int, now_s: float) -> bool:
    """Whether two runs of a timer should have made a backup since a moment, or may have.

    Also since one that is yet to come by more than an interval: how long ago it was is not known.

    Args:
        since_s: when the newest backup succeeded, or the first one was expected.
        every_s: the interval of the timer; 0: it is not known.
        now_s: the time now; all in seconds, the moments since 1970.
    """
    ago_s = now_s - since_s
    return every_s > 0 and not -every_s <= ago_s <= 2 * every_s


def plan_first_run(
    cluster: Cluster, device: str, repository: str, *, every_s: int, now_s: int
) -> tuple[Change, ...]:
    """Return the change where a timer runs and no backup has succeeded: some are expected.

    The time of the first run stays. None after a success: the next one has the interval.

    Args:
        cluster: as observed.
        device: the device's name.
        repository: the repository's name.
        every_s: the interval of the timer in seconds; 0: it does not say.
        now_s: the time now, in seconds since 1970.
    """
    found = cluster.cib.device(device)
    if found is None or not every_s or newest_success(cluster, device, repository) is not None:
        return ()
    known = noted_expected(cluster, device, repository)
    if known is None or known.uuid != found.uuid:
        known = None
        expected = ExpectedBackup(device, repository, found.uuid, now_s, every_s)
    else:
        expected = known._replace(every_s=shortest_s((known.every_s, every_s)))
    return () if expected == known else (SetExpectedBackup(expected=expected),)


def plan_interval(
    cluster: Cluster, device: DeviceName, repository: str, *, every_s: int, now_s: int
) -> tuple[Change, ...]:
    """Return the change where somebody says how often a timer makes backups from now on.

    Args:
        cluster: as observed.
        device: the device's name.
        repository: the repository's name.
        every_s: the interval of the timer in seconds.
        now_s: the time now, in seconds since 1970.

    Raises:
        Refused: there is no such device.
    """
    found = existing_device(cluster, device)
    success = newest_success(cluster, device.value, repository)
    if success is not None:
        changed = success._replace(every_s=every_s)
        return () if changed == success else (SetBackupSuccess(success=changed),)
    known = noted_expected(cluster, device.value, repository)
    is_its = known is not None and known.uuid == found.uuid
    since_s = known.since_s if known is not None and is_its else now_s
    expected = ExpectedBackup(device.value, repository, found.uuid, since_s, every_s)
    return () if expected == known else (SetExpectedBackup(expected=expected),)
