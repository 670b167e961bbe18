"""Which cache mode a replica may be in now, and why it is not the one that is wanted.

The invariant: what is acknowledged and only in RAM is in the RAM, or on the disk, of two nodes.
So write-back needs a peer that is in sync.
"""

from __future__ import annotations

from enum import StrEnum

from sanctl.model.cache import Mode
from sanctl.model.drbd import ResourceState

#: What DRBD calls flushing the disk between dependent writes. It changes to another word, for
#: good, when a flush has failed (drbd_receiver.c, drbd_flush).
_FLUSHES = "flush"


class Reason(StrEnum):
    """Why a replica is not in the mode that is wanted for it."""

    NONE = ""
    ONE_COPY = "one-copy"
    """Only one copy is known to be in sync."""
    NO_FLUSH = "no-flush"
    """DRBD was told not to flush the disk between writes that depend on each other."""
    SUSPECT = "suspect"
    """It lost what was in RAM."""
    CHANGING = "changing"
    """The agent has not got there yet."""


SENTENCES = {
    Reason.ONE_COPY: "one copy is in sync, so nothing may be in RAM alone",
    Reason.NO_FLUSH: "DRBD does not flush its disk",
    Reason.SUSPECT: "it crashed with writes in RAM, or could not flush them",
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
    if state is None or not state.is_in_sync:
        return Mode.WRITE_THROUGH, Reason.ONE_COPY
    if has_lost_writes(state):
        # Not entered: a flush that fails later could not be told from this.
        return Mode.WRITE_THROUGH, Reason.NO_FLUSH
    return Mode.WRITE_BACK, Reason.NONE


def has_lost_writes(state: ResourceState | None) -> bool:
    """Whether DRBD says that the disk below a replica in write-back has failed to flush."""
    return state is not None and state.write_ordering not in {"", _FLUSHES}


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
