# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts as a device's parameter has them, and entries of access lists. Light: agents import it.

The checked values are those of model/host.py.
"""

from __future__ import annotations

from typing import NamedTuple

CHAP, MUTUAL = "chap=", "mutual"


class HostAccess(NamedTuple):
    """A host that may use a device, as an agent gets it.

    Attributes:
        name: the host's name, which is that of the file with its secret.
        iqns: its initiators.
        chap_user: the user name of CHAP; empty: it logs in without authentication.
        is_mutual: the target authenticates to the host, too.
    """

    name: str
    iqns: tuple[str, ...]
    chap_user: str = ""
    is_mutual: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Its entries in the access list."""
        return tuple(
            access_word(iqn, self.chap_user, is_mutual=self.is_mutual) for iqn in self.iqns
        )


def split_hosts(text: str) -> tuple[tuple[HostAccess, ...], tuple[str, ...]]:
    """Return a device's hosts, and the names of those that cannot be read: they are not let in."""
    hosts, unreadable = [], []
    for word in text.split():
        try:
            hosts.append(split_host(word))
        except ValueError:
            unreadable.append(word.partition("=")[0])
    return tuple(hosts), tuple(unreadable)


def split_host(text: str) -> HostAccess:
    """Read a host such as `web1=iqn.a,iqn.b/chap=web1/mutual`.

    Raises:
        ValueError: there is more or less than that.
    """
    name, equals, rest = text.partition("=")
    listed, *options = rest.split("/")
    is_mutual = options[-1:] == [MUTUAL]
    users = options[:-1] if is_mutual else options
    if not (name and equals and listed) or len(users) > 1 or (is_mutual and not users):
        raise ValueError(f"{text!r} is not a host")
    if users and not users[0].startswith(CHAP):
        # An option of a later release: to ignore it could let a host in that has to do more.
        raise ValueError(f"{text!r} has an option that is not known here")
    user = users[0].removeprefix(CHAP) if users else ""
    if users and not user:
        raise ValueError(f"{text!r} has no CHAP user")
    return HostAccess(name, tuple(listed.split(",")), user, is_mutual)


def access_word(iqn: str, chap_user: str = "", *, is_mutual: bool = False) -> str:
    """Return an entry of an access list as text: agents publish a digest of those in force."""
    return f"{iqn}+{CHAP}{chap_user}{f'+{MUTUAL}' if is_mutual else ''}" if chap_user else iqn


def split_word(word: str) -> tuple[str, bool]:
    """Return the IQN of an entry as `access_word` writes it, and whether it asks for CHAP."""
    iqn, plus, _ = word.partition("+")
    return iqn, bool(plus)
