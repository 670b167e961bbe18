# SPDX-License-Identifier: GPL-2.0-or-later
"""Which resync runs now, which waits, and whether all of a replica is sent or what differs. Pure.

The node that is the target decides, as its disks and its link are what the resyncs share. One at a
time: two at once take twice as long to bring the first one back, and hosts feel two. The device
with the highest priority is first, then the one with least left, which brings most devices back
soonest. A resync that makes no headway keeps its leave, and does not count: the next one runs
beside it, so that none ever waits for one that is stuck.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sanctl.model.drbd import ResourceState
from sanctl.model.resync_record import FAST, FULL
from sanctl.model.sync_policy import SyncPolicy


class Candidate(NamedTuple):
    """A device whose replica here is being brought into line.

    Attributes:
        name: the device's name.
        policy: how it is synced.
        left_kib: what is left.
        is_stuck: it had leave to run, and nothing came for a while.
    """

    name: str
    policy: SyncPolicy
    left_kib: int
    is_stuck: bool


def waits(candidates: Iterable[Candidate], hour: int) -> dict[str, str]:
    """Return what each device waits for, in words; empty for one that may run.

    Args:
        candidates: all devices that are synced here.
        hour: the hour of the day.
    """
    result: dict[str, str] = {}
    first = ""
    for each in sorted(candidates, key=lambda c: (-c.policy.priority, c.left_kib, c.name)):
        window = each.policy.window
        if window is not None and not window.is_open(hour):
            result[each.name] = f"until {window.first:02}:00"
        elif each.is_stuck:
            result[each.name] = ""
        elif first:
            result[each.name] = f"for {first}"
        else:
            result[each.name] = ""
            first = each.name
    return result


def choose_kind(policy: SyncPolicy, changed_kib: int, size_kib: int) -> tuple[str, str]:
    """Return which kind of resync a device gets, and why in words.

    Args:
        policy: how it is synced.
        changed_kib: what is marked as different.
        size_kib: the device's size.
    """
    if changed_kib >= size_kib:
        return FULL, "all of it is marked"
    share = 100 * changed_kib // max(1, size_kib)
    if policy.full_above is None or changed_kib * 100 <= policy.full_above * size_kib:
        return FAST, f"{share}% is marked"
    return FULL, f"{share}% is marked and the limit is {policy.full_above}%"


def may_widen(state: ResourceState) -> bool:
    """Whether all of this node's replica may be called out of sync: that it is no copy already.

    A resync's target holds the data of no moment while the resync runs, and its peer has all of
    them: so nothing is lost by it, and nobody serves from it. It says so itself; what others say
    does not count.
    """
    return (
        state.role == "Secondary"
        and state.disk == "Inconsistent"
        and len(state.peers) == 1
        and all(
            peer.connection == "Connected"
            # Held: one that runs could end before anything else is done.
            and peer.replication == "PausedSyncT"
            and peer.disk == "UpToDate"
            for peer in state.peers
        )
    )


def may_widen_alone(state: ResourceState) -> bool:
    """The same, after the connection was taken away for it."""
    return (
        state.role == "Secondary"
        and state.disk == "Inconsistent"
        and all(peer.connection == "StandAlone" for peer in state.peers)
    )
