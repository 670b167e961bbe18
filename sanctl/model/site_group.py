# SPDX-License-Identifier: GPL-2.0-or-later
"""What the cluster knows of devices that are copied to a second site as they are at one moment.

NamedTuples, as sites are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from sanctl.model.point_schedule import PointSchedule, Rule

#: The beginning of a property's name and id; DEVICE.SITE follows, the first device of the group.
COPY_GROUP_PREFIX = "sanctl-copy-group."

_NOTHING = "-"
_NAME = re.compile(r"[a-z0-9-]{1,63}")
_MEMBER = re.compile(r"[a-z0-9-]{1,63}\.[0-9a-f]{8}")
_UUID_DIGITS = 8
_POINT = re.compile(r"[a-z0-9-]{1,40}")
_NUMBER = re.compile(r"[0-9]{1,12}")


class CompleteMoment(NamedTuple):
    """A moment of which a site has a proven copy of each device of a group.

    Attributes:
        name: the name of the restore points.
        made_s: when the first of them was made, in seconds since 1970.
        proven_s: when the last of the copies was proven.
    """

    name: str
    made_s: int
    proven_s: int


class GroupRecord(NamedTuple):
    """What the cluster knows of the copies of a group at a site.

    Attributes:
        members: its devices, by name: DEVICE.UUID, with the first digits of the UUID, so that one
            that was made anew under a name is not taken for the one that was copied; two at least.
        site: the site's name.
        begun_s: since when runs were begun of which none has made its moment complete, in seconds
            since 1970; 0: the last one has.
        schedule: since when it is copied by itself, how often, and how much the site keeps; None:
            by command alone.
        complete: the newest moment that was seen to be complete; None: none was yet.
    """

    members: tuple[str, ...]
    site: str
    begun_s: int = 0
    schedule: PointSchedule | None = None
    complete: CompleteMoment | None = None

    @classmethod
    def of(cls, devices: Iterable[tuple[str, str]], site: str) -> GroupRecord:
        """Return that of devices, each by its name and UUID, of which nothing is known yet."""
        members = (f"{name}.{uuid[:_UUID_DIGITS]}" for name, uuid in sorted(devices))
        return cls(tuple(members), site)

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of its devices, sorted."""
        return tuple(each.partition(".")[0] for each in self.members)

    def has(self, device: str, uuid: str) -> bool:
        """Whether that very device is of the group."""
        return f"{device}.{uuid[:_UUID_DIGITS]}" in self.members

    @property
    def id(self) -> str:
        """The id and the name of its property."""
        return f"{COPY_GROUP_PREFIX}{self.devices[0]}.{self.site}"

    @property
    def value(self) -> str:
        """The value of its property."""
        schedule = self.schedule.value.replace(" ", "/") if self.schedule else _NOTHING
        words = (",".join(self.members), str(self.begun_s), schedule)
        return " ".join((*words, *map(str, self.complete or ())))

    @property
    def rule(self) -> Rule | None:
        """How often it is copied by itself; None: by command alone."""
        return self.schedule.rules[0] if self.schedule else None

    @classmethod
    def parse(cls, identifier: str, value: str) -> GroupRecord | None:
        """Read a property; None for one that is none as this release writes them."""
        first, _, site = identifier.removeprefix(COPY_GROUP_PREFIX).partition(".")
        words = value.split(" ")
        members = tuple(words[0].split(","))
        if (
            not identifier.startswith(COPY_GROUP_PREFIX)
            or not _NAME.fullmatch(site)
            or members[0].partition(".")[0] != first
            or len(members) < 2
            or not all(map(_MEMBER.fullmatch, members))
            or len(words) not in {3, 6}
            or not all(map(_NUMBER.fullmatch, (words[1], *words[4:])))
            or not all(map(_POINT.fullmatch, words[3:4]))
        ):
            return None
        schedule = PointSchedule.parse(words[2].replace("/", " "))
        if words[2] != _NOTHING and (schedule is None or len(schedule.rules) != 1):
            return None
        complete = None
        if len(words) == 6:
            complete = CompleteMoment(words[3], int(words[4]), int(words[5]))
        return cls(members, site, int(words[1]), schedule, complete)
