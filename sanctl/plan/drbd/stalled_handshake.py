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

A resync whose source was not stable while it ran ends with the target's disk Inconsistent and no
block out of sync (9.3.3: "Peer was unstable during resync"; seen: the source became Primary in
those seconds). DRBD begins it anew once the source is stable, if it notices that; seen that it does
not, for good. The next handshake resends what either bitmap names, and the disk is UpToDate.

A resync that has lost its source half-way leaves the disk Inconsistent with blocks out of sync,
Established with each peer, where these were filled themselves when it connected to them; and one
that is due may not begin at all, so that the disk stays Outdated (both seen with 9.3.3 and four
replicas, after cuts in a move). It gets no write any more. The Primary then sends what either
bitmap names, without the end of a connection: each peer notes each write that the disk lacks, and
DRBD notes what a resync writes as different from all other peers.

A resync may stand still: a target that has another peer to sync from takes turns with them, and
after a handshake in the middle of one no further block was asked for (9.3.3, seen with four
replicas, after cuts in a row: SyncTarget, nothing suspended, and not one block in ten minutes). The
next handshake goes on with what the bitmaps name.

A peer that was Outdated or Consistent for a moment, and is UpToDate, may be called so here for good
(9.3.3, seen after a cut of all power, and after three cuts in a row: Established, no block out of
sync, UpToDate by its own word). It counts for no majority then. The next handshake tells its state
again.

Two standbys that DRBD has disconnected, as one was Inconsistent beside another's generation, stay
StandAlone although both have the Primary's data meanwhile. Without that Primary neither has a
majority. So a standby in sync with the Primary connects to the other one again; replicas that have
diverged are refused by DRBD as before, and nothing of them is overwritten.
"""

from __future__ import annotations

from sanctl.model.drbd import PeerState, ResourceState

#: The handler before-resync-source may take 15 s, and DRBD retries a resync every 0.2 s.
STALLED_AFTER_S = 60.0
#: Of a resync nothing has come for so long. A slow one sends some hundred KiB a second at least,
#: and one that a policy holds back is suspended.
STANDS_AFTER_S = 180.0

#: Of a resync: KiB that are out of sync, and that were received since the connection began.
Amount = tuple[int, int]
#: Of a handshake.
NO_AMOUNT: Amount = (-1, -1)

_EXCHANGES = frozenset({"WFBitMapS", "WFBitMapT"})
_BEHIND = frozenset({"Inconsistent", "Outdated"})


def is_negotiating(state: ResourceState) -> bool:
    """Whether the disk here is attached and waits for what a peer says of its own."""
    return state.disk == "Negotiating"


def exchanging_peers(state: ResourceState) -> tuple[PeerState, ...]:
    """Return the peers of whose handshake no end has been seen, or of whose resync none is made.

    Which peer a disk waits for is not to be seen: it may be each.
    """
    return tuple(
        peer
        for peer in state.peers
        if peer.is_connected
        and (
            peer.replication in _EXCHANGES
            or is_negotiating(state)
            or _is_left_unfinished(state, peer)
            or _is_called_behind(state, peer)
        )
    )


def _is_called_behind(state: ResourceState, peer: PeerState) -> bool:
    """Whether a peer that lacks nothing is not called UpToDate here, where all is in order."""
    return (
        state.disk == "UpToDate"
        and peer.disk in {"Outdated", "Consistent"}
        and (peer.replication, peer.out_of_sync_kib) == ("Established", 0)
    )


def filling_peers(state: ResourceState) -> tuple[PeerState, ...]:
    """Return the peers that fill the disk here, as far as DRBD says, and are not held back."""
    return tuple(
        peer
        for peer in state.peers
        if peer.is_connected
        and peer.is_sync_source
        and peer.out_of_sync_kib is not None
        and not is_held_back(peer)
    )


def is_held_back(peer: PeerState) -> bool:
    """Whether a resync from this peer waits: for another one, or by a policy."""
    return peer.is_sync_source and not (
        peer.replication == "SyncTarget" and peer.resync_suspended == "no"
    )


def amount(peer: PeerState) -> Amount:
    """Return how far a resync is: one of both has changed if a single block has come.

    Also if a host has written: where the source is the Primary, as a rule, it is never seen to
    stand.
    """
    return peer.out_of_sync_kib or 0, peer.received_kib or 0


def _is_left_unfinished(state: ResourceState, peer: PeerState) -> bool:
    """Whether the disk here is Inconsistent, and nothing says what it lacks, nor sends it.

    Only here all of its resyncs are seen. A peer whose bitmap names no block ends the next one at
    once: so no other peer may know of any, as after a verify that found some, and all have to be in
    contact.
    """
    return (
        state.disk == "Inconsistent"
        and (peer.disk, peer.replication) == ("UpToDate", "Established")
        and all(
            each.is_connected and each.replication == "Established" and each.out_of_sync_kib == 0
            for each in state.peers
        )
    )


def source_for_unfilled(state: ResourceState) -> PeerState | None:
    """Return the Primary that is to fill the disk here, where it lacks blocks and nobody sends any.

    None while another peer's bitmap names more: the Primary's would not be all that is missing.
    """
    if state.disk not in _BEHIND:
        return None
    lacking_kib = 0
    for each in state.peers:
        if not each.is_connected or each.replication != "Established":
            return None
        if each.out_of_sync_kib is None:
            return None
        lacking_kib = max(lacking_kib, each.out_of_sync_kib)
    return next(
        (
            peer
            for peer in state.peers
            if (peer.role, peer.disk) == ("Primary", "UpToDate")
            and lacking_kib
            and peer.out_of_sync_kib == lacking_kib
        ),
        None,
    )


def dropped_peers(state: ResourceState) -> tuple[PeerState, ...]:
    """Return the peers to which a standby connects again, as it has the Primary's data.

    Of two replicas none: there the other one is the Primary, or nobody serves.
    """
    has_data = state.disk == "UpToDate" and any(
        peer.role == "Primary" and peer.is_in_sync for peer in state.peers
    )
    if state.is_primary or not has_data:
        return ()
    return tuple(peer for peer in state.peers if peer.connection == "StandAlone")


def may_reconnect(state: ResourceState, peer: PeerState) -> bool:
    """Whether the connection to a peer may be ended here without freezing the Primary's I/O.

    A Primary, and whoever is connected to one, leaves a majority of the replicas connected to it.
    Between two standbys no majority is at stake.

    Of two replicas one whose disk is negotiating is no second copy: its Primary is frozen until it
    has marked it, as after any lost connection, and has a second copy again. Nor is one that is
    Inconsistent, which is marked.

    The peer is one of `exchanging_peers` or `filling_peers`.
    """
    if state.is_primary:
        good = 1 + sum(other.is_in_sync for other in state.peers if other.name != peer.name)
        return state.disk == "UpToDate" and 2 * good > len(state.peers) + 1
    if peer.role != "Primary":
        return True
    if len(state.peers) > 1:
        return state.is_connected
    return is_negotiating(state) or state.disk == "Inconsistent"
