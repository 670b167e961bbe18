# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `backup prune`, and says who is busy in a repository."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sanctl.drivers import backup_notes
from sanctl.drivers.borg import Borg
from sanctl.errors import Busy, Problem
from sanctl.model.backup import BackupName
from sanctl.ops.session import Session
from sanctl.plan.device.backup_pruning import Pruning, plan_pruning
from sanctl.plan.device.backups import backups_in_use, left_over, open_archives


def prune_backups(
    session: Session,
    borg: Borg,
    device: str,
    keep: Mapping[str, int],
    *,
    here: str,
    shown: Collection[BackupName] | None = None,
) -> Pruning:
    """Delete the backups under a device's name beyond those to keep, and what broken ones left.

    Args:
        session: the cluster.
        borg: the repository.
        device: the device.
        keep: how many are kept of each unit, as `keep_counts` says.
        here: this node.
        shown: those that an operator has been shown: no other one goes; None: whichever do now.

    Returns:
        What is gone; what stays uncounted, as its time is wrong; and what stays as devices of this
        cluster are being filled from it.

    Raises:
        Unreachable: it is not known which backups devices are being filled from.
        Refused: nor is it where an order to fill one cannot be read.
        Busy: a backup may be under way that prune would take, or not count.
        CommandError: it failed; those that are to be kept are there.
    """
    into = borg.repository.name
    with backup_notes.turn(into, wait_s=borg.lock_s) as is_next:
        if not is_next:
            raise no_turn(into, borg.lock_s)
        archives = _closed_archives(session, borg, device, here=here)
        borg.delete(left_over(archives, device, ()))
        plan = _plan(session, borg, device, keep)
        if shown is not None:
            plan = plan._replace(deleted=tuple(each for each in plan.deleted if each in shown))
        borg.delete(tuple(map(str, plan.deleted)))
        borg.compact()
        return plan


def preview_pruning(
    session: Session, borg: Borg, device: str, keep: Mapping[str, int], *, here: str
) -> Pruning:
    """Return what `prune_backups` would do now; change nothing.

    Raises:
        Unreachable, Refused, Busy, CommandError: as `prune_backups` says.
    """
    with backup_notes.turn(borg.repository.name, wait_s=borg.lock_s) as is_next:
        if not is_next:
            raise no_turn(borg.repository.name, borg.lock_s)
        _closed_archives(session, borg, device, here=here)
        return _plan(session, borg, device, keep)


def _closed_archives(session: Session, borg: Borg, device: str, *, here: str) -> dict[str, str]:
    """Return the archives of a repository, none of which may be about to become a backup.

    Raises:
        Busy: one may be. It would be the newest.
    """
    archives = borg.archives()
    now_s = session.clock.wall_s()
    for archive, node in open_archives(archives, device, here=here, now_s=now_s).items():
        raise busy_in_repository(device, archive, node)
    return archives


def _plan(session: Session, borg: Borg, device: str, keep: Mapping[str, int]) -> Pruning:
    backups = borg.backups()
    # The last question before they go: a restore may have begun while the repository was read.
    in_use = backups_in_use(session.observe())
    return plan_pruning(backups, device, keep, session.clock.wall_s(), in_use)


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
