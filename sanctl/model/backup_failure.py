# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's failed backups into one repository, as a property in the CIB.

A NamedTuple, as restore points are. There is none where the last backup succeeded: a night without
a failure changes nothing in the CIB for it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: The id of the cluster_property_set, and the begin of the properties' names and ids, which end
#: with DEVICE.REPOSITORY.
BACKUPS_ID = "sanctl.backups"
FAILURE_PREFIX = "sanctl-backup."

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_UUID = re.compile(r"[0-9a-f]{32}")
_TIME = re.compile(r"[0-9]{1,11}")
_CODE = re.compile(r"SAN-[A-Z]{1,10}-[0-9]{3}")


class BackupFailure(NamedTuple):
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

    device: str
    repository: str
    uuid: str
    code: str
    node: str
    failed_s: int
    since_s: int

    @property
    def id(self) -> str:
        """The id and the name of its property."""
        return f"{FAILURE_PREFIX}{self.device}.{self.repository}"

    @property
    def value(self) -> str:
        """The value of its property."""
        return " ".join(map(str, self[2:]))

    @classmethod
    def parse(cls, identifier: str, value: str) -> BackupFailure | None:
        """Read a property; None for one that is none as this release writes them."""
        device, _, repository = identifier.removeprefix(FAILURE_PREFIX).partition(".")
        words = value.split(" ")
        if (
            not identifier.startswith(FAILURE_PREFIX)
            or not _NAME.fullmatch(device)
            or not _NAME.fullmatch(repository)
            or len(words) != 5
            or not _UUID.fullmatch(words[0])
            or not _CODE.fullmatch(words[1])
            or not words[2]
            or not all(_TIME.fullmatch(word) for word in words[3:])
        ):
            return None
        uuid, code, node = words[:3]
        return cls(device, repository, uuid, code, node, int(words[3]), int(words[4]))
