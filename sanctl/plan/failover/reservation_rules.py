# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of persistent reservations: when a change is answered, stored, in force; no waits.

Each replica of a device has the state in a file. Pure functions, so that the process that stores
changes and the model that explores every interleaving (sanctl/safety/reservations.py) decide by the
same lines. R1 to R7 are their names in docs/explanation/safety-model.md.

The invariant they guard: a replica that is not marked as outdated has the newest state that a host
was answered or could read, or one that was on its way on top of that. Only such a replica is
promoted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from sanctl.model.reservation import Reservations, Version


class PeerState(Enum):
    """What the Primary knows of another replica and the state that it is about to store."""

    STORED = "stored"
    MARKED = "marked"
    UNKNOWN = "unknown"


def peer_state(*, has_stored: bool, is_marked: bool, is_clearing: bool) -> PeerState:
    """Return what the Primary knows of another replica.

    Args:
        has_stored: that replica has answered that it has stored the very state.
        is_marked: its mark was read back, with quorum.
        is_clearing: a removal of that mark was begun and is not known to have ended, and the mark
            was not set again since. A removal that was sent by a process that died may come later.
    """
    if has_stored:
        return PeerState.STORED
    return PeerState.MARKED if is_marked and not is_clearing else PeerState.UNKNOWN


def may_answer(peers: Mapping[str, PeerState]) -> bool:
    """Whether a state may be stored in the own file, and after that answered (R1).

    Also the rule for the step by which the epoch is raised, after which the node may serve (R7).

    `peers` are all other replicas of the device.
    """
    return PeerState.UNKNOWN not in peers.values()


def may_clear(own: Version, stored: Version | None) -> bool:
    """Whether a Primary may remove a peer's mark (R2), under the lock under which changes go.

    Args:
        own: the version of the Primary's own state.
        stored: what the peer has answered to that state, pushed under this lock; None: nothing.
    """
    return stored == own


def may_unmark(peer: Version | None, others: Sequence[Version | None], *, are_same: bool) -> bool:
    """Whether a Secondary may remove a peer's mark where all replicas are marked and idle (R3).

    Of two replicas, the one whose state is not older is unmarked by the other one. With more that
    is not enough: of three, one may have a newer version of an older state, from a Primary that was
    lost before it served, when the two others were marked.

    Args:
        peer: the version of that replica's state; None: no state is known.
        others: those of all other replicas, this node's included.
        are_same: all have the same reservations, whatever the versions.
    """
    if peer is None or None in others:
        return False
    if len(others) > 1:
        return are_same
    return all(own is not None and peer >= own for own in others)


def next_promise(current: Version, promised: int, *, refused_by: Collection[Version] = ()) -> int:
    """Return the epoch in which a process stores its first state, which is that of its file (R4).

    The process writes that number into its own file before it sends anything, and no process of
    this node uses it again: what one that died has sent, and nobody was answered, is older than
    what a later one stores. Without that, a standby could have a newer version of an older state.

    Args:
        current: the version of the own file.
        promised: the epoch that was promised last there.
        refused_by: what replicas have that refused a state because theirs is as new or newer.
    """
    return max(promised, *(version.epoch for version in (current, *refused_by))) + 1


def first_version(promised: int) -> Version:
    """Return the version of the first state that a process stores, before any change."""
    return Version(promised, 0)


def next_version(current: Version) -> Version:
    """Return the version of a change, once a process has stored its first state."""
    return Version(current.epoch, current.generation + 1)


def newest_known(own: Version, promised: int) -> Version:
    """Return what a state has to be newer than, and what a replica says that refuses one."""
    return max(own, first_version(promised))


def accepts(
    own: Version | None, promised: int, offered: Version, *, is_same: bool, is_from_primary: bool
) -> bool:
    """Whether a standby stores a state that it is sent, or has it already (R5).

    Decided and stored under one lock, which a promotion takes before it reads the file: a state
    that was accepted before must not be written after that.

    Args:
        own: the version of the own file; None: there is none that can be read.
        promised: the epoch that was promised last there.
        offered: the version of the state that was sent.
        is_same: the state that was sent is what the own file has, version and all.
        is_from_primary: the sender is Primary as DRBD says here, and this node is not.
    """
    if not is_from_primary:
        return False
    return own is None or is_same or offered > newest_known(own, promised)


def may_promote(own: Version | None, *, is_first_activation: bool) -> bool:
    """Whether a replica with that state may be promoted (R6); None: no file that can be read.

    The first activation of a device writes an empty state.
    """
    return own is not None or is_first_activation


class StandbyAnswer(Enum):
    """What becomes of a command that has changed the reservations of a standby's kernel."""

    ANSWER = "answer"
    WAIT = "wait"
    """Answered once it is true; after some seconds with an error, which LIO tells the host."""
    HOLD = "hold"
    """Answered once it is true, and never with an error: LIO would answer GOOD."""


def answer_on_standby(
    before: Reservations, after: Reservations, canonical: Reservations
) -> StandbyAnswer:
    """Return what becomes of a command on a standby, asked again with each state that is pushed.

    A command is answered once what it did is true of the device. LIO tells a host that its command
    could not be stored for REGISTER only, so that a command is left to fail only where it can be
    nothing else: it adds registrations or changes keys, and nothing else. What takes a registration
    away may be an initiator's own REGISTER or another one's PREEMPT: the text does not tell.

    Args:
        before: what the kernel had before the command.
        after: what it has now, as LIO has written it.
        canonical: the newest state that the Primary has pushed.
    """
    if after == canonical:
        return StandbyAnswer.ANSWER
    keys = {
        who: after.keys.get(who)
        for who in before.keys.keys() | after.keys.keys()
        if after.keys.get(who) != before.keys.get(who)
    }
    is_true = all(canonical.keys.get(who) == key for who, key in keys.items())
    if (before.holder, before.type) != (after.holder, after.type):
        is_true = is_true and (after.holder, after.type) == (canonical.holder, canonical.type)
        return StandbyAnswer.ANSWER if is_true else StandbyAnswer.HOLD
    if keys and is_true:
        return StandbyAnswer.ANSWER
    is_register = bool(keys) and None not in keys.values()
    return StandbyAnswer.WAIT if is_register else StandbyAnswer.HOLD
