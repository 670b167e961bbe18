# SPDX-License-Identifier: GPL-2.0-or-later
"""The sessions of hosts with a node, as the node publishes them. Light: agents import it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: The private node attribute with a node's sessions; never in the CIB.
SESSIONS_ATTRIBUTE = "sanctl.sessions"
# An argument of a program has 128 KiB at most (execve(2), MAX_ARG_STRLEN).
_MAX_BYTES = 96 << 10
_TOO_MANY = "?"


class HostSession(NamedTuple):
    """The session of an initiator with a device's target on a node.

    Attributes:
        device: the device's name.
        iqn: the initiator's name.
        addresses: from where its connections come, sorted; empty: the kernel shows none.
    """

    device: str
    iqn: str
    addresses: tuple[str, ...]


def format_sessions(sessions: Iterable[HostSession]) -> str:
    """Return the value of a node's SESSIONS_ATTRIBUTE, such as `iqn.a,10.0.0.7=vm1,vm2;…`.

    An initiator has its sessions from the same addresses, mostly: it is named once.
    """
    devices: dict[str, list[str]] = {}
    for session in sorted(sessions):
        devices.setdefault(",".join((session.iqn, *session.addresses)), []).append(session.device)
    text = ";".join(f"{who}={','.join(names)}" for who, names in sorted(devices.items()))
    return text if len(text) <= _MAX_BYTES else _TOO_MANY


def parse_sessions(text: str) -> tuple[HostSession, ...] | None:
    """Read the text of `format_sessions`; None: the sessions are not known."""
    found = []
    for entry in filter(None, text.split(";")):
        who, equals, devices = entry.partition("=")
        iqn, *addresses = who.split(",")
        if not (iqn and equals and devices):
            return None
        found += [HostSession(name, iqn, tuple(addresses)) for name in devices.split(",")]
    return tuple(sorted(found))
