# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: who may log in to an exported restore point after hosts have changed.

An export is in the kernel of one node alone. To whom it was given is noted there, and follows the
CIB's hosts from then on: CHAP, IQNs, a host that is gone.

An initiator that was asked for CHAP does not get in without it because a host has gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sanctl.model.access import CHAP, MUTUAL, HostAccess, split_host, split_word

_INITIATOR, _HOST, _ASKED = "initiator", "host", "asked"


class ExportAccess(NamedTuple):
    """The hosts that may log in to an exported restore point.

    Attributes:
        initiators: IQNs that are no host's.
        hosts: hosts, with CHAP where they have it.
        asked: of a note: IQNs that have been asked for the CHAP of a host, by whatever name. They
            are let in as a host's alone.
    """

    initiators: tuple[str, ...]
    hosts: tuple[HostAccess, ...]
    asked: tuple[str, ...] = ()


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
        gone: hosts that are let in no more, as there is none of that name, or of that IQN.
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
            *(f"{_ASKED} {iqn}\n" for iqn in access.asked),
        )
    )


def read_note(text: str, in_force: Collection[str]) -> ExportAccess:
    """Read a note; without one that can be read, who is let in now is let in by IQN.

    A command that died, or one of an earlier release, has left none: no new one is let in by that,
    and an initiator that is asked for CHAP now is let in as a host's alone.

    Args:
        text: the note.
        in_force: the entries of the export's access list, as text.
    """
    initiators, hosts, asked = [], [], []
    try:
        for line in text.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == _HOST:
                hosts.append(split_host(rest))
            elif kind == _INITIATOR and rest:
                initiators.append(rest)
            elif kind == _ASKED and rest:
                asked.append(rest)
            else:
                return _found(in_force)
    except ValueError:
        return _found(in_force)
    if not text:
        return _found(in_force)
    return ExportAccess(tuple(initiators), tuple(hosts), tuple(asked))


def _found(in_force: Collection[str]) -> ExportAccess:
    words = [split_word(word) for word in sorted(in_force)]
    return ExportAccess(
        tuple(iqn for iqn, asks in words if not asks),
        (),
        tuple(iqn for iqn, asks in words if asks),
    )


def access_now(noted: ExportAccess, cib: CibHosts) -> AccessNow:
    """Return who may log in to an export, by its note and the hosts that there are now.

    A host that was renamed is the one that has just its IQNs. One that is gone is let in no more,
    and an IQN that was let in by itself and is a host's now logs in as that host does. It is kept
    out while a host cannot be read, which may be the one whose it is, and ask for CHAP. Once one
    has asked it for CHAP it is let in as a host's alone: without a host it would not be asked.
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
    by_itself: list[str] = []
    asked: list[str] = []
    initiators = []
    for iqn in sorted((*noted.initiators, *noted.asked)):
        owner = _owner(iqn, cib)
        if iqn in noted.asked or (owner is not None and owner.chap_user):
            asked.append(iqn)
        else:
            by_itself.append(iqn)
        if owner is None:
            if cib.unreadable:
                continue
            if iqn in noted.asked:
                asked.remove(iqn)
                gone.append(f"of {iqn}")
            else:
                initiators.append(iqn)
        elif owner not in let_in:
            # By this IQN alone, and not by the host's others.
            let_in.append(owner._replace(iqns=(iqn,)))
    return AccessNow(
        ExportAccess(tuple(by_itself), tuple(kept), tuple(asked)),
        ExportAccess(tuple(initiators), tuple(let_in)),
        tuple(gone),
    )


def _owner(iqn: str, cib: CibHosts) -> HostAccess | None:
    """Return the host that has an IQN; of several, which cannot be, one that asks for CHAP."""
    owners = [host for host in cib.hosts.values() if iqn in host.iqns]
    return max(owners, key=lambda host: bool(host.chap_user), default=None)


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
