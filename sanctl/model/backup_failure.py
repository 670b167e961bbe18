# SPDX-License-Identifier: GPL-2.0-or-later
"""How a device's backups into one repository went, as properties in the CIB.

NamedTuples, as restore points are. There is no failure where the last backup succeeded; the newest
success stays, so that a node that is back after days tells no older failure. Of a timer of which no
backup has succeeded yet it is known since when they are expected. Of prunes it is known that
the last one failed.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Self

#: The id of the cluster_property_set, and the begins of the properties' names and ids, which end
#: with DEVICE.REPOSITORY.
BACKUPS_ID = "sanctl.backups"
FAILURE_PREFIX = "sanctl-backup."
SUCCESS_PREFIX = "sanctl-backed-up."
EXPECTED_PREFIX = "sanctl-backup-expected."
PRUNE_PREFIX = "sanctl-backup-prune."

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_UUID = re.compile(r"[0-9a-f]{32}")
_TIME = re.compile(r"[0-9]{1,11}")
_CODE = re.compile(r"SAN-[A-Z]{1,10}-[0-9]{3}")


class _Failure(NamedTuple):
    device: str
    repository: str
    uuid: str
    code: str
    node: str
    failed_s: int
    since_s: int


class BackupFailure(_Failure):
    """What is known of backups that failed since the last one that succeeded.

    Attributes:
        device: the device's name.
        repository: the repository's name.
        uuid: the device's UUID.
        code: the code of the last failure.
        node: the node on which it failed.
        failed_s: when, in seconds since 1970.
        since_s: when the first one failed.
    """

    __slots__ = ()
    _PREFIX = FAILURE_PREFIX

    @property
    def id(self) -> str:
        """The id and the name of its property."""
        return f"{self._PREFIX}{self.device}.{self.repository}"

    @property
    def value(self) -> str:
        """The value of its property."""
        return " ".join(map(str, self[2:]))

    @classmethod
    def parse(cls, identifier: str, value: str) -> Self | None:
        """Read a property; None for one that is none as this release writes them."""
        names, failed = _names(identifier, cls._PREFIX), _failed(value)
        return cls(names[0], names[1], *failed) if names and failed else None


class PruneFailure(BackupFailure):
    """The same of prunes that failed."""

    __slots__ = ()
    _PREFIX = PRUNE_PREFIX


class BackupSuccess(NamedTuple):
    """The newest backup that succeeded.

    Attributes:
        device: the device's name.
        repository: the repository's name.
        uuid: the device's UUID.
        succeeded_s: when it was done, in seconds since 1970.
        every_s: the longest time between two runs of the timer that makes them, of several the
            shortest one of these; 0: by no timer, or one that does not say so.
    """

    device: str
    repository: str
    uuid: str
    succeeded_s: int
    every_s: int = 0

    @property
    def id(self) -> str:
        """The id and the name of its property."""
        return f"{SUCCESS_PREFIX}{self.device}.{self.repository}"

    @property
    def value(self) -> str:
        """The value of its property."""
        # Without an interval as a release reads it that knows of none: that one takes it for no
        # success otherwise, and tells an older failure rather than none.
        return " ".join(map(str, self[2:] if self.every_s else self[2:4]))

    @classmethod
    def parse(cls, identifier: str, value: str) -> BackupSuccess | None:
        """Read a property; None for one that is none as this release writes them."""
        names = _names(identifier, SUCCESS_PREFIX)
        uuid, *times = value.split(" ")
        is_one = len(times) in {1, 2} and all(map(_TIME.fullmatch, times))
        if names is None or not _UUID.fullmatch(uuid) or not is_one:
            return None
        return cls(*names, uuid, *map(int, times))


class ExpectedBackup(NamedTuple):
    """A timer's backups, of which none has succeeded yet.

    Attributes:
        device: the device's name.
        repository: the repository's name.
        uuid: the device's UUID.
        since_s: when the timer was set up or ran first, in seconds since 1970.
        every_s: the longest time between two runs of the timer.
    """

    device: str
    repository: str
    uuid: str
    since_s: int
    every_s: int

    @property
    def id(self) -> str:
        """The id and the name of its property."""
        return f"{EXPECTED_PREFIX}{self.device}.{self.repository}"

    @property
    def value(self) -> str:
        """The value of its property."""
        return " ".join(map(str, self[2:]))

    @classmethod
    def parse(cls, identifier: str, value: str) -> ExpectedBackup | None:
        """Read a property; None for one that is none as this release writes them."""
        names = _names(identifier, EXPECTED_PREFIX)
        uuid, *times = value.split(" ")
        is_one = len(times) == 2 and all(map(_TIME.fullmatch, times))
        if names is None or not _UUID.fullmatch(uuid) or not is_one:
            return None
        return cls(*names, uuid, int(times[0]), int(times[1]))


def _failed(value: str) -> tuple[str, str, str, int, int] | None:
    """Return UUID, code, node, and when the last and the first one failed, as a property says."""
    words = value.split(" ")
    if (
        len(words) != 5
        or not _UUID.fullmatch(words[0])
        or not _CODE.fullmatch(words[1])
        or not words[2]
        or not all(_TIME.fullmatch(word) for word in words[3:])
    ):
        return None
    uuid, code, node = words[:3]
    return uuid, code, node, int(words[3]), int(words[4])


def _names(identifier: str, prefix: str) -> tuple[str, str] | None:
    """Return the device and the repository that a property is about."""
    device, _, repository = identifier.removeprefix(prefix).partition(".")
    is_one = identifier.startswith(prefix) and all(map(_NAME.fullmatch, (device, repository)))
    return (device, repository) if is_one else None
