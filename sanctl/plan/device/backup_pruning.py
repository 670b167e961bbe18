# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: which backups under a device's name are deleted, so that enough of each device stay.

Several devices may have had a name: the backups of each are counted by its UUID. Backups of an
earlier release have no UUID, and are counted among themselves. Backups of a device that this
cluster does not have stay unless the operator asks for them: another cluster may keep backups of a
device of that name here, and keep more of them.

The times are those of restore points, by a node's clock. While a clock is ahead, a backup gets a
time that makes it pass for the newest: such a backup is neither counted nor deleted, and the
command names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from sanctl.errors import Problem
from sanctl.model.backup import Backup, BackupName

#: How far the clocks of nodes may differ.
_AHEAD_S = 60
#: Of each unit the newest backups in so many different times are kept; the words that are the same
#: within one such time, in UTC.
_TIMES = {
    "last": "%Y-%m-%d %H:%M:%S",
    "hourly": "%Y-%m-%d %H",
    "daily": "%Y-%m-%d",
    "weekly": "%G-%V",
    "monthly": "%Y-%m",
    "yearly": "%Y",
}


class Pruning(NamedTuple):
    """The backups under a name by what becomes of them.

    Attributes:
        deleted: the backups that are deleted, the oldest first.
        misdated: the backups whose times are wrong, which stay uncounted.
        in_use: surplus backups that stay, as devices are being filled from them.
        of_others: surplus backups that stay, as this cluster does not have their device.
    """

    deleted: tuple[BackupName, ...]
    misdated: tuple[BackupName, ...]
    in_use: tuple[BackupName, ...]
    of_others: tuple[BackupName, ...] = ()


def plan_pruning(
    backups: Sequence[Backup],
    device: str,
    keep: Mapping[str, int],
    now_s: float,
    in_use: Collection[str],
    *,
    own_uuids: Collection[str] | None = None,
) -> Pruning:
    """Return which backups are deleted.

    Args:
        backups: all in the repository.
        device: the device's name.
        keep: how many are kept of each unit of `keep_counts`.
        now_s: seconds since 1970.
        in_use: the names of the backups that devices are being filled from.
        own_uuids: the UUIDs of this cluster's devices; None: the surplus of any device goes.
    """
    named = [each for each in backups if each.name.device == device]
    deleted: list[BackupName] = []
    of_others: list[BackupName] = []
    misdated: list[BackupName] = []
    for uuid in {each.uuid for each in named}:
        own = [each for each in named if each.uuid == uuid]
        wrong = {each.name for each in own if is_misdated(each, own, now_s)}
        misdated += wrong
        counted = [each.name for each in own if each.name not in wrong]
        is_own = own_uuids is None or uuid in own_uuids
        surplus = set(counted) - _kept(counted, keep) - _stored_last(own)
        if is_own:
            deleted += surplus
        else:
            of_others += surplus
    held = {each for each in deleted if str(each) in in_use}
    return Pruning(
        tuple(sorted(set(deleted) - held)),
        tuple(sorted(misdated)),
        tuple(sorted(held)),
        tuple(sorted(of_others)),
    )


def foreign_backup_problems(device: str, found: Pruning) -> tuple[Problem, ...]:
    """Return the problem that surplus backups of no device of this cluster stay; empty: none do."""
    if not found.of_others:
        return ()
    names = ", ".join(map(str, found.of_others))
    return (
        Problem(
            "SAN-BKP-031",
            f"{len(found.of_others)} more backups under the name {device} stay: they are of no "
            f"device of this cluster, or do not say of which: {names}",
            "'sanctl backup list' shows their device's UUID. Where no other cluster has this "
            "repository: --all-uuids",
        ),
    )


def is_misdated(backup: Backup, own: Sequence[Backup], now_s: float) -> bool:
    """Whether a backup's restore point was made by a clock that was ahead.

    The time of the restore point is in the future, or a backup that was stored later has an earlier
    one. The order of storing is that of the archives' numbers, and says something only of backups
    that made their own restore points.

    Args:
        backup: the backup.
        own: all backups of the same device that are stored, by name and UUID.
        now_s: seconds since 1970.
    """
    return backup.name.taken_s > now_s + _AHEAD_S or (
        _is_ordered(backup)
        and any(
            _is_ordered(each)
            and each.number > backup.number
            and each.name.taken_s + _AHEAD_S < backup.name.taken_s
            for each in own
        )
    )


def _is_ordered(backup: Backup) -> bool:
    return backup.number > 0 and backup.name.is_of_own_point


def _stored_last(own: Sequence[Backup]) -> set[BackupName]:
    """Return the backup that was stored last; none where no number says which one that was."""
    last = max(own, key=lambda each: each.number)
    return {last.name} if last.number else set()


def _kept(names: Sequence[BackupName], keep: Mapping[str, int]) -> set[BackupName]:
    """Return those that a unit keeps, as borg's prune does.

    Of each unit the newest one in each of the latest times that have one, beside those that a unit
    before has kept; and the oldest of all, where a unit has fewer than it keeps.
    """
    newest_first = sorted(names, key=lambda each: (each.taken_s, each), reverse=True)
    kept: set[BackupName] = set()
    for unit, words in _TIMES.items():
        left, before = keep.get(unit, 0), ""
        for name in newest_first if left else ():
            time = datetime.fromtimestamp(name.taken_s, UTC).strftime(words)
            if time != before and name not in kept:
                kept.add(name)
                left -= 1
            before = time
            if not left:
                break
        else:
            kept.update(newest_first[-1:] if left else ())
    return kept
