# SPDX-License-Identifier: GPL-2.0-or-later
"""What a device was made from: the restore point, and the nodes whose files are copies of it.

A NamedTuple, not a dataclass: the agents read it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sanctl.model.restore_point import RestorePoint

_TOKEN = re.compile(r"[0-9a-f]{16}")
_UUID = re.compile(r"[0-9a-f]{32}")


class CloneOrigin(NamedTuple):
    """The restore point of a device that is a clone, as its parameter `origin` has it.

    It never changes, also when the restore point is deleted, or another one gets its name.

    Attributes:
        device: the name of the device that the restore point is of.
        point: the name of the restore point.
        token: the token that names the restore point's files.
        uuid: the UUID of the device that the restore point is of.
        size_bytes: the size of that device then; what its file has behind that is no part of it.
        nodes: the nodes that had a file of it. A replica on another node is filled by a resync.
    """

    device: str
    point: str
    token: str
    uuid: str
    size_bytes: int
    nodes: tuple[str, ...]

    @classmethod
    def of(cls, point: RestorePoint) -> CloneOrigin:
        """Return the origin of a clone of that restore point."""
        return cls(point.device, point.name, point.token, point.uuid, point.size_bytes, point.nodes)

    @classmethod
    def parse(cls, text: str) -> CloneOrigin | None:
        """Read what `str` wrote; None for anything else."""
        words = text.split(" ")
        if len(words) != 6:
            return None
        device, point, token, uuid, size, nodes = words
        if not _TOKEN.fullmatch(token) or not _UUID.fullmatch(uuid) or not size.isdecimal():
            return None
        if not (device and point and nodes):
            return None
        return cls(device, point, token, uuid, int(size), tuple(nodes.split(",")))

    @property
    def name(self) -> str:
        """The restore point as DEVICE@POINT."""
        return f"{self.device}@{self.point}"

    def __str__(self) -> str:
        words = (self.device, self.point, self.token, self.uuid, str(self.size_bytes))
        return " ".join((*words, ",".join(self.nodes)))
