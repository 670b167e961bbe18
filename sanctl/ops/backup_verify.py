# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `backup verify`: reads a backup from begin to end."""

from __future__ import annotations

from collections.abc import Callable

from sanctl.drivers import block_stream
from sanctl.drivers.borg import SILENCE_S, Borg
from sanctl.errors import Problem, Refused
from sanctl.model.backup import Backup, BackupName
from sanctl.ops.session import Session


def existing_backup(borg: Borg, name: BackupName) -> Backup:
    """Return a whole backup.

    Raises:
        CommandError: there is none of that name, or the repository cannot be read.
    """
    backups = borg.backups()
    found = next((each for each in backups if each.name == name), None)
    if found is not None:
        return found
    known = ", ".join(str(each.name) for each in backups if each.name.device == name.device)
    raise Refused(
        Problem(
            "SAN-BKP-016",
            f"repository {borg.repository.name} has no backup {name}",
            f"of that device it has: {known}" if known else "'sanctl backup list' shows all",
        )
    )


def verify_backup(
    session: Session, borg: Borg, name: BackupName, *, size_bytes: int | None
) -> tuple[str, bool]:
    """Read a backup from begin to end; return its SHA-256, and whether it is the one noted.

    Args:
        session: reports how far it is.
        borg: the repository.
        name: the backup.
        size_bytes: how long it is; None: it does not say.

    Raises:
        CommandError: it cannot be read.
    """
    noted = borg.recorded_digest(name)
    update: Callable[[str], None] = session.reporter.update

    def progress(read_bytes: int) -> None:
        share = f"{100 * read_bytes / size_bytes:.0f} %" if size_bytes else f"{read_bytes} bytes"
        update(f"backup {name}: {share} read")

    with borg.reading(name, name.image) as pipe:
        # A backup may have the repository first.
        silence_s = SILENCE_S + borg.lock_s
        digest, done = block_stream.digest_of_pipe(pipe, progress, silence_s=silence_s)
    return digest, digest == noted and size_bytes in {None, done}
