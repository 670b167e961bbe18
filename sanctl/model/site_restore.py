# SPDX-License-Identifier: GPL-2.0-or-later
"""The last time that a device of this cluster was made what a copy at a second site is.

NamedTuples, as sites are.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: The beginning of a property's name and id; DEVICE.UUID follows, of the device that was copied.
RESTORED_PREFIX = "sanctl-restored."

_FOLDER = re.compile(r"(?P<device>[a-z0-9-]{1,63})\.(?P<uuid>[0-9a-f]{32})")
_VALUE = re.compile(
    r"(?P<site>[a-z0-9-]{1,16}) (?P<point>[a-z0-9-]{1,40}) (?P<into>[a-z0-9-]{1,63})"
    r" (?P<begun>[0-9]{1,12}) (?P<ended>[0-9]{1,12}) (?P<size>[0-9]{1,18})"
)


class RestoreRecord(NamedTuple):
    """The last restore from a copy of a device: its digest was found to be the copy's.

    Attributes:
        device: the name of the device that was copied.
        uuid: its UUID. It may be another cluster's.
        site: the site that had the copy.
        point: the name of the restore point that was copied.
        into: the name of the device here that was made the same.
        begun_s: when that was ordered, in seconds since 1970, by the clock of the node where it was
            typed.
        ended_s: when hosts were let in again, by the clock of the node that filled the device.
        size_bytes: the size of the device.
    """

    device: str
    uuid: str
    site: str
    point: str
    into: str
    begun_s: int
    ended_s: int
    size_bytes: int

    @property
    def id(self) -> str:
        """The id and the name of its property."""
        return f"{RESTORED_PREFIX}{self.folder}"

    @property
    def folder(self) -> str:
        """The folder at the site that has the copy."""
        return f"{self.device}.{self.uuid}"

    @property
    def value(self) -> str:
        """The value of its property."""
        return " ".join(map(str, self[2:]))

    @property
    def duration_s(self) -> int | None:
        """How long it took; None: not known, as the clocks of the two nodes disagree."""
        return self.ended_s - self.begun_s if self.ended_s >= self.begun_s else None

    @classmethod
    def parse(cls, identifier: str, value: str) -> RestoreRecord | None:
        """Read a property; None for one that is none as this release writes them."""
        folder = _FOLDER.fullmatch(identifier.removeprefix(RESTORED_PREFIX))
        found = _VALUE.fullmatch(value)
        if not identifier.startswith(RESTORED_PREFIX) or folder is None or found is None:
            return None
        site, point, into, begun, ended, size = found.groups()
        return cls(
            folder["device"], folder["uuid"], site, point, into, int(begun), int(ended), int(size)
        )
