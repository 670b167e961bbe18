# SPDX-License-Identifier: GPL-2.0-or-later
"""The access list of a replica's target: initiators by IQN alone, hosts, and hosts with CHAP.

Secrets are in files of the node, one for each host (docs/adr/0052). A host whose secret is missing
here, or cannot be used, is not let in; the others are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from sanctl.agents.replica.parts import Device
from sanctl.drivers import host_secrets, lio
from sanctl.drivers.lio_acl import Chap
from sanctl.system import journal, state_files


class LettingIn(Protocol):
    """How initiators get their entries: entered while they get them."""

    def __call__(
        self, new: Collection[str], *, are_refused: bool = False
    ) -> AbstractContextManager[None]:
        """Let initiators in within.

        Args:
            new: who gets an entry.
            are_refused: the kernel has refused them until now, and may do so again.
        """


# Of which hosts the secret cannot be used, and why: as last logged.
_NOTE = "unusable-secrets"
# Which hosts are not let in here, as last published.
_OUTSIDE_NOTE = "no-secret"
# What nodes compare their secrets by, as last published.
_DIGEST_NOTE = "secrets-digest"
# Which entries the kernel refused, and why: as last logged.
_REFUSED_NOTE = "refused-entries"


def chap_logins(device: Device) -> dict[str, Chap]:
    """Return how initiators log in with CHAP, by IQN; the problems with secrets are logged once."""
    logins: dict[str, Chap] = {}
    problems = [f"host {name}: not known to this release" for name in device.unreadable_hosts]
    for host in device.hosts:
        if host.chap_user:
            found = host_secrets.login(host)
            if isinstance(found, str):
                problems.append(f"host {host.name}: {host_secrets.FOLDER}/{host.name}: {found}")
                found = Chap(host.chap_user, is_mutual=host.is_mutual)
            logins |= dict.fromkeys(host.iqns, found)
    if logins or problems:
        _log_once(device, _NOTE, problems)
    return logins


def hosts_without_secret(device: Device) -> tuple[str, ...]:
    """Return the hosts that are not let in here, as their secrets cannot be used."""
    return device.unreadable_hosts + tuple(
        host.name
        for host in device.hosts
        if host.chap_user and isinstance(host_secrets.login(host), str)
    )


def published_field(device: Device) -> str:
    """Return what is published of hosts' secrets: whose is missing, and a digest of those in use.

    The digest is keyed, and there is none while a secret is missing. Empty: no host has CHAP.

    The resync service publishes as well, and does not know a device's hosts: it says what the
    latest start or monitor has found.
    """
    names = _noted(device, _OUTSIDE_NOTE, lambda: ",".join(hosts_without_secret(device)))
    digest = _noted(device, _DIGEST_NOTE, lambda: host_secrets.digest(device.hosts, device.uuid))
    return (f" no-secret={names}" if names else "") + (f" secrets={digest}" if digest else "")


def _noted(device: Device, note_name: str, find: Callable[[], str]) -> str:
    note = state_files.of_device(device.name, note_name)
    text = note.read()
    if not device.pool:
        return text
    found = find()
    if found != text:
        # Without room for it the service leaves the field out until the next monitor.
        with contextlib.suppress(OSError):
            note.write(found)
    return found


def log_refused(device: Device, refused: Collection[str]) -> None:
    """Log which entries the kernel has refused, once for as long as it refuses the same."""
    _log_once(device, _REFUSED_NOTE, refused)


def has_refused(name: str) -> bool:
    """Whether the kernel has refused an entry of the access list, or its secret."""
    return bool(state_files.of_device(name, _REFUSED_NOTE).read())


def _log_once(device: Device, note_name: str, problems: Collection[str]) -> None:
    note = state_files.of_device(device.name, note_name)
    text = "\n".join(problems)
    # Without room for the note the problems are logged by each monitor; nothing depends on it.
    with contextlib.suppress(OSError):
        if note.read() == text:
            return
    for problem in problems:
        journal.write(
            f"{device.name}: not let in here with CHAP: {problem} (SAN-HOST-011)",
            priority=journal.ERROR,
            device=device.name,
            action="access-list",
        )
    with contextlib.suppress(OSError):
        note.write(text)


def update(
    device: Device,
    letting_in: LettingIn | None = None,
    keeping_out: AbstractContextManager[None] | None = None,
) -> bool:
    """Bring the access list of a target that runs up to date; return whether anything changed.

    Who is to be kept out is out before anything that can fail, or wait, for those who are let in.

    Args:
        device: as the cluster wants it.
        letting_in: how those are let in who have no entry (agents/reservations/hooks.py).
        keeping_out: what is entered while others lose theirs (the same).

    Raises:
        CommandError: the kernel refused an initiator without CHAP, or nobody can be let in now.
        OSError: the same.
    """
    logins = chap_logins(device)
    before = set(lio.access(device.name))
    had_credentials = lio.has_credentials(device.name, logins)
    if before == device.access and had_credentials and not lio.asks_everyone(device.name):
        return False
    with contextlib.ExitStack() as out:
        if keeping_out is not None and not set(lio.initiators(device.name)).issubset(
            device.all_initiators
        ):
            # Without room for its notes who is to be kept out is out all the same.
            with contextlib.suppress(OSError):
                out.enter_context(keeping_out)
        lio.remove_initiators(device.name, keep=device.all_initiators)
    # One that is half there counts as little as for the kernel.
    there = set(lio.mapped_initiators(device.name)) if letting_in is not None else set()
    if letting_in is None:
        refused = lio.set_initiators(device.name, device.all_initiators, logins)
    else:
        refused = _let_in(device, logins, there, letting_in)
    log_refused(device, refused)
    # A host without a secret has stayed out, say.
    return set(lio.access(device.name)) != before or not (had_credentials or refused)


def _let_in(
    device: Device, logins: Mapping[str, Chap], there: set[str], letting_in: LettingIn
) -> list[str]:
    """Have the wanted initiators let in by what knows their registrations; return the refused."""
    new, tried = _to_let_in(device, logins, there)
    wanted = there.intersection(device.all_initiators)
    # The entries that there are wait for nothing: a host may have to authenticate from now on.
    # Nobody else is let in before: not one either that the kernel has refused until now.
    refused = lio.set_initiators(device.name, wanted, logins)
    for each, are_refused in ((new, False), (tried, True)):
        if each:
            wanted.update(each)
            with letting_in(each, are_refused=are_refused):
                refused = lio.set_initiators(device.name, wanted, logins)
    return refused


def _to_let_in(
    device: Device, logins: Mapping[str, Chap], there: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which initiators get an entry now, as far as is known before, and who is tried again.

    Neither of them is one without a secret. One that the kernel has refused is tried apart from the
    others: hosts' sessions must not end for it with each monitor, and it must not get in without
    what it has registered.

    While nobody is there no session ends, and the kernel may have no reservation in force: then
    those that it has refused are let in like all others.
    """
    text = state_files.of_device(device.name, _REFUSED_NOTE).read() if there else ""
    refused = {line.partition(": ")[0] for line in text.splitlines()}
    may = [
        iqn
        for iqn in device.all_initiators
        if iqn not in there and (iqn not in logins or logins[iqn].secret)
    ]
    return (
        tuple(iqn for iqn in may if iqn not in refused),
        tuple(iqn for iqn in may if iqn in refused),
    )
