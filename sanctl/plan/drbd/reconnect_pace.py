# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: how many connections a node makes at a time, at starts and where DRBD has dropped them.

DRBD calls before-resync-source for each connection whose resync is to begin, and drops the
connection where the handler cannot make sure of the peer's mark within seconds. Of many handlers at
once on a busy node each is late: all connections are dropped, the monitors make all of them again,
and the Primary's I/O is frozen after each drop until fence-peer has answered. A few at a time come
to their end.
"""

from __future__ import annotations

from collections.abc import Collection

#: Handlers that run at the same time share one change of the CIB, so two cost little more than one.
AT_A_TIME = 2
#: A connection is made all the same once its drop is that long ago: what holds the others up may
#: never end.
WAITS_S = 60.0

#: before-resync-source runs here (WFBitMapS) or at the peer (WFBitMapT, WFSyncUUID), or the
#: handshake before it does (drbd.h, enum drbd_conns).
_BEGINNING = frozenset({"WFReportParams", "WFBitMapS", "WFBitMapT", "WFSyncUUID"})


def may_reconnect(connections: Collection[str], *, dropped_for_s: float | None) -> bool:
    """Whether a connection that DRBD has dropped before its resync is to be made again now.

    Args:
        connections: the states of the node's connections, as in /proc/drbd of DRBD 8.4.
        dropped_for_s: since when it is dropped, in seconds; None where that is not known.
    """
    if dropped_for_s is None or not 0 <= dropped_for_s < WAITS_S:
        return True
    return may_connect(connections)


def may_connect(connections: Collection[str]) -> bool:
    """Whether few enough resyncs of the node are about to begin; the states are as above."""
    return sum(state in _BEGINNING for state in connections) < AT_A_TIME
