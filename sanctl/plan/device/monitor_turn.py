# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: how many monitors do all of their work on a node at a time, and which need not wait.

When a node comes back, the monitors of all replicas that are not in sync are whole ones, ten
seconds apart for each. Of twenty on one processor none would get an answer from the cluster in its
time, and each would begin anew (docs/adr/0050).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from sanctl.model.drbd import ResourceState
from sanctl.plan.failover.fence_rules import PEER_WITHOUT_DATA
from sanctl.plan.failover.promotion import NO_DISK, are_all_blank

#: A monitor that gets no turn within this time leaves the duties to a later one.
WAIT_S = 4.0
#: After this time a replica's duties are done without a turn: those that have one may hang.
LONGEST_S = 60.0
#: Of a replica that crashed as Primary and is to connect once its standby has been promoted, and of
#: such a standby that was stopped whole. They wait three minutes for each other.
CRASHED_LONGEST_S = 20.0
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
    FREE = auto()
    """If a turn is free: Pacemaker may want to promote the replica meanwhile."""
    LATER = auto()
    """Not this time."""


class Seen(NamedTuple):
    """What decides when a replica's duties are done, beside DRBD's state.

    Attributes:
        replicas: how many replicas the device has.
        has_order: it has a cache policy, hosts may be kept out of it until a site has answered, it
            is being restored, or its access list is not what is wanted.
        score: the promotion score that the running pacemaker-attrd was given, as text; None: none.
        waits_to_connect: it waits for its turn to connect to a node that serves.
        done_age_s: how long ago all of its duties were done; None: not known.
        is_withheld: it has no score because no peer has joined Pacemaker (`may_try_promotion` in
            sanctl/plan/failover/connection_rules.py).
        is_kept: a replica that crashed as Primary may wait for its promotion
            (sanctl/plan/failover/standby_first.py).
        is_crashed: it is such a replica, and waits.
    """

    replicas: int
    has_order: bool
    score: str | None
    waits_to_connect: bool
    done_age_s: float | None
    is_withheld: bool = False
    is_kept: bool = False
    is_crashed: bool = False


#: As published of a replica that may not be promoted.
NO_SCORE = "None"


def turn(state: ResourceState, seen: Seen) -> Turn:
    """Return when a monitor does its duties for a replica.

    Those of many replicas that wait for a lost node, or for the node that serves, are alike and can
    wait: that is what takes the processor when a node is lost, or comes back. All others are done
    at once, as a promotion, a mark, a cache's flush or an operator may depend on them:

    * of a replica in sync, whose whole monitors are seldom anyway;
    * of a Primary whose disk is not UpToDate, or whose peer has lost its own: it is to be marked
      before anything else happens;
    * of one that has refused its peer, and does not wait for its turn to connect: `device heal`;
    * of one without a score that could have one, or whose peers are in contact and none serves;
    * of one with a cache policy, with a restore, or with hosts that are to be let in or kept out.

    A standby that has lost its peer waits for no turn: a promotion waits for its monitor.

    Later for one of a new device, all of whose replicas are there: there is nothing to do before
    its first promotion, which of twenty that are created together waits for these monitors.

    Args:
        state: what DRBD says of the replica.
        seen: the rest.
    """
    longest_s = CRASHED_LONGEST_S if seen.is_kept or seen.is_crashed else LONGEST_S
    is_due = seen.done_age_s is None or not 0 <= seen.done_age_s < longest_s
    if state.is_in_sync or is_due or seen.has_order or seen.score is None:
        return Turn.NOW
    if are_all_blank(state, replicas=seen.replicas):
        return Turn.NOW if seen.score == NO_SCORE else Turn.LATER
    if not (seen.waits_to_connect or seen.is_crashed) and (
        not state.peers or any(peer.connection == "StandAlone" for peer in state.peers)
    ):
        return Turn.NOW
    if state.is_primary:
        return Turn.NEXT if _primary_may_wait(state) else Turn.NOW
    if any(peer.role == "Primary" for peer in state.peers):
        return Turn.NEXT
    return Turn.FREE if _standby_may_wait(state, seen) else Turn.NOW


def _primary_may_wait(state: ResourceState) -> bool:
    lost = NO_DISK | PEER_WITHOUT_DATA
    return state.disk == "UpToDate" and all(peer.disk not in lost for peer in state.peers)


def _standby_may_wait(state: ResourceState, seen: Seen) -> bool:
    """Whether a replica that has lost a peer has its score, or waits for its turn to connect.

    Or for a node that is away, without a score until then: after a boot of the only node that is
    left all of its replicas may be such. So may they after a crash, and wait for their standbys.
    """
    is_waiting = seen.waits_to_connect or seen.is_withheld or seen.is_crashed
    return not state.is_connected and (is_waiting or seen.score != NO_SCORE)


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
