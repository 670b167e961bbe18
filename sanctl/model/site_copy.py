# SPDX-License-Identifier: GPL-2.0-or-later
"""Which copy at a second site a device is to hold: by its names, and with its digest.

Light: the agents read it, as a part of the order (sanctl/model/device_restore.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sanctl.errors import Problem, UsageError

_TEXT = re.compile(
    r"(?P<site>[a-z0-9-]{1,16}):/(?P<device>[a-z0-9-]{1,63})\.(?P<uuid>[0-9a-f]{32})"
    r"/(?P<point>[a-z0-9-]{1,40})\.(?P<token>[0-9a-f]{16})/(?P<digest>[0-9a-f]{64})"
)
_WANTED = re.compile(
    r"(?P<device>[a-z0-9-]{1,63})(?:\.(?P<uuid>[0-9a-f]{1,32}))?(?:@(?P<point>[a-z0-9-]{1,40}))?"
)


class SiteCopy(NamedTuple):
    """A proven copy at a site.

    Attributes:
        site: the site's name.
        device: the name of the device that was copied.
        uuid: that device's UUID. It may be another cluster's.
        point: the name of the restore point.
        token: its token.
        digest: the digest of the content, which a device has to have that is to hold it.
    """

    site: str
    device: str
    uuid: str
    point: str
    token: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> SiteCopy | None:
        """Read what `str` wrote; None for anything else."""
        found = _TEXT.fullmatch(text)
        return cls(*found.groups()) if found else None

    @property
    def folder(self) -> str:
        """The folder at the site that has it."""
        return f"{self.device}.{self.uuid}"

    def is_of_same(self, other: SiteCopy) -> bool:
        """Whether another copy is one of the same device, at the same site."""
        return (self.site, self.folder) == (other.site, other.folder)

    @property
    def name(self) -> str:
        """Its name, for people."""
        return f"{self.device}.{self.uuid[:8]}@{self.point} at site {self.site}"

    def __str__(self) -> str:
        return f"{self.site}:/{self.folder}/{self.point}.{self.token}/{self.digest}"


class WantedCopy(NamedTuple):
    """A copy as it is named on the command line: `DEVICE[.UUID][@POINT]`.

    Attributes:
        device: the name of the device that was copied.
        uuid: the begin of its UUID; empty: it was not said.
        point: the name of the restore point; empty: the newest one.
    """

    device: str
    uuid: str
    point: str

    @classmethod
    def parse(cls, text: str) -> WantedCopy:
        """Read what was typed.

        Raises:
            UsageError: it names no copy.
        """
        found = _WANTED.fullmatch(text)
        if found is None:
            raise UsageError(
                Problem(
                    "SAN-SITE-001",
                    f"{text!r} names no copy at a site",
                    "write DEVICE, DEVICE@POINT or DEVICE.UUID@POINT as 'sanctl site copies' shows "
                    "them",
                )
            )
        return cls(found["device"], found["uuid"] or "", found["point"] or "")

    def __str__(self) -> str:
        folder = f"{self.device}.{self.uuid}" if self.uuid else self.device
        return f"{folder}@{self.point}" if self.point else folder
