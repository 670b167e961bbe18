# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: who may log in to an exported restore point after hosts have changed.

An export is in the kernel of one node alone. To whom it was given is noted there, and follows the
CIB's hosts from then on: CHAP, IQNs, a host that is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sanctl.model.access import CHAP, MUTUAL, HostAccess, split_host

_INITIATOR, _HOST = "initiator", "host"


class ExportAccess(NamedTuple):
    """The hosts that may log in to an exported restore point.

    Attributes:
        initiators: IQNs that are no host's.
        hosts: hosts, with CHAP where they have it.
    """

    initiators: tuple[str, ...]
    hosts: tuple[HostAccess, ...]


class CibHosts(NamedTuple):
    """The hosts that the CIB has.

    Attributes:
        hosts: those that can be read, by name.
        unreadable: the names of the others: each may have any IQN, and ask for more than CHAP.
    """

    hosts: Mapping[str, HostAccess]
    unreadable: frozenset[str]


class AccessNow(NamedTuple):
    """Who may log in to an export now.

    Attributes:
        noted: what the note is to say from now on.
        access: who is let in.
        gone: hosts that are let in no more, as there is none of that name.
    """

    noted: ExportAccess
    access: ExportAccess
    gone: tuple[str, ...]


def read_cib_hosts(properties: Mapping[str, str], prefix: str) -> CibHosts:
    """Read the CIB's properties of hosts, `PREFIX` and a name each; others are left alone."""
    hosts: dict[str, HostAccess] = {}
    unreadable = set()
    for identifier, value in properties.items():
        name = identifier.removeprefix(prefix)
        # A group's name begins with a character that no host's has.
        if not identifier.startswith(prefix) or name.startswith("@"):
            continue
        try:
            hosts[name] = split_host(f"{name}={value}")
        except ValueError:
            unreadable.add(name)
    return CibHosts(hosts, frozenset(unreadable))


def note_text(access: ExportAccess) -> str:
    """Return the note of to whom a restore point was exported."""
    return "".join(
        (
            *(f"{_INITIATOR} {iqn}\n" for iqn in access.initiators),
            *(f"{_HOST} {_host_text(host)}\n" for host in access.hosts),
        )
    )


def read_note(text: str, in_force: Collection[str]) -> ExportAccess:
    """Read a note; without one that can be read, who is let in now is let in by IQN.

    A command that died, or one of an earlier release, has left none: nobody new is let in by that.
    """
    initiators, hosts = [], []
    try:
        for line in text.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == _HOST:
                hosts.append(split_host(rest))
            elif kind == _INITIATOR and rest:
                initiators.append(rest)
            else:
                return ExportAccess(tuple(in_force), ())
    except ValueError:
        return ExportAccess(tuple(in_force), ())
    if not initiators and not hosts and not text:
        return ExportAccess(tuple(in_force), ())
    return ExportAccess(tuple(initiators), tuple(hosts))


def access_now(noted: ExportAccess, cib: CibHosts) -> AccessNow:
    """Return who may log in to an export, by its note and the hosts that there are now.

    A host that was renamed is the one that has just its IQNs. One that is gone is let in no more,
    and an IQN that was let in by itself and is a host's now logs in as that host does. It is kept
    out while a host cannot be read, which may be the one whose it is, and ask for CHAP.
    """
    kept: list[HostAccess] = []
    let_in: list[HostAccess] = []
    gone = []
    for host in noted.hosts:
        found = cib.hosts.get(host.name) or _renamed(host, cib)
        if found is not None:
            kept.append(found)
            let_in.append(found)
        elif host.name in cib.unreadable:
            kept.append(host)
        else:
            gone.append(host.name)
    initiators = []
    for iqn in noted.initiators:
        owner = next((host for host in cib.hosts.values() if iqn in host.iqns), None)
        if owner is None:
            initiators += [] if cib.unreadable else [iqn]
        elif owner not in let_in:
            # By this IQN alone, and not by the host's others.
            let_in.append(owner._replace(iqns=(iqn,)))
    return AccessNow(
        ExportAccess(noted.initiators, tuple(kept)),
        ExportAccess(tuple(initiators), tuple(let_in)),
        tuple(gone),
    )


def _renamed(host: HostAccess, cib: CibHosts) -> HostAccess | None:
    if host.name in cib.unreadable:
        return None
    return next((each for each in cib.hosts.values() if each.iqns == host.iqns), None)


def _host_text(host: HostAccess) -> str:
    words = [f"{host.name}={','.join(host.iqns)}"]
    if host.chap_user:
        words.append(f"{CHAP}{host.chap_user}")
    if host.is_mutual:
        words.append(MUTUAL)
    return "/".join(words)
