# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `backup prune`, and says who is busy in a repository."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping

from sanctl.drivers.borg import Borg
from sanctl.errors import Busy, Problem, SanctlError
from sanctl.model.backup import BackupName
from sanctl.ops.noted_state import await_noted
from sanctl.ops.repository_wait import turn_or_word
from sanctl.ops.session import Session
from sanctl.parse.borg import uuid_of
from sanctl.plan.device.backup_pruning import Pruning, plan_pruning
from sanctl.plan.device.backup_record import repository_meant
from sanctl.plan.device.backups import backups_in_use, device_uuids, left_over, open_archives
from sanctl.plan.device.prune_failures import plan_prune_failure, plan_prune_succeeded
from sanctl.plan.device.restore_refusals import refuse_unknown_content

#: borg failed, for a reason that is none of the others.
_OTHER = "SAN-BKP-015"


def prune_backups(
    session: Session,
    borg: Borg,
    device: str,
    keep: Mapping[str, int],
    *,
    here: str,
    shown: Collection[BackupName] | None = None,
    of_all_uuids: bool = False,
) -> Pruning:
    """Delete the backups under a device's name beyond those to keep, and what broken ones left.

    The cluster notes a failure, and no longer after a success.

    Args:
        session: the cluster.
        borg: the repository.
        device: the device.
        keep: how many are kept of each unit, as `keep_counts` says.
        here: this node.
        shown: those that an operator has been shown: no other one goes; None: whichever do now.
        of_all_uuids: also those of devices that this cluster does not have.

    Returns:
        What is gone; what stays uncounted, as its time is wrong; what stays as devices of this
        cluster are being filled from it; and what stays as none of them is its device.

    Raises:
        Unreachable: it is not known which backups devices are being filled from.
        Refused: nor is it where an order to fill one cannot be read; or what is on the device is
            not known, and an older backup may be the last good one.
        Busy: a backup may be under way that prune would take, or not count.
        CommandError: it failed; those that are to be kept are there.
    """
    into = borg.repository.name
    with (
        noting_prune(session, device, into, here=here),
        turn_or_word(session, borg) as is_next,
    ):
        if not is_next:
            raise no_turn(into, borg.lock_s)
        borg.delete(_left_over(session, borg, device, here=here, of_all_uuids=of_all_uuids))
        plan = _plan(session, borg, device, keep, of_all_uuids=of_all_uuids)
        if shown is not None:
            plan = plan._replace(deleted=tuple(each for each in plan.deleted if each in shown))
        borg.delete(tuple(map(str, plan.deleted)))
        borg.compact()
        return plan


@contextlib.contextmanager
def noting_prune(session: Session, device: str, repository: str, *, here: str) -> Iterator[None]:
    """Note in the cluster that a prune failed, and with what; or that none has failed any more.

    The error of a prune is the one that it ends with: that it could not be noted is no other one.

    Args:
        session: the cluster.
        device: the device.
        repository: the repository.
        here: this node.
    """
    try:
        yield
    except (SanctlError, OSError) as error:
        code = error.problems[0].code if isinstance(error, SanctlError) else _OTHER
        with contextlib.suppress(SanctlError, OSError):
            session.change(
                lambda seen: plan_prune_failure(
                    seen,
                    device,
                    repository,
                    code=code,
                    node=here,
                    failed_s=int(session.clock.wall_s()),
                ),
                reads_replicas=False,
            )
        raise
    with contextlib.suppress(SanctlError, OSError):
        session.change(
            lambda seen: plan_prune_succeeded(seen, device, repository), reads_replicas=False
        )


def note_not_begun(
    session: Session, device: str, repository: str | None, error: SanctlError, *, here: str
) -> None:
    """Note in the cluster that a timer's prune failed before it had its repository.

    Args:
        session: the cluster.
        device: the device.
        repository: its name; None: the only one that the device's backups are known to go into.
        error: what the prune failed with.
        here: this node.

    Raises:
        SanctlError: the error, or that the cluster cannot be asked.
        UsageError: that is no name of a repository.
    """
    into = repository_meant(session.observe(), device, repository)
    if into is not None:
        with noting_prune(session, device, into, here=here):
            raise error


def preview_pruning(
    session: Session,
    borg: Borg,
    device: str,
    keep: Mapping[str, int],
    *,
    here: str,
    of_all_uuids: bool = False,
) -> Pruning:
    """Return what `prune_backups` would do now; change nothing.

    Raises:
        Unreachable, Refused, Busy, CommandError: as `prune_backups` says.
    """
    with turn_or_word(session, borg) as is_next:
        if not is_next:
            raise no_turn(borg.repository.name, borg.lock_s)
        _left_over(session, borg, device, here=here, of_all_uuids=of_all_uuids)
        return _plan(session, borg, device, keep, of_all_uuids=of_all_uuids)


def _left_over(
    session: Session, borg: Borg, device: str, *, here: str, of_all_uuids: bool
) -> tuple[str, ...]:
    """Return the archives of a repository that broken backups have left.

    Raises:
        Busy: one that counts may be about to become a backup. It would be the newest.
    """
    archives = borg.archives()
    own = device_uuids(session.observe())
    now_s = session.clock.wall_s()
    still_open = open_archives(archives, device, here=here, now_s=now_s, own_uuids=own)
    for archive, node in still_open.items():
        uuid = uuid_of(archives[archive])
        if of_all_uuids or not uuid or uuid in own:
            raise busy_in_repository(device, archive, node)
    return left_over(archives, device, still_open)


def _plan(
    session: Session, borg: Borg, device: str, keep: Mapping[str, int], *, of_all_uuids: bool
) -> Pruning:
    backups = borg.backups()
    await_noted(session, device)
    # The last question before they go: a restore may have begun while the repository was read.
    cluster = session.observe()
    present = next((each for each in cluster.cib.devices if each.name.value == device), None)
    if present is not None:
        refuse_unknown_content(cluster, present)
    own = None if of_all_uuids else device_uuids(cluster)
    in_use = backups_in_use(cluster)
    return plan_pruning(backups, device, keep, session.clock.wall_s(), in_use, own_uuids=own)


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
