# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: when an online verify starts (order, schedule in local time), and when it repairs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sanctl.model.drbd import ResourceState
from sanctl.model.sync_policy import Schedule
from sanctl.model.verify_result import (
    DIFFERS,
    REPAIRED,
    REPAIRING,
    RUNNING,
    SAME,
    VerifyRequest,
    VerifyResult,
)

#: An order that no node could carry out for so long is dropped: the operator waits no more.
ORDER_ENDS_AFTER_S = 24 * 3600
#: One that has waited for its turn for so long begins with the next hour of its schedule, as one of
#: the first: the hours in which many verifies burden nobody are over.
WAITS_AT_MOST_S = 8 * 3600
#: A moment further ahead is of a clock that was put back since: it says nothing of what came later.
AHEAD_S = 60
#: A repair that has resynced nothing by then is begun again: the connection never ended.
_REPEAT_AFTER_S = 30


def may_start_verify(state: ResourceState) -> bool:
    """Whether this node may verify its replica against its peers': it is Primary, all in sync."""
    return state.is_primary and state.is_in_sync


def is_order_open(order: VerifyRequest | None, latest: VerifyResult | None, now_s: int) -> bool:
    """Whether a verify order is still to be carried out here: each is carried out once or never."""
    if order is None or (latest is not None and _is_done_by(latest, order, now_s)):
        return False
    return now_s - order.number < ORDER_ENDS_AFTER_S


def _is_done_by(result: VerifyResult, order: VerifyRequest, now_s: int) -> bool:
    """Whether a result is of this order, or of a later one; one that lies ahead may be older."""
    return result.order == order.number or order.number < result.order <= now_s + AHEAD_S


def is_order_done_on_peer(
    published: VerifyResult, order: VerifyRequest | None, number: int
) -> bool:
    """Whether a result that another node published ends the verify order of this number.

    Differences that are to be repaired do not end it: the node that serves now finds them again.
    """
    is_to_repair = order is not None and order.is_repair and order.number == number
    done = {SAME, REPAIRED} if is_to_repair else {SAME, DIFFERS, REPAIRED}
    return published.order == number and published.result in done


def is_due(
    schedule: Schedule,
    latest: VerifyResult | None,
    now: time.struct_time,
    *,
    waits_since_s: int | None,
) -> bool:
    """Whether a scheduled verify is to begin: within its hour, unless one began in that hour.

    Or later, if it has been waiting for its turn since that hour.

    Args:
        schedule: by which the device is verified.
        latest: the verify before.
        now: the local time.
        waits_since_s: since when it waits for its turn, in seconds since 1970; None: it does not.
    """
    now_s = int(time.mktime(now))
    begin_s = now_s - now.tm_min * 60 - now.tm_sec
    if now.tm_hour != schedule.hour or schedule.day not in {None, now.tm_wday}:
        if waits_since_s is None or not 0 <= now_s - waits_since_s < WAITS_AT_MOST_S:
            return False
        begin_s = waits_since_s
    return latest is None or not begin_s <= latest.began_s <= now_s + AHEAD_S


def looks_within_s(
    schedule: Schedule,
    latest: VerifyResult | None,
    now: time.struct_time,
    *,
    waits_since_s: int | None,
    every_s: float,
    after_s: float,
) -> float | None:
    """Return in how long a scheduled verify has to be looked for; None: there is more than an hour.

    Args:
        schedule: by which the device is verified.
        latest: the verify before.
        now: the local time.
        waits_since_s: since when it waits for its turn, in seconds since 1970; None: it does not.
        every_s: how often one is looked for that is due, and may wait for its turn.
        after_s: how long after the beginning of its hour it is first looked for.
    """
    if waits_since_s is not None or is_due(schedule, latest, now, waits_since_s=None):
        return every_s
    left_s = 3600 - now.tm_min * 60 - now.tm_sec
    next_hour = time.localtime(time.mktime(now) + left_s)
    if next_hour.tm_hour != schedule.hour or schedule.day not in {None, next_hour.tm_wday}:
        return None
    return left_s + after_s


def may_repair(
    order: VerifyRequest | None, own: VerifyResult | None, state: ResourceState, now_s: int
) -> bool:
    """Whether this node may have its out-of-sync blocks resynced: a connected, in-sync standby.

    The Primary's replica is the one that quorum trusts and that hosts have read. So blocks of the
    standby are overwritten, which no host reads, and never those of the Primary.
    """
    if order is None or not order.is_repair or now_s - order.number >= ORDER_ENDS_AFTER_S:
        return False
    if own is not None and _is_done_by(own, order, now_s) and not _may_follow(own, now_s):
        return False
    return (
        state.role == "Secondary"
        and len(state.peers) == 1
        and state.is_in_sync
        and state.peers[0].role == "Primary"
        and (state.out_of_sync_kib or 0) > 0
    )


def _may_follow(own: VerifyResult, now_s: int) -> bool:
    """Whether a repair may begin after this node's own result of the same order."""
    if own.result == REPAIRING:
        return not 0 <= now_s - own.began_s < _REPEAT_AFTER_S
    return own.result != REPAIRED


def is_repair_still_ordered(order: VerifyRequest | None, own: VerifyResult, now_s: int) -> bool:
    """Whether the repair that runs here belongs to the latest order, and that is not too old."""
    return (
        order is not None
        and order.is_repair
        and order.number == own.order
        and now_s - order.number < ORDER_ENDS_AFTER_S
    )


def needs_completion(
    order: VerifyRequest | None, own: VerifyResult | None, state: ResourceState, now_s: int
) -> bool:
    """Whether a verify or repair left something here that an agent has to complete.

    Decided by the present state, never by having seen the verify run: one may begin and end between
    two monitors, and the process that was to complete it may have been killed.
    """
    return is_left_open(own, is_connected=state.is_connected) or may_repair(
        order, own, state, now_s
    )


def is_log_whole(numbers: Sequence[int], since: int) -> bool:
    """Whether a kernel log has every record after one.

    Args:
        numbers: those of the records that it has, oldest first.
        since: that of the newest record at the begin of the verify.
    """
    later = [number for number in numbers if number > since]
    return since >= 0 and later == list(range(since + 1, since + 1 + len(later)))


def differing_kib(marked_kib: int, *, logged_kib: int, is_log_whole: bool) -> int | None:
    """Return how much a verify has found to differ from a peer, in KiB; None: that is forgotten.

    DRBD 9.3.3 leaves blocks marked as out of sync after a resync from two peers at once, though
    both have the same data, and counts them as what its next verify has found
    (drbd_sender.c, drbd_resync_finished: the bitmap's weight). It logs what it has compared and
    found to differ, and nothing else (drbd_ov_out_of_sync_found). Of a peer that has reconnected
    since nothing is marked any more, and nothing would be repaired.

    Args:
        marked_kib: how much is marked as out of sync at the end, in KiB.
        logged_kib: how much of that peer the kernel's log says to differ, in KiB.
        is_log_whole: the log has every line since the verify began.
    """
    if not marked_kib:
        return None if logged_kib else 0
    return 0 if is_log_whole and not logged_kib else marked_kib


def is_left_open(own: VerifyResult | None, *, is_connected: bool) -> bool:
    """Whether this node's latest verify or repair is recorded as one that runs."""
    return own is not None and (own.result == RUNNING or (own.result == REPAIRING and is_connected))


def has_peer_found_differences(order: VerifyRequest, published: VerifyResult | None) -> bool:
    """Whether the verifying node published that this very order has found differences."""
    return published is not None and published.order == order.number and published.result == DIFFERS
