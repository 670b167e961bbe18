# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which peers of DRBD 9 to reconnect because their exchange of bitmaps does not end.

DRBD exchanges bitmaps before a resync, in milliseconds, or in the seconds for which
before-resync-source holds it. It may wait for a bitmap that no peer sends: the peer has decided
otherwise (9.3.3, seen: one side in WFBitMapS, the other Established, for good). Only the end of the
connection ends that wait, and the next handshake decides anew.
"""

from __future__ import annotations

from sanctl.model.drbd import PeerState, ResourceState

#: The handler before-resync-source may take 15 s, and DRBD retries a resync every 0.2 s.
STALLED_AFTER_S = 60.0

_EXCHANGES = frozenset({"WFBitMapS", "WFBitMapT"})


def exchanging_peers(state: ResourceState) -> tuple[PeerState, ...]:
    """Return the peers with which bitmaps are being exchanged."""
    return tuple(
        peer for peer in state.peers if peer.is_connected and peer.replication in _EXCHANGES
    )


def may_reconnect(state: ResourceState, peer: PeerState) -> bool:
    """Whether the connection to a peer may be ended here without freezing the Primary's I/O.

    A Primary, and whoever is connected to one, leaves a majority of the replicas connected to it.
    Between two standbys no majority is at stake.

    The peer is one with which bitmaps are being exchanged.
    """
    if state.is_primary:
        good = 1 + sum(other.is_in_sync for other in state.peers if other.name != peer.name)
        return state.disk == "UpToDate" and 2 * good > len(state.peers) + 1
    return peer.role != "Primary" or (len(state.peers) > 1 and state.is_connected)
