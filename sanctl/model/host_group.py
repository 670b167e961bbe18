# SPDX-License-Identifier: GPL-2.0-or-later
"""A host group as the CIB holds it: a name, and the names of its hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from sanctl.errors import Problem, UsageError
from sanctl.model.host import HOST_NAME, HOST_NAME_HINT, HostName
from sanctl.model.names import CheckedName

_HOSTS = "hosts="


class HostGroupName(CheckedName):
    """The name of a host group; it has nothing to do with a host of the same name."""

    __slots__ = ()

    def __post_init__(self) -> None:
        if not HOST_NAME.fullmatch(self.value):
            raise UsageError(
                Problem(
                    "SAN-NAME-010", f"host group name {self.value!r} is not valid", HOST_NAME_HINT
                )
            )


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class HostGroup:
    """Hosts that are given devices together.

    Attributes:
        name: its name.
        hosts: the names of its hosts, sorted; there may be none.
    """

    name: HostGroupName
    hosts: tuple[HostName, ...] = ()

    @classmethod
    def parse(cls, name: str, value: str) -> Self:
        """Read a group's property from the CIB.

        Raises:
            UsageError: it is not one of this release; nothing of such a group is guessed.
        """
        words = value.removeprefix(_HOSTS)
        group = cls(
            name=HostGroupName.parse(name),
            hosts=tuple(map(HostName.parse, words.split(","))) if words else (),
        )
        if group.value != value or tuple(sorted({*group.hosts})) != group.hosts:
            raise UsageError(
                Problem("SAN-HOST-018", f"{value!r} is not a host group as the CIB holds one")
            )
        return group

    @property
    def value(self) -> str:
        """What the CIB holds under its name, such as `hosts=web1,web2`."""
        return _HOSTS + ",".join(host.value for host in self.hosts)


def parse_group_names(text: str) -> tuple[HostGroupName, ...]:
    """Read the groups of a device, as its meta attribute has them.

    Raises:
        UsageError: a word is no name of a group.
    """
    return tuple(sorted({HostGroupName.parse(word) for word in text.split()}))
