# SPDX-License-Identifier: GPL-2.0-or-later
"""Backups of devices in a repository: their names, what a repository is, what is known of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from sanctl.errors import Problem, UsageError

#: What the names of restore points begin with that backups make for themselves where none was
#: named, and remove afterwards; and what stands for it in the name of the backup.
OWN_POINT = "for-backup"
_OWN_NAME = re.compile(rf"{OWN_POINT}-[0-9a-f]{{8}}")
#: Behind the name of an archive that is being written: it is no backup before it is renamed.
WRITING = ".writing"

_TIME = "%Y%m%d-%H%M%S"
_BACKUP = re.compile(
    r"(?P<device>[a-z][a-z0-9-]{0,30})@(?P<point>[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?)"
    r"\.(?P<taken>[0-9]{8}-[0-9]{6})"
)
_REPOSITORY = re.compile(r"[a-z][a-z0-9-]{0,30}")


@dataclass(frozen=True, slots=True, order=True)
class BackupName:
    """The name of a backup, `DEVICE@POINT.TIME`; the time is that of the restore point, in UTC."""

    device: str
    taken_s: int
    point: str

    @classmethod
    def read(cls, text: str) -> BackupName | None:
        """Read what `str` wrote; None for anything else."""
        match = _BACKUP.fullmatch(text)
        if match is None:
            return None
        try:
            taken = datetime.strptime(match["taken"], _TIME).replace(tzinfo=UTC)
        except ValueError:
            return None
        return cls(match["device"], int(taken.timestamp()), match["point"])

    @classmethod
    def parse(cls, text: str) -> BackupName:
        """Read what `str` wrote.

        Raises:
            UsageError: it is no name of a backup.
        """
        name = cls.read(text)
        if name is None:
            raise UsageError(
                Problem(
                    "SAN-BKP-001",
                    f"{text!r} names no backup",
                    "write DEVICE@POINT.TIME as 'sanctl backup list' shows it",
                )
            )
        return name

    @property
    def is_of_own_point(self) -> bool:
        """Whether the restore point was made for the backup alone."""
        return self.point == OWN_POINT

    @property
    def image(self) -> str:
        """The name of the device's image in the archive."""
        return f"{self.device}.img"

    @property
    def digest_file(self) -> str:
        """The name of the file in the archive that has the image's SHA-256, as sha256sum reads."""
        return f"{self.image}.sha256"

    def __str__(self) -> str:
        taken = datetime.fromtimestamp(self.taken_s, UTC)
        return f"{self.device}@{self.point}.{taken:{_TIME}}"


def own_point_name(token: str) -> str:
    """Return the name of the restore point that a backup makes for itself, by its order's token.

    Each has another one: of a node that is away, one that is being deleted stays until it is back.
    """
    return f"{OWN_POINT}-{token[-8:]}"


def is_own_point(name: str) -> bool:
    """Whether a backup makes a restore point of that name for itself."""
    return bool(_OWN_NAME.fullmatch(name))


def refuse_own_name(name: str) -> None:
    """Refuse the name of a restore point that would be taken for a backup's own, and deleted.

    Raises:
        UsageError: it is such a name.
    """
    if name == OWN_POINT or is_own_point(name):
        raise UsageError(
            Problem(
                "SAN-NAME-008",
                f"restore point name {name!r} is one that backups give their own",
                "choose another name: backups delete restore points of that name",
            )
        )


def parse_repository_name(text: str) -> str:
    """Return the name of a repository.

    Raises:
        UsageError: it is none.
    """
    if not _REPOSITORY.fullmatch(text):
        raise UsageError(
            Problem(
                "SAN-NAME-009",
                f"repository name {text!r} is not valid",
                "use 1 to 31 of a-z, 0-9 and '-', the first one a letter",
            )
        )
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Where backups are kept: a name, and the path or the ssh:// address that borg is given."""

    name: str
    location: str

    @property
    def is_remote(self) -> bool:
        """Whether it is on another server."""
        return self.location.startswith("ssh://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A whole backup in a repository.

    Attributes:
        name: its name.
        repository: the name of the repository.
        size_bytes: the size of the device then; None: not known.
        uuid: the UUID of the device; empty: an older release has made it, and it is not known.
        number: the later it was stored the higher, of the backups of that device; 0: an older
            release has made it, and it is not known.
    """

    name: BackupName
    repository: str
    size_bytes: int | None
    uuid: str = ""
    number: int = 0
