# SPDX-License-Identifier: GPL-2.0-or-later
"""How good a candidate for Primary this node's replica is.

Pacemaker promotes the instance with the highest promotion score; who may not be promoted tells it
-INFINITY, because no score counts as -1, which a wish to have the device there outweighs. The score
is a pure function of what DRBD says here, so it can be tried in every state. The rules:

* Only a replica that holds the data may be promoted by itself: UpToDate, or Consistent (DRBD does
  not know yet; its fence-peer handler settles that before it becomes Primary).
* A replica that knows it is behind (Outdated, Inconsistent, Failed, Diskless) is no candidate.
  A resync target could be promoted while its source is connected, and would die with it.
* Of three and more copies a majority has to be in sight (DRBD 9 counts them): the handler would
  not let it be promoted, and the attempt would fail.
* The Primary outranks everybody, so that a node's return never moves a device back.
* New, empty replicas are a candidate when all of them see each other: there is no data to lose
  yet.
"""

from __future__ import annotations

from sanctl.model import promotion_score as scores
from sanctl.model.drbd import ResourceState

SCORE_PRIMARY = scores.PRIMARY
SCORE_UP_TO_DATE = scores.UP_TO_DATE
SCORE_ALONE = scores.ALONE
SCORE_CONSISTENT = scores.CONSISTENT
SCORE_NEW = scores.NEW
#: Never, told as -INFINITY.
SCORE_NONE = None


def promotion_score(
    state: ResourceState | None, *, is_new: bool, is_first: bool = False, copies: int = 2
) -> int | None:
    """Return the promotion score of this node's replica, None where it may not be promoted.

    Args:
        state: the resource as DRBD reports it here; None when it is not up.
        is_new: the cluster says that the device has never been active.
        is_first: this node is the first of the device's replica nodes, where a new one begins.
        copies: how many replicas the device has.
    """
    if state is None:
        return SCORE_NONE
    if state.has_quorum is False and not state.is_primary:
        return SCORE_NONE
    if state.disk == "UpToDate":
        if state.is_primary:
            return SCORE_PRIMARY
        if any(peer.connection == "Connected" for peer in state.peers):
            return SCORE_UP_TO_DATE
        return SCORE_ALONE
    if state.disk == "Consistent":
        return SCORE_CONSISTENT
    if is_new and is_blank(state, copies=copies):
        return SCORE_NEW + is_first
    if state.is_primary and any(peer.disk == "UpToDate" for peer in state.peers):
        # Its disk failed under it and it serves from a peer: still the one that serves, and
        # moving is the cluster's decision by the scores of the others, which are higher.
        return SCORE_CONSISTENT
    return SCORE_NONE


def is_blank(state: ResourceState, *, copies: int) -> bool:
    """Whether all replicas are connected and none has ever held data as far as DRBD says.

    The only replica of a device has nobody to be connected to. DRBD 8.4 shows it a peer that stands
    alone, and may show one to a replica that has given up its peer: hence the count.
    """
    peers = [peer for peer in state.peers if peer.connection != "StandAlone"]
    return (
        state.disk == "Inconsistent"
        and len(peers) == copies - 1
        and all(
            peer.connection == "Connected"
            and peer.disk == "Inconsistent"
            and peer.replication == "Established"
            for peer in peers
        )
    )
