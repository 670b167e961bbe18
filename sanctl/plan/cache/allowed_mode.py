# SPDX-License-Identifier: GPL-2.0-or-later
"""Which cache mode a replica may be in now, and why it is not the one that is wanted.

The invariant: what is acknowledged and only in RAM is in the RAM, or on the disk, of two nodes.
So write-back needs a peer that is in sync. With two copies that is the other one, and DRBD freezes
a Primary that loses it. With three and more one is enough, whatever the others are, as long as DRBD
is told to freeze where there is none left (`must_hold`).
"""

from __future__ import annotations

from enum import StrEnum

from sanctl.model.cache_policy import Mode
from sanctl.model.drbd import ResourceState, has_majority

#: What DRBD calls flushing the disk between dependent writes. It changes to another word, for
#: good, when a flush has failed (drbd_receiver.c, drbd_flush).
FLUSHES = "flush"


class Reason(StrEnum):
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


SENTENCES = {
    Reason.ONE_COPY: "one copy is in sync, so nothing may be in RAM alone",
    Reason.COMPARING: "the copies are being compared",
    Reason.NO_FLUSH: "DRBD does not flush its disk",
    Reason.SUSPECT: "it lost writes that it had acknowledged",
    Reason.CHANGING: "it is being changed",
}


def allowed(wanted: Mode, state: ResourceState | None, *, is_suspect: bool) -> tuple[Mode, Reason]:
    """Return the mode a replica is to be in, and why that is not the wanted one.

    Args:
        wanted: the policy's mode.
        state: the resource as DRBD reports it here; None when it is not up.
        is_suspect: the replica lost what was in RAM.
    """
    if wanted is not Mode.WRITE_BACK:
        return wanted, Reason.NONE
    if is_suspect:
        return Mode.WRITE_THROUGH, Reason.SUSPECT
    if state is None or not has_two_good(state):
        is_compared = state is not None and has_two_good(_not_comparing(state))
        return Mode.WRITE_THROUGH, Reason.COMPARING if is_compared else Reason.ONE_COPY
    if has_lost_writes(state):
        # Not entered: a flush that fails later could not be told from this.
        return Mode.WRITE_THROUGH, Reason.NO_FLUSH
    return Mode.WRITE_BACK, Reason.NONE


def _not_comparing(state: ResourceState) -> ResourceState:
    """Return the state as it would be without a verify under way."""
    peers = tuple(
        peer._replace(replication="Established") if peer.is_verifying else peer
        for peer in state.peers
    )
    return state._replace(peers=peers)


def has_two_good(state: ResourceState) -> bool:
    """Whether this copy and another are in sync right now; of two copies that is the other one.

    On a standby that has the one that serves in contact, that one has to be: if its disk has failed
    it lives by the standbys' copies, and is not held when there is one of them left.
    """
    if not is_counted(state):
        return state.is_in_sync
    good = {peer.name for peer in state.peers if peer.is_in_sync}
    serving = {peer.name for peer in state.peers if peer.is_in_contact and peer.role == "Primary"}
    return state.disk == "UpToDate" and bool(good) and serving <= good


def is_counted(state: ResourceState) -> bool:
    """Whether DRBD counts the copies, so that it can be told to freeze without two good ones."""
    return state.has_quorum is not None and has_majority(len(state.peers) + 1)


def must_hold(state: ResourceState | None, *, may_be_write_back: bool) -> bool:
    """Whether DRBD is to freeze I/O here while fewer than two good copies are connected.

    Only for a Primary: a standby that is to take over must not need two good copies for that. And
    not for one whose disk has failed: then nothing new comes into its RAM.
    """
    return (
        may_be_write_back
        and state is not None
        and is_counted(state)
        and state.is_primary
        and state.is_attached
    )


def flushes(state: ResourceState | None) -> bool:
    """Whether DRBD flushes the disk here between writes, or has none to flush.

    What DRBD 9 says of it nobody has changed.
    """
    return (
        state is None
        or not state.is_attached
        or state.has_quorum is not None
        or state.write_ordering in {"", FLUSHES}
    )


def has_lost_writes(state: ResourceState | None) -> bool:
    """Whether DRBD says that the disk below a replica in write-back has failed to flush."""
    return state is not None and state.write_ordering not in {"", FLUSHES}


def must_cut(state: ResourceState | None, *, may_be_write_back: bool) -> bool:
    """Whether a replica that stops has to cut the connection instead of taking leave.

    Only a Primary that loses its peer has its fence-peer handler called. One that its peer takes
    leave of would go on with what is in its RAM alone.
    """
    return (
        may_be_write_back
        and state is not None
        and any(peer.connection == "Connected" and peer.role == "Primary" for peer in state.peers)
    )


class ReadReason(StrEnum):
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


READ_SENTENCES = {
    ReadReason.NOT_GOOD: "its copy is not up to date",
    ReadReason.COMPARED: "the copies are being compared",
    ReadReason.NO_RAM: "the node would be left too little RAM",
    ReadReason.WAITS: "what hosts have unmapped has to end first",
    ReadReason.FAILED: "it has failed, and is made anew",
    ReadReason.RESTART: "an older release started it: 'sanctl node drain' its node, then 'undrain'",
}


def due_read_cache(
    wanted_bytes: int, state: ResourceState | None, *, has_place: bool
) -> tuple[int, ReadReason]:
    """Return how large a replica's read cache in RAM is to be, and why less than wanted.

    Only where hosts are served: a standby reads nothing, and what it held would be old RAM.

    Args:
        wanted_bytes: by the policy.
        state: the resource as DRBD reports it here; None when it is not up.
        has_place: DRBD stands on the device that a cache can be put under.
    """
    if not wanted_bytes or state is None or not state.is_primary:
        return 0, ReadReason.NONE
    if not has_place:
        return 0, ReadReason.RESTART
    if state.disk != "UpToDate":
        return 0, ReadReason.NOT_GOOD
    if any(peer.is_verifying for peer in state.peers):
        return 0, ReadReason.COMPARED
    size = wanted_bytes if state.size_kib is None else min(wanted_bytes, state.size_kib * 1024)
    return size, ReadReason.NONE


def leaves_enough_ram(needed: int, promised: int, available: int, total: int) -> bool:
    """Whether a quarter of a node's RAM is still available when all read caches are full.

    Args:
        needed: bytes that another cache takes when it is full.
        promised: bytes that those there are may still take.
        available: `MemAvailable` of proc_meminfo(5), in bytes.
        total: `MemTotal`.
    """
    return available - promised - needed >= total // 4
