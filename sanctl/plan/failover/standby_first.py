# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: when a replica that crashed as Primary lets its standby be promoted before they connect.

Of two replicas of one generation DRBD makes the crashed Primary the source of the resync
(drbd_receiver.c, `drbd_uuid_compare`, rule 40). A standby that nothing has happened to has every
acknowledged write. The crashed node's disk may lack what hosts had not flushed: as a rule writes to
new places, whose blocks its filesystem had not yet noted. As long as the two are not connected, the
standby's promotion gives its data a new generation, and the crashed replica becomes the target, of
all that its activity log names.

Only where the standby is whole, and may be promoted anyway: it is UpToDate by its score, or was
stopped as a whole one, for want of quorum; it is not marked; its node is a member of the cluster. A
standby that has crashed as well is no better a source, and may be a worse one: DRBD answers a flush
when the Primary's disk has flushed, and the standby does so a moment later.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sanctl.model import promotion_score as scores

#: Pacemaker promotes the standby within seconds, or within a minute or two where many devices start
#: at once. It cannot where the standby's node is in maintenance, say, or the device is held: then
#: the two connect, as ever.
WAITS_S = 90.0
#: At the longest: where the standby is being promoted, as its fence-peer has marked the replica
#: here; or where it starts, too, among many, and none is promoted before the last has started.
LONGEST_S = 180.0

_UP_TO_DATE = frozenset(map(str, (scores.DISCONNECTED, scores.UP_TO_DATE)))
#: Of one that was stopped: what it has while it starts, once it has, and as long as it may not be
#: promoted because no other node has joined yet.
_STARTING = frozenset({"", str(scores.CONSISTENT), "-INFINITY"})


class Peer(NamedTuple):
    """What the cluster knows of the other replica, asked at one time.

    Attributes:
        score: its promotion score in the CIB; empty: none.
        was_kept: it was stopped while it was whole and had lost its Primary, and its node has run
            since.
        is_marked: it is marked as outdated.
        is_member: its node is a member of this node's partition, which has quorum.
        marks_here: the replica here is marked as outdated.
    """

    score: str
    was_kept: bool
    is_marked: bool
    is_member: bool
    marks_here: bool = False


class Wait(Enum):
    """What a replica that crashed as Primary does with the connection to its standby."""

    GOES_ON = "the standby is to be promoted first"
    SERVES = "the standby serves"
    ENDS = "the standby is no candidate for promotion"
    LATE = "the standby was not promoted in time"


def is_late(waited_s: float) -> bool:
    """Whether a replica has waited for as long as any does, whatever the cluster says.

    `waited_s` is for how long, in seconds.
    """
    return waited_s >= LONGEST_S


def wait_of(peer: Peer, *, waited_s: float) -> Wait:
    """Return whether the replica waits, or why it connects.

    Args:
        peer: the standby.
        waited_s: since when it waits, in seconds.
    """
    if peer.score == str(scores.PRIMARY):
        return Wait.SERVES
    is_whole = peer.score in _UP_TO_DATE or (peer.was_kept and peer.score in _STARTING)
    if not is_whole or peer.is_marked or not peer.is_member:
        return Wait.ENDS
    is_on_its_way = peer.marks_here or peer.was_kept
    return Wait.GOES_ON if waited_s < (LONGEST_S if is_on_its_way else WAITS_S) else Wait.LATE
