# SPDX-License-Identifier: GPL-2.0-or-later
"""What a device gets that is created from a backup: the image, and the proof that it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sanctl.config import backups
from sanctl.drivers import block_stream
from sanctl.drivers.borg import SILENCE_S, Borg
from sanctl.drivers.range_copy import PipeSource
from sanctl.errors import CommandError, Problem
from sanctl.model.backup import BackupName
from sanctl.plan.device.backups import find_repository
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner


class BackupSource:
    """A backup in its repository."""

    def __init__(self, runner: Runner, repository: str, backup: str) -> None:
        text = read_text_or(backups.BACKUP_TOML, "")
        known = backups.parse(text) if text else ()
        self.name = BackupName.parse(backup)
        self._borg = Borg(runner, find_repository(known, repository))

    @contextmanager
    def image(self, size_bytes: int) -> Iterator[PipeSource]:
        """Read the image, which has to be that long.

        Raises:
            CommandError: it could not be read to its end.
        """
        with self._borg.reading(self.name, self.name.image) as pipe:
            yield PipeSource(pipe, size_bytes, silence_s=SILENCE_S)

    def digest(self) -> str:
        """Return the SHA-256 that was noted at the backup.

        Raises:
            CommandError: it cannot be read.
        """
        return self._borg.recorded_digest(self.name)

    def check(self, device: str, size_bytes: int, wanted: str) -> str:
        """Read a device, and compare its digest with what was noted at the backup; return it.

        Raises:
            CommandError: it is another one.
            OSError: the device cannot be read.
        """
        found = block_stream.read_through(device, size_bytes, lambda _part: None)
        if found != wanted:
            raise CommandError(
                Problem(
                    "SAN-BKP-020",
                    f"backup {self.name}: SHA-256 {found} came back, and {wanted or 'none'} was "
                    "noted",
                    f"'sanctl backup verify {self.name}' reads it once more; use another backup",
                )
            )
        return found
