# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which device's resync runs now and which waits; full or bitmap-based resync.

The node that is the target decides, as the resyncs share its disks and its link. One at a time: two
at once take twice as long to bring the first one back, and hosts feel two. The device with the
highest priority is first, then the one with least left, which brings most devices back soonest. A
resync that makes no progress may go on, and does not count: the next one runs beside it, so that
none ever waits for one that is stuck.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sanctl.model.drbd import ResourceState
from sanctl.model.resync_record import FAST, FULL
from sanctl.model.sync_policy import SyncPolicy


class ResyncCandidate(NamedTuple):
    """A device whose replica here is a resync target.

    Attributes:
        name: the device's name.
        policy: the device's sync policy.
        left_kib: what is left to send.
        is_stuck: it was allowed to run, and received nothing for a while.
    """

    name: str
    policy: SyncPolicy
    left_kib: int
    is_stuck: bool


def wait_reasons(candidates: Iterable[ResyncCandidate], hour: int) -> dict[str, str]:
    """Return what each device's resync waits for, as text; empty for one that may run.

    The candidates are all devices whose replica here is a resync target.
    """
    result: dict[str, str] = {}
    first = ""
    for each in sorted(candidates, key=lambda c: (-c.policy.priority, c.left_kib, c.name)):
        window = each.policy.window
        if window is not None and not window.is_open(hour):
            result[each.name] = f"until {window.first_hour:02}:00"
        elif each.is_stuck:
            result[each.name] = ""
        elif first:
            result[each.name] = f"for {first}"
        else:
            result[each.name] = ""
            first = each.name
    return result


def choose_resync_kind(
    policy: SyncPolicy, changed_kib: int, size_kib: int, *, can_widen: bool
) -> tuple[str, str]:
    """Return which kind of resync a device gets, FAST or FULL, and why, as text.

    `changed_kib` is what the bitmap marks as out of sync. DRBD 9 cannot widen: mark all of a
    resync's target as out of sync.
    """
    if changed_kib >= size_kib:
        return FULL, "all of it is marked"
    share = 100 * changed_kib // max(1, size_kib)
    limit = policy.full_above_percent
    if limit is None or changed_kib * 100 <= limit * size_kib:
        return FAST, f"{share}% is marked"
    if not can_widen:
        return FAST, f"{share}% is marked; no limit with DRBD 9"
    return FULL, f"{share}% is marked and the limit is {limit}%"


def peers_to_pause_or_resume(state: ResourceState, *, is_to_wait: bool) -> tuple[int, ...]:
    """Return the node ids of DRBD 9's peers whose resync is to be paused, or to be resumed.

    All connected peers are paused, whichever is the source now: while the resync with one of them
    waits, DRBD begins to resync from another one.
    """
    return tuple(
        peer.node_id
        for peer in state.peers
        if peer.node_id is not None
        and ("user" in peer.resync_suspended) != is_to_wait
        and (peer.is_connected or not is_to_wait)
    )


def may_mark_all_out_of_sync(state: ResourceState) -> bool:
    """Whether all of this node's replica may be marked out of sync, for a full resync.

    Only of a resync target that this node itself reports as Inconsistent: the target holds the data
    of no single moment while the resync runs, and its peer holds all of it. So nothing is lost, and
    no node serves from it. What peers report of this replica does not count.
    """
    return (
        state.role == "Secondary"
        and state.disk == "Inconsistent"
        and len(state.peers) == 1
        and all(
            peer.connection == "Connected"
            # Paused: a running resync could end before anything else is done.
            and peer.replication == "PausedSyncT"
            and peer.disk == "UpToDate"
            for peer in state.peers
        )
    )


def may_mark_all_while_disconnected(state: ResourceState) -> bool:
    """Whether the same holds once the connection was closed in order to mark it."""
    return (
        state.role == "Secondary"
        and state.disk == "Inconsistent"
        and all(peer.connection == "StandAlone" for peer in state.peers)
    )
