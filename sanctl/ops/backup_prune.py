# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `backup prune`, and says who is busy in a repository."""

from __future__ import annotations

from collections.abc import Mapping

from sanctl.drivers import backup_notes
from sanctl.drivers.borg import Borg
from sanctl.errors import Busy, Problem
from sanctl.plan.device.backup_pruning import Pruning, plan_pruning
from sanctl.plan.device.backups import left_over, open_archives


def prune_backups(
    borg: Borg, device: str, keep: Mapping[str, int], *, here: str, now_s: float
) -> Pruning:
    """Delete the backups under a device's name beyond those to keep, and what broken ones left.

    Args:
        borg: the repository.
        device: the device.
        keep: how many are kept of each unit, as `keep_counts` says.
        here: this node.
        now_s: the time, in seconds since 1970.

    Returns:
        What is gone; and what stays uncounted, as its time is wrong.

    Raises:
        Busy: a backup may be under way that prune would take, or not count.
        CommandError: it failed; those that are to be kept are there.
    """
    into = borg.repository.name
    with backup_notes.turn(into, wait_s=borg.lock_s) as is_next:
        if not is_next:
            raise no_turn(into, borg.lock_s)
        return _prune(borg, device, keep, here=here, now_s=now_s)


def _prune(borg: Borg, device: str, keep: Mapping[str, int], *, here: str, now_s: float) -> Pruning:
    archives = borg.archives()
    # One that becomes a backup meanwhile would be the newest.
    still_open = open_archives(archives, device, here=here, now_s=now_s)
    for archive, node in still_open.items():
        raise busy_in_repository(device, archive, node)
    borg.delete(left_over(archives, device, ()))
    plan = plan_pruning(borg.backups(), device, keep, now_s)
    borg.delete(tuple(map(str, plan.deleted)))
    borg.compact()
    return plan


def no_turn(repository: str, waited_s: float) -> Busy:
    """Return that other commands of this node have a repository."""
    return Busy(
        Problem(
            "SAN-BKP-012",
            f"repository {repository}: other commands of this node have been using it for "
            f"{waited_s:g} s",
            "give --wait SECONDS: each waits for its turn",
        )
    )


def busy_in_repository(device: str, archive: str, node: str) -> Busy:
    """Return that an archive may be about to become a backup, on whatever node."""
    return Busy(
        Problem(
            "SAN-BKP-008",
            f"archive {archive} may be about to become a backup of device {device} on {node}",
            f"wait for its end. If none is under way on {node}: the same command there; after a "
            "week it is taken for dead here, too",
        )
    )
