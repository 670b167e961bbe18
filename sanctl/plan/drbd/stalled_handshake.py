# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which peers of DRBD 9 to reconnect because a handshake with them does not end.

DRBD exchanges bitmaps before a resync, in milliseconds, or in the seconds for which
before-resync-source holds it. It may wait for a bitmap that no peer sends: the peer has decided
otherwise (9.3.3, seen: one side in WFBitMapS, the other Established, for good). Only the end of the
connection ends that wait, and the next handshake decides anew.

A disk that is attached beside connected peers is Negotiating until each has told its state. A state
that arrives before the attaching is complete here is passed over (9.3.3, drbd_receiver.c,
receive_state; seen on a busy machine), and no other follows. The replica could not be promoted, nor
its disk attached again, for good.
"""

from __future__ import annotations

from sanctl.model.drbd import PeerState, ResourceState

#: The handler before-resync-source may take 15 s, and DRBD retries a resync every 0.2 s.
STALLED_AFTER_S = 60.0

_EXCHANGES = frozenset({"WFBitMapS", "WFBitMapT"})


def is_negotiating(state: ResourceState) -> bool:
    """Whether the disk here is attached and waits for what a peer says of its own."""
    return state.disk == "Negotiating"


def exchanging_peers(state: ResourceState) -> tuple[PeerState, ...]:
    """Return the peers of whose handshake no end has been seen.

    Which peer a disk waits for is not to be seen: it may be each.
    """
    return tuple(
        peer
        for peer in state.peers
        if peer.is_connected and (peer.replication in _EXCHANGES or is_negotiating(state))
    )


def may_reconnect(state: ResourceState, peer: PeerState) -> bool:
    """Whether the connection to a peer may be ended here without freezing the Primary's I/O.

    A Primary, and whoever is connected to one, leaves a majority of the replicas connected to it.
    Between two standbys no majority is at stake.

    Of two replicas one whose disk is negotiating is no second copy: its Primary is frozen until it
    has marked it, as after any lost connection, and has a second copy again.

    The peer is one of `exchanging_peers`.
    """
    if state.is_primary:
        good = 1 + sum(other.is_in_sync for other in state.peers if other.name != peer.name)
        return state.disk == "UpToDate" and 2 * good > len(state.peers) + 1
    if peer.role != "Primary":
        return True
    return state.is_connected if len(state.peers) > 1 else is_negotiating(state)
