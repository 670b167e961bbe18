# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which DRBD state earns which promotion score, or none; the numbers are in model.

Pacemaker promotes the instance with the highest promotion score. An instance that may not be
promoted publishes -INFINITY: no score counts as -1, which a preference for its node outweighs. The
score is a pure function of what DRBD says here, so that every state can be tried. The rules:

* Only a replica that holds the data may be promoted by itself: UpToDate, or Consistent (DRBD does
  not know yet; its fence-peer handler settles that before the replica becomes Primary).
* A replica that knows it is behind (Outdated, Inconsistent, Failed, Diskless) is no candidate.
  A resync target could be promoted while its source is connected, and would die with the source.
* With three and more replicas DRBD 9 must see a majority of them (its quorum): the handler would
  refuse the promotion, and the attempt would fail.
* The Primary outranks all others, so that a node's return never moves a device back.
* A replica whose disk came back while no connected peer had one is no candidate: the peer may hold
  writes that it has alone (`may_lack_writes`).
* New, empty replicas are candidates when all of them are connected: there is no data to lose yet.
  Of a device that is made from a restore point, only those that are copies of it are.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto

from sanctl.model import promotion_score as scores
from sanctl.model.drbd import ResourceState

#: May not be promoted; published as -INFINITY.
NO_CANDIDATE = None


def promotion_score(
    state: ResourceState | None, *, is_new: bool, is_first: bool = False, replicas: int = 2
) -> int | None:
    """Return the promotion score of this node's replica, None where it may not be promoted.

    Args:
        state: the resource as DRBD reports it here; None when it is not up.
        is_new: the cluster says that the device has never been active.
        is_first: this node is the first of the device's replica nodes: a new device starts here.
        replicas: how many replicas the device has.
    """
    if state is None:
        return NO_CANDIDATE
    if state.has_quorum is False and not state.is_primary:
        return NO_CANDIDATE
    if state.disk == "UpToDate":
        if state.is_primary:
            return scores.PRIMARY
        if any(peer.connection == "Connected" for peer in state.peers):
            return scores.UP_TO_DATE
        return scores.DISCONNECTED
    if state.disk == "Consistent":
        return scores.CONSISTENT
    if is_new and are_all_blank(state, replicas=replicas):
        return scores.NEW + is_first
    if state.is_primary and any(peer.disk == "UpToDate" for peer in state.peers):
        # The Primary's disk has failed and it serves from a peer's replica. The scores of the
        # other replicas are higher, so Pacemaker decides by them when the device moves.
        return scores.CONSISTENT
    return NO_CANDIDATE


#: States of a disk that DRBD does not have.
NO_DISK = frozenset({"Diskless", "Failed", "Detaching", "Attaching"})


def has_met_a_disk(state: ResourceState) -> bool:
    """Whether this replica has compared its data with that of a connected peer."""
    unknown = NO_DISK | {"Negotiating", "DUnknown"}
    return state.disk not in unknown and any(
        peer.is_connected and peer.disk not in unknown for peer in state.peers
    )


def may_lack_writes(state: ResourceState, *, bitmap_generation: int) -> bool:
    """Whether a replica may be older than what a connected peer without a disk holds.

    Only for a replica that has not met a peer's disk since its own was attached. One that has lost
    its peer's disk while it was Primary has a bitmap that counts from there: it is ahead.

    `state` is what DRBD reports, 8.4, or 9 of two replicas; `bitmap_generation` the one that the
    replica's bitmap counts from, 0: none, or not known.
    """
    connected = [peer for peer in state.peers if peer.is_connected]
    return (
        not state.is_primary
        and state.disk not in NO_DISK
        and bool(connected)
        and all(peer.disk in NO_DISK for peer in connected)
        and not bitmap_generation
    )


def are_all_blank(state: ResourceState, *, replicas: int) -> bool:
    """Whether all replicas are connected and none has ever held data as far as DRBD says.

    The only replica of a device has no peer to connect to. DRBD 8.4 shows a peer that is StandAlone
    for it, and may show one to a replica that has given up its peer: hence the count.
    """
    peers = [peer for peer in state.peers if peer.connection != "StandAlone"]
    return (
        state.disk == "Inconsistent"
        and len(peers) == replicas - 1
        and all(
            peer.connection == "Connected"
            and peer.disk == "Inconsistent"
            and peer.replication == "Established"
            for peer in peers
        )
    )


class FirstStep(Enum):
    """What the first promotion of a new device does with its replicas, before DRBD is Primary."""

    NONE = auto()
    """Nothing: no replica may be declared good from here."""
    DECLARE_EQUAL = auto()
    """Declare all replicas good: they hold the same."""
    DECLARE_OWN = auto()
    """Declare the replica here good, and have DRBD fill the others."""


def first_step(
    state: ResourceState,
    *,
    here: str,
    nodes: Collection[str],
    copied_on: Collection[str] | None,
) -> FirstStep:
    """Return what the first promotion of a new device would do with its replicas here.

    A replica that is no copy of the restore point holds zeros. It is never declared good, and the
    device never begins with it: not even where it is the only one left.

    Args:
        state: the resource as DRBD reports it here.
        here: this node.
        nodes: the device's replica nodes.
        copied_on: the nodes whose new files are copies of one restore point; None: all replicas
            are new files of zeros.
    """
    if not are_all_blank(state, replicas=len(nodes)):
        return FirstStep.NONE
    if copied_on is None or set(nodes) <= set(copied_on):
        return FirstStep.DECLARE_EQUAL
    return FirstStep.DECLARE_OWN if here in copied_on else FirstStep.NONE
