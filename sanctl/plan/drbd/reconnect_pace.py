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
from collections.abc import Collection

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

#: The monitor of a standby asks for its turn that often (agents/device_metadata.py).
ASKED_EVERY_S = 11.0


def may_connect(
    connections: Collection[str], *, waited_s: float | None, last_s: float | None
) -> bool:
    """Whether a node is to make a connection whose resync may begin now.

    Args:
        connections: the states of the node's connections, as in /proc/drbd of DRBD 8.4.
        waited_s: how long it waits, in seconds; None, or less than 0, where that is not known.
        last_s: how long ago the node made another one, in the same way.
    """
    apart_s = math.inf if last_s is None or last_s < 0 else last_s
    has_waited = waited_s is None or not 0 <= waited_s < WAITS_S
    if has_waited and apart_s >= WAITED_APART_S:
        return True
    return apart_s >= APART_S and _are_few(connections)


def longest_wait_s(replicas: int) -> float:
    """Return how long a replica may wait for its turn on a node with so many of them, in seconds.

    All others may have theirs before it. Longer than that the pace explains no wait.
    """
    return WAITS_S + replicas * (WAITED_APART_S + ASKED_EVERY_S)


def _are_few(connections: Collection[str]) -> bool:
    return sum(state in _BEGINNING for state in connections) < AT_A_TIME
