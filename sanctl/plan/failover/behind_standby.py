# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for DRBD 9 with two replicas, both attached, of which one is Outdated and not being filled.

Where both lost their disks and no host wrote in between, both have the same generation. A disk that
is attached beside a connected peer of the same generation is not resynced (9.3.3, drbd_receiver.c,
drbd_uuid_compare and disk_states_to_strategy): the one whose metadata says so stays Outdated. Yet
they may differ: in what was written while the disks were lost, which the bitmap of the better one
names, out of its activity log. Nothing resyncs them, and each new connection clears the bitmaps of
both and calls both UpToDate (drbd_state.c, "connect without resync"; seen: nothing out of sync, and
different data). So the Outdated one has to be filled by the bitmaps before its connection ends.

Once that has begun the Outdated replica is Inconsistent in its metadata, and whatever ends the
connection, the next one goes on with the resync (seen).
"""

from __future__ import annotations

from sanctl.model.drbd import PeerState, ResourceState, uses_quorum

#: A disk that DRBD knows, or supposes, to have every write.
_GOOD = frozenset({"UpToDate", "Consistent"})


def peer_to_fill(state: ResourceState, *, peers: int) -> PeerState | None:
    """Return the Outdated peer that the replica here, which has every write, has to fill.

    `peers` is how many other replicas the device has.
    """
    peer = _idle_peer(state, peers=peers)
    if peer is None or peer.disk != "Outdated" or state.disk not in _GOOD:
        return None
    # A Primary whose disk is Consistent does not know of its own whether it is good.
    return peer if state.disk == "UpToDate" or not state.is_primary else None


def peer_to_be_filled_by(state: ResourceState, *, peers: int) -> PeerState | None:
    """Return the peer by which the replica here, which is Outdated, has to be filled.

    `peers` is how many other replicas the device has.
    """
    peer = _idle_peer(state, peers=peers)
    if peer is None or state.disk != "Outdated" or state.is_primary or peer.disk not in _GOOD:
        return None
    return peer if peer.disk == "UpToDate" or peer.role != "Primary" else None


def is_filled_but_unsure(state: ResourceState, *, peers: int) -> bool:
    """Whether both replicas are the same, by the bitmap here, and DRBD calls both Consistent.

    So ends a resync from a source that was Consistent. Between two such replicas nothing is decided
    any more; the handshake of a new connection calls both UpToDate. Only for a node that knows that
    it has filled the peer: else the peer's bitmap may name what differs.

    `peers` is how many other replicas the device has.
    """
    peer = _idle_peer(state, peers=peers)
    return (
        peer is not None
        and not state.is_primary
        and peer.role == "Secondary"
        and state.disk == peer.disk == "Consistent"
        and peer.out_of_sync_kib == 0
    )


def _idle_peer(state: ResourceState, *, peers: int) -> PeerState | None:
    """Return the only peer of a DRBD 9 replica if it is connected and nothing is under way."""
    if state.has_quorum is None or uses_quorum(peers + 1) or len(state.peers) != peers:
        return None
    return next(
        (
            peer
            for peer in state.peers
            if peer.is_connected and peer.replication == "Established" and peer.node_id is not None
        ),
        None,
    )
