# SPDX-License-Identifier: GPL-2.0-or-later
"""A host as the CIB holds it: name, IQNs, CHAP user; never a secret."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from sanctl.errors import Problem, UsageError
from sanctl.model.access import CHAP, MUTUAL, split_host
from sanctl.model.names import CheckedName, Iqn

#: Names of host groups are alike.
HOST_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")
HOST_NAME_HINT = "use 1 to 63 of a-z, 0-9, '-' and '.', the first and last a letter or digit"
# An IQN is a usual user name. No '/', which ends the name in the CIB; LIO takes NULL for none.
_USER = re.compile(r"(?!NULL)[A-Za-z0-9][A-Za-z0-9._:@-]{0,222}")


class HostName(CheckedName):
    """The name of a host: part of an id in the CIB, and the name of the file with its secret."""

    __slots__ = ()

    def __post_init__(self) -> None:
        if not HOST_NAME.fullmatch(self.value):
            raise UsageError(
                Problem("SAN-NAME-007", f"host name {self.value!r} is not valid", HOST_NAME_HINT)
            )


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Host:
    """A host that uses devices.

    Attributes:
        name: its name.
        iqns: its initiators' names, sorted.
        chap_user: the user name that it logs in by with CHAP; empty: without authentication.
        is_mutual: the target authenticates to the host, too, by the same user name.
    """

    name: HostName
    iqns: tuple[Iqn, ...]
    chap_user: str = ""
    is_mutual: bool = False

    def __post_init__(self) -> None:
        if not self.iqns:
            raise UsageError(
                Problem("SAN-HOST-006", f"host {self.name} has no IQN", "name one with --iqn")
            )
        if self.chap_user and not _USER.fullmatch(self.chap_user):
            raise UsageError(
                Problem(
                    "SAN-HOST-007",
                    f"CHAP user name {self.chap_user!r} is not valid",
                    "use letters, digits and . _ : @ -, the first a letter or digit, at most 223; "
                    "the host's IQN is a usual one",
                )
            )
        if self.is_mutual and not self.chap_user:
            raise UsageError(
                Problem(
                    "SAN-HOST-008",
                    f"host {self.name}: mutual CHAP needs CHAP",
                    "give --chap USER, too: the target authenticates only after the host",
                )
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` makes of a host, such as `web1=iqn.a,iqn.b/chap=web1/mutual`.

        Raises:
            UsageError: it is not that; nothing of such a host is guessed.
        """
        try:
            found = split_host(text)
        except ValueError as error:
            raise UsageError(Problem("SAN-HOST-009", str(error))) from error
        host = cls(
            name=HostName.parse(found.name),
            iqns=tuple(map(Iqn.parse, found.iqns)),
            chap_user=found.chap_user,
            is_mutual=found.is_mutual,
        )
        if str(host) != text:
            raise UsageError(
                Problem("SAN-HOST-009", f"{text!r} is not a host as the CIB holds one")
            )
        return host

    def __str__(self) -> str:
        words = [f"{self.name}={','.join(iqn.value for iqn in self.iqns)}"]
        if self.chap_user:
            words.append(f"{CHAP}{self.chap_user}")
        if self.is_mutual:
            words.append(MUTUAL)
        return "/".join(words)


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Read the hosts of a device, as its parameter `hosts` has them.

    Raises:
        UsageError: one of them is malformed.
    """
    return tuple(Host.parse(word) for word in text.split())
