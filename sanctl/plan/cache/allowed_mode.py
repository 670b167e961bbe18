# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: when a replica may be in write-back, when it falls back to write-through, and why.

The invariant: a write that is acknowledged and not on disk yet is in the RAM, or on the disk, of
two nodes. So write-back needs a peer that is in sync. With two replicas that is the only peer, and
DRBD freezes a Primary that loses it. With three and more one peer in sync is enough, whatever the
other replicas are, as long as DRBD is told to freeze where there is none left
(quorum-minimum-redundancy, `must_require_two_replicas`).
"""

from __future__ import annotations

from enum import StrEnum

from sanctl.model.cache_policy import CacheMode
from sanctl.model.drbd import ResourceState, uses_quorum

#: DRBD's write ordering while it flushes the disk between dependent writes. It changes to another
#: method, for good, when a flush has failed (drbd_receiver.c, drbd_flush).
ORDERED_BY_FLUSH = "flush"


class ModeReason(StrEnum):
    """Why a replica is not in the mode that is wanted for it."""

    NONE = ""
    ONE_COPY = "one-copy"
    """Only one replica is known to be in sync."""
    COMPARING = "comparing"
    """A verify runs; but for that, two replicas are in sync."""
    NO_FLUSH = "no-flush"
    """DRBD was told not to flush the disk between writes that depend on each other."""
    SUSPECT = "suspect"
    """The replica lost writes that it had acknowledged."""
    BLOCKS = "blocks"
    """The file cannot be written past the page cache in the blocks that hosts have."""
    CHANGING = "changing"
    """The agent has not changed the mode yet."""
    UNREADABLE = "unreadable"
    """The release of sanctl on this node does not know the policy."""


MODE_REASON_TEXTS = {
    ModeReason.ONE_COPY: "one replica is in sync, so no write may be in RAM alone",
    ModeReason.COMPARING: "the replicas are being compared",
    ModeReason.NO_FLUSH: "DRBD does not flush its disk",
    ModeReason.SUSPECT: "the replica lost writes that it had acknowledged",
    ModeReason.BLOCKS: (
        "its data file takes no direct I/O in blocks of 512 bytes: it shares blocks with a copy, "
        "or its disk has larger ones"
    ),
    ModeReason.CHANGING: "the mode is being changed",
    ModeReason.UNREADABLE: "the release of sanctl there does not know this cache policy",
}


def allowed_mode(
    wanted: CacheMode, state: ResourceState | None, *, is_suspect: bool
) -> tuple[CacheMode, ModeReason]:
    """Return the mode a replica is to be in, and why that is not the wanted one.

    `state` is None when DRBD has no such resource here. A suspect replica lost what was in RAM.
    """
    if wanted is not CacheMode.WRITE_BACK:
        return wanted, ModeReason.NONE
    if is_suspect:
        return CacheMode.WRITE_THROUGH, ModeReason.SUSPECT
    if state is None or not are_two_replicas_in_sync(state):
        is_compared = state is not None and are_two_replicas_in_sync(_not_comparing(state))
        return CacheMode.WRITE_THROUGH, ModeReason.COMPARING if is_compared else ModeReason.ONE_COPY
    if has_flush_failed(state):
        # Write-back is not entered: a later failed flush could not be told from this state.
        return CacheMode.WRITE_THROUGH, ModeReason.NO_FLUSH
    return CacheMode.WRITE_BACK, ModeReason.NONE


def _not_comparing(state: ResourceState) -> ResourceState:
    """Return the state as it would be without a verify under way."""
    peers = tuple(
        peer._replace(replication="Established") if peer.is_verifying else peer
        for peer in state.peers
    )
    return state._replace(peers=peers)


def are_two_replicas_in_sync(state: ResourceState) -> bool:
    """Whether this replica and a peer are in sync right now.

    On a standby connected to the Primary, that peer has to be the Primary: a Primary whose disk has
    failed works on the standbys' replicas, and does not freeze while one of them is left.
    """
    if not is_drbd_quorum_used(state):
        return state.is_in_sync
    good = {peer.name for peer in state.peers if peer.is_in_sync}
    serving = {peer.name for peer in state.peers if peer.is_connected and peer.role == "Primary"}
    return state.disk == "UpToDate" and bool(good) and serving <= good


def is_drbd_quorum_used(state: ResourceState) -> bool:
    """Whether DRBD uses quorum, so that it can be told to freeze without two good replicas."""
    return state.has_quorum is not None and uses_quorum(len(state.peers) + 1)


def must_require_two_replicas(state: ResourceState | None, *, may_be_write_back: bool) -> bool:
    """Whether DRBD is to freeze I/O here while fewer than two good replicas are connected.

    Only for a Primary: a standby that is to take over must not need two good replicas for that. And
    not for a Primary whose disk has failed: no new data enters its RAM then.
    """
    return (
        may_be_write_back
        and state is not None
        and is_drbd_quorum_used(state)
        and state.is_primary
        and state.is_attached
    )


def is_ordered_by_flush(state: ResourceState | None) -> bool:
    """Whether DRBD flushes the disk here between writes, or has none to flush.

    With DRBD 9 always: sanctl never changes its write ordering.
    """
    return (
        state is None
        or not state.is_attached
        or state.has_quorum is not None
        or state.write_ordering in {"", ORDERED_BY_FLUSH}
    )


def has_flush_failed(state: ResourceState | None) -> bool:
    """Whether DRBD reports that the disk below a replica in write-back has failed to flush."""
    return state is not None and state.write_ordering not in {"", ORDERED_BY_FLUSH}


def must_cut_connection(state: ResourceState | None, *, may_be_write_back: bool) -> bool:
    """Whether a replica that stops has to cut the connection instead of disconnecting.

    DRBD calls the fence-peer handler only of a Primary that loses its peer. A Primary whose peer
    disconnects gracefully would go on with writes that are in its RAM alone.
    """
    return (
        may_be_write_back
        and state is not None
        and any(peer.connection == "Connected" and peer.role == "Primary" for peer in state.peers)
    )
