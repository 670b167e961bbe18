# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: how many monitors do all of their work on a node at a time, and which need not wait.

When a node comes back, the monitors of all replicas that are not in sync are whole ones, ten
seconds apart for each. Of twenty on one processor none would get an answer from the cluster in its
time, and each would begin anew (docs/adr/0053).
"""

from __future__ import annotations

from enum import Enum, auto

from sanctl.model.drbd import ResourceState
from sanctl.plan.failover.promotion import are_all_blank

#: A monitor that gets no turn within this time leaves the duties to a later one.
WAIT_S = 4.0
#: After this time a replica's duties are done without a turn: those that have one may hang.
LONGEST_S = 60.0
_LONGEST_PAUSE_S = 5.0


def at_a_time(processors: int) -> int:
    """Return how many monitors have a turn at a time on a node with so many processors.

    One more than can compute: they wait for the cluster, too.
    """
    return 1 + max(1, processors)


class Turn(Enum):
    """When a monitor does a replica's duties."""

    NOW = auto()
    """At once, without a turn."""
    NEXT = auto()
    """When it has a turn."""
    LATER = auto()
    """Not this time."""


def turn(state: ResourceState, *, replicas: int, done_age_s: float | None) -> Turn:
    """Return when a monitor does its duties for a replica.

    At once for one in sync, whose whole monitors are seldom anyway. And for a Primary whose disk is
    not UpToDate, or whose peer has lost its own: such a replica is to be marked before anything
    else happens. Later for one of a new device, all of whose replicas are there: there is nothing
    to do before its first promotion, which of twenty that are created together waits for these
    monitors.

    Args:
        state: what DRBD says of the replica.
        replicas: how many replicas the device has.
        done_age_s: how long ago all of its duties were done; None: not known.
    """
    if state.is_in_sync or done_age_s is None or not 0 <= done_age_s < LONGEST_S:
        return Turn.NOW
    if are_all_blank(state, replicas=replicas):
        return Turn.LATER
    if state.is_primary and (
        state.disk != "UpToDate" or any(peer.disk == "Diskless" for peer in state.peers)
    ):
        return Turn.NOW
    return Turn.NEXT


def free_at_s(end_s: float, worked_s: float) -> float:
    """Return when a turn is free again: twice as long after its end as it has computed.

    So monitors take a third of the processors for each turn, and leave the rest to handlers, to the
    cluster and to hosts.

    Args:
        end_s: when it has ended.
        worked_s: the processor time that it has taken, with the programs that it has run.
    """
    return end_s + min(max(2 * worked_s, 0.0), _LONGEST_PAUSE_S)


def is_free(noted: str, now_s: float) -> bool:
    """Whether a turn that nobody holds may be taken, by what its last holder has noted.

    A note that names no time, or one that is too far off, counts for nothing.
    """
    try:
        left_s = float(noted) - now_s
    except ValueError:
        return True
    return not 0 < left_s <= _LONGEST_PAUSE_S
