# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what a device's line in /proc/drbd says of what an action waits for (DRBD 8.4).

A wait looks at that line, which costs no process. Nothing is decided by it but when to ask DRBD.
"""

from __future__ import annotations

#: No connection yet, or the handshake of one (drbd.h, enum drbd_conns; drbd_strings.c).
_CONNECTING = frozenset(
    {
        "BrokenPipe",
        "Disconnecting",
        "NetworkFailure",
        "ProtocolError",
        "TearDown",
        "Timeout",
        "Unconnected",
        "WFConnection",
        "WFReportParams",
    }
)


def is_connecting(line: str) -> bool:
    """Whether the replica has no connection yet, or does not know its peer's disk yet.

    `line` is as `cs:Connected ro:Secondary/Primary ds:UpToDate/UpToDate`.
    """
    connection, _, disks = _values(line)
    return connection in _CONNECTING or (connection != "StandAlone" and disks.endswith("/DUnknown"))


def is_without_primary(line: str) -> bool:
    """Whether the replica is connected and neither it nor its peer is Primary."""
    connection, roles, _ = _values(line)
    return connection == "Connected" and roles == "Secondary/Secondary"


def _values(line: str) -> tuple[str, str, str]:
    fields = dict(word.partition(":")[::2] for word in line.split())
    return fields.get("cs", ""), fields.get("ro", ""), fields.get("ds", "")
