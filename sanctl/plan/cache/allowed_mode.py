# SPDX-License-Identifier: GPL-2.0-or-later
"""Which cache mode a replica may be in now, and why it is not the one that is wanted.

The invariant: what is acknowledged and only in RAM is in the RAM, or on the disk, of two nodes.
So write-back needs a peer that is in sync. With two copies that is the other one, and DRBD freezes
a Primary that loses it. With three and more one is enough, whatever the others are, as long as DRBD
is told to freeze where there is none left (`must_hold`).
"""

from __future__ import annotations

from enum import StrEnum

from sanctl.model.cache_policy import CacheMode
from sanctl.model.drbd import ResourceState, uses_quorum

#: What DRBD calls flushing the disk between dependent writes. It changes to another word, for
#: good, when a flush has failed (drbd_receiver.c, drbd_flush).
ORDERED_BY_FLUSH = "flush"


class ModeReason(StrEnum):
    """Why a replica is not in the mode that is wanted for it."""

    NONE = ""
    ONE_COPY = "one-copy"
    """Only one copy is known to be in sync."""
    COMPARING = "comparing"
    """The copies are being compared; two are in sync, but for that."""
    NO_FLUSH = "no-flush"
    """DRBD was told not to flush the disk between writes that depend on each other."""
    SUSPECT = "suspect"
    """It lost writes that it had acknowledged."""
    CHANGING = "changing"
    """The agent has not got there yet."""


MODE_REASON_TEXTS = {
    ModeReason.ONE_COPY: "one copy is in sync, so nothing may be in RAM alone",
    ModeReason.COMPARING: "the copies are being compared",
    ModeReason.NO_FLUSH: "DRBD does not flush its disk",
    ModeReason.SUSPECT: "it lost writes that it had acknowledged",
    ModeReason.CHANGING: "it is being changed",
}


def allowed_mode(
    wanted: CacheMode, state: ResourceState | None, *, is_suspect: bool
) -> tuple[CacheMode, ModeReason]:
    """Return the mode a replica is to be in, and why that is not the wanted one.

    Args:
        wanted: the policy's mode.
        state: the resource as DRBD reports it here; None when it is not up.
        is_suspect: the replica lost what was in RAM.
    """
    if wanted is not CacheMode.WRITE_BACK:
        return wanted, ModeReason.NONE
    if is_suspect:
        return CacheMode.WRITE_THROUGH, ModeReason.SUSPECT
    if state is None or not are_two_replicas_in_sync(state):
        is_compared = state is not None and are_two_replicas_in_sync(_not_comparing(state))
        return CacheMode.WRITE_THROUGH, ModeReason.COMPARING if is_compared else ModeReason.ONE_COPY
    if has_flush_failed(state):
        # Not entered: a flush that fails later could not be told from this.
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
    """Whether this copy and another are in sync right now; of two copies that is the other one.

    On a standby that has the one that serves in contact, that one has to be: if its disk has failed
    it lives by the standbys' copies, and is not held when there is one of them left.
    """
    if not is_drbd_quorum_used(state):
        return state.is_in_sync
    good = {peer.name for peer in state.peers if peer.is_in_sync}
    serving = {peer.name for peer in state.peers if peer.is_connected and peer.role == "Primary"}
    return state.disk == "UpToDate" and bool(good) and serving <= good


def is_drbd_quorum_used(state: ResourceState) -> bool:
    """Whether DRBD counts the copies, so that it can be told to freeze without two good ones."""
    return state.has_quorum is not None and uses_quorum(len(state.peers) + 1)


def must_require_two_replicas(state: ResourceState | None, *, may_be_write_back: bool) -> bool:
    """Whether DRBD is to freeze I/O here while fewer than two good copies are connected.

    Only for a Primary: a standby that is to take over must not need two good copies for that. And
    not for one whose disk has failed: then nothing new comes into its RAM.
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

    What DRBD 9 says of it nobody has changed.
    """
    return (
        state is None
        or not state.is_attached
        or state.has_quorum is not None
        or state.write_ordering in {"", ORDERED_BY_FLUSH}
    )


def has_flush_failed(state: ResourceState | None) -> bool:
    """Whether DRBD says that the disk below a replica in write-back has failed to flush."""
    return state is not None and state.write_ordering not in {"", ORDERED_BY_FLUSH}


def must_cut_connection(state: ResourceState | None, *, may_be_write_back: bool) -> bool:
    """Whether a replica that stops has to cut the connection instead of taking leave.

    Only a Primary that loses its peer has its fence-peer handler called. One that its peer takes
    leave of would go on with what is in its RAM alone.
    """
    return (
        may_be_write_back
        and state is not None
        and any(peer.connection == "Connected" and peer.role == "Primary" for peer in state.peers)
    )


class ReadCacheReason(StrEnum):
    """Why the node that serves has no read cache in RAM although one is wanted."""

    NONE = ""
    NOT_GOOD = "not-good"
    """Its copy is not up to date: what is read may come from the other node."""
    COMPARED = "compared"
    """The copies are being compared: what is on the disk has to be read."""
    NO_RAM = "no-ram"
    """Too little RAM would be left to the node."""
    WAITS = "waits"
    """Hosts have just been told that they cannot unmap; what they have asked for has to end."""
    FAILED = "failed"
    """It has failed, and is made anew."""
    RESTART = "restart"
    """The replica was started by a release that had no such cache."""


READ_CACHE_REASON_TEXTS = {
    ReadCacheReason.NOT_GOOD: "its copy is not up to date",
    ReadCacheReason.COMPARED: "the copies are being compared",
    ReadCacheReason.NO_RAM: "the node would be left too little RAM",
    ReadCacheReason.WAITS: "what hosts have unmapped has to end first",
    ReadCacheReason.FAILED: "it has failed, and is made anew",
    ReadCacheReason.RESTART: "an older release started it: "
    "'sanctl node drain' its node, then 'undrain'",
}


def allowed_read_cache(
    wanted_bytes: int, state: ResourceState | None, *, has_place: bool
) -> tuple[int, ReadCacheReason]:
    """Return how large a replica's read cache in RAM is to be, and why less than wanted.

    Only where hosts are served: a standby reads nothing, and what it held would be old RAM.

    Args:
        wanted_bytes: by the policy.
        state: the resource as DRBD reports it here; None when it is not up.
        has_place: DRBD stands on the device that a cache can be put under.
    """
    if not wanted_bytes or state is None or not state.is_primary:
        return 0, ReadCacheReason.NONE
    if not has_place:
        return 0, ReadCacheReason.RESTART
    if state.disk != "UpToDate":
        return 0, ReadCacheReason.NOT_GOOD
    if any(peer.is_verifying for peer in state.peers):
        return 0, ReadCacheReason.COMPARED
    size = wanted_bytes if state.size_kib is None else min(wanted_bytes, state.size_kib * 1024)
    return size, ReadCacheReason.NONE


def leaves_enough_ram(needed: int, promised: int, available: int, total: int) -> bool:
    """Whether a quarter of a node's RAM is still available when all read caches are full.

    Args:
        needed: bytes that another cache takes when it is full.
        promised: bytes that those there are may still take.
        available: `MemAvailable` of proc_meminfo(5), in bytes.
        total: `MemTotal`.
    """
    return available - promised - needed >= total // 4
