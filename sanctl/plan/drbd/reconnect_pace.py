# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: how many connections a node makes at a time, at starts and where DRBD has dropped them.

DRBD calls before-resync-source for each connection whose resync is to begin, and drops the
connection where the handler cannot make sure of the peer's mark within seconds. Of many handlers at
once on a busy node each is late: all connections are dropped, the monitors make all of them again,
and the Primary's I/O is frozen after each drop until fence-peer has answered. A few at a time come
to their end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

#: Handlers that run at the same time share one change of the CIB, so two cost little more than one.
AT_A_TIME = 2
#: A connection is made all the same once its drop is that long ago: what holds the others up may
#: never end. But one after the other: twenty that have waited are as many as twenty at once.
WAITS_S, WAITED_APART_S = 60.0, 10.0
#: /proc/drbd shows a connection a moment after it is made: those that look together would go on
#: together.
APART_S = 0.3

#: before-resync-source runs here (WFBitMapS) or at the peer (WFBitMapT, WFSyncUUID), or the
#: handshake before it does (drbd.h, enum drbd_conns).
_BEGINNING = frozenset({"WFReportParams", "WFBitMapS", "WFBitMapT", "WFSyncUUID"})
_TAKEN = "taken"

#: In contact, with no resync that is about to begin: a turn that was taken for it has ended.
_SETTLED = frozenset(
    {"Connected", "SyncSource", "SyncTarget", "PausedSyncS", "PausedSyncT", "VerifyS", "VerifyT"}
)
#: A turn counts so long where the connection that it was taken for is not seen: on a busy node a
#: start takes some seconds from its turn to its connection, and the handshake some more.
TAKEN_S = 10.0
#: And so long where it is, and only the peer is not: a peer that is there answers at once.
ALONE_S = 4.0

#: The monitor of a standby asks for its turn that often (agents/device_metadata.py).
ASKED_EVERY_S = 11.0
#: And does not ask for so long at most, beside others that work (plan/device/monitor_turn.py).
NOT_ASKED_S = 75.0


def may_connect(
    connections: Collection[str], *, waited_s: float | None, last_s: float | None
) -> bool:
    """Whether a node is to make a connection whose resync may begin now.

    Args:
        connections: the states of the node's connections; what `being_made` returned.
        waited_s: how long it waits, in seconds; None, or less than 0, where that is not known.
        last_s: how long ago the node made another one, in the same way.
    """
    apart_s = math.inf if last_s is None or last_s < 0 else last_s
    has_waited = waited_s is None or not 0 <= waited_s < WAITS_S
    if has_waited and apart_s >= WAITED_APART_S:
        return True
    return apart_s >= APART_S and _are_few(connections)


def being_made(connections: Mapping[int, str], taken: Mapping[int, float]) -> tuple[str, ...]:
    """Return the states of a node's connections, and `taken` for each that is about to be made.

    Args:
        connections: the states of the node's connections by minor, as in /proc/drbd of DRBD 8.4.
        taken: by minor, how long ago a turn was taken for it, in seconds.
    """
    about_to_be = [
        _TAKEN
        for minor, age_s in taken.items()
        if (state := connections.get(minor)) not in _SETTLED | _BEGINNING
        and 0 <= age_s < (ALONE_S if state == "WFConnection" else TAKEN_S)
    ]
    return (*connections.values(), *about_to_be)


def longest_wait_s(replicas: int) -> float:
    """Return how long a replica may wait for its turn on a node with so many of them, in seconds.

    All others may have theirs before it. Longer than that the pace explains no wait.
    """
    return WAITS_S + NOT_ASKED_S + replicas * (WAITED_APART_S + ASKED_EVERY_S)


def _are_few(connections: Collection[str]) -> bool:
    return sum(state in _BEGINNING or state == _TAKEN for state in connections) < AT_A_TIME
