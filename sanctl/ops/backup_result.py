# SPDX-License-Identifier: GPL-2.0-or-later
"""Notes in the CIB whether a device's last backup failed, for `sanctl status`.

The error of a backup is the one that its command ends with: that it could not be noted is no other
one. A note on this node's disk stays then, as after a kill, and the pool agent tells the cluster
(`note_broken_off`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sanctl.drivers import backup_notes
from sanctl.errors import SanctlError
from sanctl.ops.session import Session
from sanctl.plan.device.backup_failures import plan_failure_note, plan_failure_removal

#: Nothing failed: the repository has what was asked for.
_NO_FAILURE = frozenset({"SAN-BKP-017"})
_UNREADABLE, _BROKEN_OFF = "SAN-BKP-009", "SAN-BKP-025"


@contextlib.contextmanager
def noting_failure(session: Session, device: str, repository: str, *, here: str) -> Iterator[None]:
    """Note in the cluster what a backup fails with."""
    try:
        yield
    except (SanctlError, OSError) as error:
        code = error.problems[0].code if isinstance(error, SanctlError) else _UNREADABLE
        with contextlib.suppress(SanctlError, OSError):
            if code not in _NO_FAILURE:
                now_s = int(session.clock.wall_s())
                _note_failure(session, device, repository, code=code, node=here, failed_s=now_s)
            backup_notes.end(device)
        raise


def note_success(session: Session, device: str, repository: str) -> None:
    """Take away what the cluster has noted of failures before."""
    with contextlib.suppress(SanctlError, OSError):
        backup_notes.end(device)
        forget_failure(session, device, repository)


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


def forget_failure(session: Session, device: str, repository: str) -> bool:
    """Take away that a device's backups into a repository failed; return whether it was noted.

    Raises:
        SanctlError: the cluster cannot be asked or changed.
    """
    return bool(
        session.change(
            lambda seen: plan_failure_removal(seen, device, repository), reads_replicas=False
        )
    )


def _note_failure(
    session: Session, device: str, repository: str, *, code: str, node: str, failed_s: int
) -> None:
    session.change(
        lambda seen: plan_failure_note(
            seen, device, repository, code=code, node=node, failed_s=failed_s
        ),
        reads_replicas=False,
    )
