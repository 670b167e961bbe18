# SPDX-License-Identifier: GPL-2.0-or-later
"""A takeover: a device that was made from another one's copy at a site goes on instead of it.

The site has it, and the cluster of the device that was taken over notes what it has seen there. The
site also keeps which takeovers were given back: a takeover that is gone there without that is lost,
not ended.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

#: The beginning of a property's name and id; DEVICE.SITE follows.
TAKEOVER_PREFIX = "sanctl-takeover."

_NAME = re.compile(r"[a-z0-9-]{1,63}")
_UUID = re.compile(r"[0-9a-f]{32}")
_NUMBER = re.compile(r"[0-9]{1,10}")
_WHO = re.compile(r"[A-Za-z0-9.-]{1,64}")
_UNKNOWN = "unknown"
_LOST = "lost"


class Successor(NamedTuple):
    """The device that goes on, as the site has it.

    Attributes:
        device: its name.
        uuid: its UUID. It may be another cluster's.
        point: the name of the restore point whose copy it was made from.
        at_s: since when, in seconds since 1970.
    """

    device: str
    uuid: str
    point: str
    at_s: int

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Successor:
        """Read what a site has. What cannot be read is a takeover all the same, by nobody known."""
        words = [str(fields.get(name, "")) for name in cls._fields]
        return cls.parse(words) or cls(_UNKNOWN, "0" * 32, _UNKNOWN, 0)

    @classmethod
    def parse(cls, words: list[str]) -> Successor | None:
        """Read the words of a property's value; None for anything else."""
        if (
            len(words) != len(cls._fields)
            or not _NAME.fullmatch(words[0])
            or not _UUID.fullmatch(words[1])
            or not _NAME.fullmatch(words[2])
            or not _NUMBER.fullmatch(words[3])
        ):
            return None
        return cls(words[0], words[1], words[2], int(words[3]))


class Ending(NamedTuple):
    """A takeover that was given back, as the site has it.

    Attributes:
        successor: the device that went on.
        ended_s: when it was given back, in seconds since 1970.
        by: the node where that was typed. It may be another cluster's.
    """

    successor: Successor
    ended_s: int
    by: str

    @property
    def fields(self) -> dict[str, Any]:
        """What the site has of it."""
        return {**self.successor._asdict(), "ended_s": self.ended_s, "by": self.by}

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Ending:
        """Read what a site has. What cannot be read ends no takeover that is known."""
        ended, by = str(fields.get("ended_s", "")), str(fields.get("by", ""))
        return cls(
            Successor.of(fields),
            int(ended) if _NUMBER.fullmatch(ended) else 0,
            by if _WHO.fullmatch(by) else _UNKNOWN,
        )


class Claim(NamedTuple):
    """What is noted at the site of a device that is taken over, if all is there as it was seen.

    Attributes:
        successor: the device that goes on.
        seen: the tokens of the copies of the device taken over that were looked at; None: whatever
            the site has of it.
        replaced: the takeover by another device that ends by this one; None: none does.
    """

    successor: Successor
    seen: tuple[str, ...] | None = None
    replaced: Ending | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What the site is told."""
        told: dict[str, Any] = {"wanted": self.successor._asdict(), "seen": self.seen}
        return told if self.replaced is None else {**told, "replaced": self.replaced.fields}


class SiteTakeovers(NamedTuple):
    """What a site has of takeovers, by the folder of the device that was taken over, DEVICE.UUID.

    Attributes:
        successors: which device goes on.
        endings: the takeovers that were given back, the newest last.
    """

    successors: dict[str, Successor]
    endings: dict[str, tuple[Ending, ...]]


class Takeover(NamedTuple):
    """A device of this cluster that was taken over, as its nodes have seen it at the site.

    Attributes:
        device: the device's name.
        site: the site's name.
        uuid: the device's UUID.
        successor: the device that goes on.
        is_lost: the site does not show it any more, and not that it was given back either.
    """

    device: str
    site: str
    uuid: str
    successor: Successor
    is_lost: bool = False

    @property
    def id(self) -> str:
        """The id and the name of its property."""
        return f"{TAKEOVER_PREFIX}{self.device}.{self.site}"

    @property
    def folder(self) -> str:
        """The device's folder at the site."""
        return f"{self.device}.{self.uuid}"

    @property
    def value(self) -> str:
        """The value of its property."""
        return " ".join((self.uuid, *map(str, self.successor), *([_LOST] if self.is_lost else [])))

    @classmethod
    def parse(cls, identifier: str, value: str) -> Takeover | None:
        """Read a property; None for one that is none as this release writes them."""
        device, _, site = identifier.removeprefix(TAKEOVER_PREFIX).partition(".")
        words = value.split(" ")
        is_lost = words[-1] == _LOST and len(words) > len(Successor._fields) + 1
        successor = Successor.parse(words[1:-1] if is_lost else words[1:])
        if (
            not identifier.startswith(TAKEOVER_PREFIX)
            or not _NAME.fullmatch(device)
            or not _NAME.fullmatch(site)
            or not _UUID.fullmatch(words[0])
            or successor is None
        ):
            return None
        return cls(device, site, words[0], successor, is_lost)
