# SPDX-License-Identifier: GPL-2.0-or-later
"""When replicas are compared, and when what was found is sent anew. Pure."""

from __future__ import annotations

import time

from sanctl.model.drbd import ResourceState
from sanctl.model.sync_policy import Schedule
from sanctl.model.verify_result import (
    DIFFERS,
    REPAIRED,
    REPAIRING,
    RUNNING,
    SAME,
    Order,
    Verification,
)

#: An order that nobody could follow for so long is dropped: whoever gave it has gone.
ORDER_ENDS_AFTER_S = 24 * 3600
#: A repair of which nothing has come by then is begun again: its contact never ended.
_REPEAT_AFTER_S = 30


def may_begin(state: ResourceState) -> bool:
    """Whether this node may compare its replica with its peers': it serves, and all is in sync."""
    return state.is_primary and state.is_in_sync


def is_open(order: Order | None, latest: Verification | None, now_s: int) -> bool:
    """Whether an order is still to be followed here: each is followed once, late or never."""
    if order is None or (latest is not None and latest.order >= order.number):
        return False
    return now_s - order.number < ORDER_ENDS_AFTER_S


def has_ended(told: Verification, order: Order | None, number: int) -> bool:
    """Whether what another node tells is a verify of this number, with nothing left to be done.

    Differences that are to be repaired are left: who serves now finds them again.
    """
    is_to_repair = order is not None and order.is_repair and order.number == number
    done = {SAME, REPAIRED} if is_to_repair else {SAME, DIFFERS, REPAIRED}
    return told.order == number and told.result in done


def is_due(schedule: Schedule | None, latest: Verification | None, now: time.struct_time) -> bool:
    """Whether a scheduled verify is to begin: within its hour, unless one began in that hour.

    Args:
        schedule: when.
        latest: the verify before.
        now: the local time.
    """
    if schedule is None or now.tm_hour != schedule.hour:
        return False
    if schedule.day is not None and now.tm_wday != schedule.day:
        return False
    since_s = now.tm_min * 60 + now.tm_sec
    return latest is None or latest.began_s < int(time.mktime(now)) - since_s


def may_repair(
    order: Order | None, own: Verification | None, state: ResourceState, now_s: int
) -> bool:
    """Whether this node may have its marked blocks sent anew: it is a standby in perfect contact.

    The copy that serves is the one that quorum trusts, and what hosts have read. On the standby,
    never the other way round: the blocks that go are the ones nobody reads.
    """
    if order is None or not order.is_repair or now_s - order.number >= ORDER_ENDS_AFTER_S:
        return False
    if own is not None and own.order >= order.number and not _may_follow(own, now_s):
        return False
    return (
        state.role == "Secondary"
        and len(state.peers) == 1
        and state.is_in_sync
        and state.peers[0].role == "Primary"
        and (state.out_of_sync_kib or 0) > 0
    )


def _may_follow(own: Verification, now_s: int) -> bool:
    """Whether a repair may begin after what was noted here for the same order."""
    if own.result == REPAIRING:
        return not 0 <= now_s - own.began_s < _REPEAT_AFTER_S
    return own.result != REPAIRED


def is_in_force(order: Order | None, own: Verification, now_s: int) -> bool:
    """Whether what is being repaired here is still what was ordered last, and not too long ago."""
    return (
        order is not None
        and order.is_repair
        and order.number == own.order
        and now_s - order.number < ORDER_ENDS_AFTER_S
    )


def is_left(
    order: Order | None, own: Verification | None, state: ResourceState, now_s: int
) -> bool:
    """Whether something of a verify is left here that somebody should see to.

    Told by what is so, never by having seen the verify run: one may begin and end between two
    looks, and who was to finish it may have been killed.
    """
    if own is not None and own.result == RUNNING:
        return True
    if own is not None and own.result == REPAIRING and state.is_in_contact:
        return True
    return may_repair(order, own, state, now_s)


def has_found(order: Order, told: Verification | None) -> bool:
    """Whether the node that compared says that this very order has found differences."""
    return told is not None and told.order == order.number and told.result == DIFFERS
