# SPDX-License-Identifier: GPL-2.0-or-later
"""Notes in the CIB how a device's last backup went, for `sanctl status`.

The error of a backup is the one that its command ends with: that it could not be noted is no other
one. A note on this node's disk stays then, as after a kill, and the pool agent tells the cluster
(`tell_successes`, `note_broken_off`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from sanctl.drivers import backup_notes
from sanctl.errors import SanctlError
from sanctl.model.backup_failure import BackupSuccess
from sanctl.model.cib_change import (
    Change,
    RemoveBackupFailure,
    RemoveExpectedBackup,
    RemovePruneFailure,
    SetBackupSuccess,
)
from sanctl.model.names import DeviceName
from sanctl.ops.session import Session
from sanctl.plan.device.backup_failures import (
    plan_failure_note,
    plan_failure_removal,
    plan_succeeded,
)
from sanctl.plan.device.backup_intervals import plan_first_run, plan_interval
from sanctl.plan.device.prune_failures import plan_prune_succeeded

#: Nothing failed: the repository has what was asked for.
_NO_FAILURE = frozenset({"SAN-BKP-017"})
_UNREADABLE, _BROKEN_OFF = "SAN-BKP-009", "SAN-BKP-025"


@contextlib.contextmanager
def noting_failure(
    session: Session, device: str, repository: str, *, here: str, has_note: bool = True
) -> Iterator[None]:
    """Note in the cluster what a backup fails with.

    Args:
        session: the cluster.
        device: the device.
        repository: the repository.
        here: this node.
        has_note: this node's note of the device is this backup's; else it is that of the one that
            has the device's lock, and stays.
    """
    try:
        yield
    except (SanctlError, OSError) as error:
        code = error.problems[0].code if isinstance(error, SanctlError) else _UNREADABLE
        with contextlib.suppress(SanctlError, OSError):
            if code not in _NO_FAILURE:
                now_s = int(session.clock.wall_s())
                # It may have failed before its begin was noted, and the cluster take nothing now.
                if has_note and backup_notes.begun(device) is None:
                    with contextlib.suppress(OSError):
                        backup_notes.begin(device, repository, here, now_s)
                _note_failure(session, device, repository, code=code, node=here, failed_s=now_s)
            if has_note:
                backup_notes.end(device)
        raise


def note_success(session: Session, success: BackupSuccess) -> None:
    """Note in the cluster that a backup succeeded, and that none before it has failed.

    Until it is noted the note on this node's disk says it.
    """
    with contextlib.suppress(OSError):
        backup_notes.end(success.device)
    with contextlib.suppress(SanctlError, OSError):
        _tell(session, success)


def tell_successes(session: Session, device: str) -> None:
    """Note in the cluster the successes of this node's backups that it could not be told before.

    Raises:
        SanctlError: one cannot be noted now.
        OSError: this node's note cannot be read or removed.
    """
    for success in backup_notes.successes(device):
        _tell(session, success)


def _tell(session: Session, success: BackupSuccess) -> None:
    session.change(
        lambda seen: plan_succeeded(seen, success, now_s=session.clock.wall_s()),
        reads_replicas=False,
    )
    backup_notes.success_told(success)


def note_broken_off(session: Session, device: str) -> None:
    """Note in the cluster that a backup of this node was killed, if it has told no end.

    The node may have been away for days, and others may have made backups since: it failed when it
    began.

    Raises:
        SanctlError: it cannot be noted now.
        OSError: this node's note cannot be read or removed.
    """
    begun = backup_notes.begun(device)
    if begun is not None:
        repository, node, begun_s = begun
        failed_s = int(session.clock.wall_s()) if begun_s is None else begun_s
        _note_failure(session, device, repository, code=_BROKEN_OFF, node=node, failed_s=failed_s)
        backup_notes.end(device)


class Forgotten(NamedTuple):
    """Whether it was noted that a backup failed, that some are awaited, that a prune failed."""

    failure: bool
    interval: bool
    prune: bool


def forget_backups(session: Session, device: str, repository: str) -> Forgotten:
    """Take away that a device's backups or prunes failed, or that some backups are awaited.

    Raises:
        SanctlError: the cluster cannot be asked or changed.
    """
    changes = session.change(
        lambda seen: (
            *plan_failure_removal(seen, device, repository),
            *plan_prune_succeeded(seen, device, repository),
        ),
        reads_replicas=False,
    )

    def was_changed(*kinds: type[Change]) -> bool:
        return any(isinstance(change, kinds) for change in changes)

    return Forgotten(
        was_changed(RemoveBackupFailure),
        was_changed(SetBackupSuccess, RemoveExpectedBackup),
        was_changed(RemovePruneFailure),
    )


def note_first_run(session: Session, device: str, repository: str, *, every_s: int) -> None:
    """Note in the cluster that a timer runs, where no backup of its has succeeded yet.

    No reason to make none: where it cannot be noted now, the next run does.
    """
    if every_s:
        with contextlib.suppress(SanctlError, OSError):
            session.change(
                lambda seen: plan_first_run(
                    seen, device, repository, every_s=every_s, now_s=int(session.clock.wall_s())
                ),
                reads_replicas=False,
            )


def expect_backups(session: Session, device: DeviceName, repository: str, *, every_s: int) -> bool:
    """Note in the cluster how often a timer is to back a device up from now on.

    Returns:
        Whether that has changed something.

    Raises:
        Refused: there is no such device.
        SanctlError: the cluster cannot be asked or changed.
    """
    changes = session.change(
        lambda seen: plan_interval(
            seen, device, repository, every_s=every_s, now_s=int(session.clock.wall_s())
        ),
        reads_replicas=False,
    )
    return bool(changes)


def _note_failure(
    session: Session, device: str, repository: str, *, code: str, node: str, failed_s: int
) -> None:
    session.change(
        lambda seen: plan_failure_note(
            seen,
            device,
            repository,
            code=code,
            node=node,
            failed_s=failed_s,
            now_s=int(session.clock.wall_s()),
        ),
        reads_replicas=False,
    )
