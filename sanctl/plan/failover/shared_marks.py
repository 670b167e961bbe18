# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of marking several devices in one change of the CIB: whose requests, which marks, answers.

Handlers of several devices that have lost one peer share a transaction. Each writes a request; who
holds the node's lock for that peer leads: it carries out all open requests, and answers each. Pure
functions, so that the handlers (sanctl/agents/fencing/shared_marks.py) and the model that explores
two devices (sanctl/safety/sharing.py) decide by the same lines.

The invariant they guard: a handler that is told that its peer is certain holds its device's fencing
lock, and the peer's mark was set and read back with quorum after the handler had asked, or, for the
source of a resync, read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sanctl.plan.failover import fence_rules

#: In place of the peer's membership: the replica that is to be promoted is marked itself.
OWN_MARKED = "marked"
#: For so long a promotion of which nothing is seen yet is waited for.
QUIET_S = 1.0
#: In place of the peer's membership: it is unknown, and the peer is marked all the same, in a CIB
#: that outranks the peer's, as this node serves on without it. Nothing is certain by that.
AHEAD = "ahead"
#: In place of the peer's membership, with a reason after it: the cluster did not answer.
ERROR = "error"


class Facts(NamedTuple):
    """What a leader sees of one device.

    Attributes:
        membership: the peer's, as it counts for this device (`quorum_overlap`).
        is_marked: the peer's replica is marked in this node's CIB.
        is_own_marked: so is this node's.
        is_promoting: a promotion of this node's replica is under way.
        goes_on: this node serves on without the peer (`fence_rules.goes_on_without`); asked only
            of one that is unknown, for a handler that `wants_ahead`.
    """

    membership: str
    is_marked: bool
    is_own_marked: bool
    is_promoting: bool
    goes_on: bool = False


def open_requests(
    requests: Mapping[str, str], *, is_alive: Callable[[str], bool]
) -> dict[str, str]:
    """Return the requests whose handler still waits for an answer.

    A handler removes its request before it gives its device's lock back; one that was killed
    leaves the request behind, and the lock is free. A mark for it could come after a demotion.

    The requests are tokens by device; `is_alive`: the process that has written a token runs.
    """
    return {device: token for device, token in requests.items() if is_alive(token)}


class Promotions(NamedTuple):
    """What a leader sees of the promotions of its node.

    Attributes:
        begun: by device, the token of a promotion that has not got its peers marked yet.
        asked: the devices whose handlers have asked for a mark of some peer.
        standbys: how many replicas of this node could be promoted and have lost their peer, those
            that have asked among them.
    """

    begun: Mapping[str, str]
    asked: frozenset[str]
    standbys: int


def waits_for_more(
    seen: Promotions, *, unchanged_s: float, is_alive: Callable[[str], bool]
) -> bool:
    """Whether a promotion's handler that leads waits for the requests of others.

    A change of the CIB ends the transition that is under way, and costs as much for one mark as for
    fifty: where a node is lost with many devices, their promotions begin together here, and ask one
    after the other as the processor gets to them. The first ones ask before the processes of the
    last are there. A standby without its peer may be one that nobody promotes, so it is waited for
    only while something happens.

    Args:
        seen: what is seen now.
        unchanged_s: for how long that has not changed, in seconds.
        is_alive: the process that has written a token runs.
    """
    if any(is_alive(token) for device, token in seen.begun.items() if device not in seen.asked):
        return True
    return seen.standbys > len(seen.asked) and unchanged_s < QUIET_S


def may_gather(waited_s: float, *, unchanged_s: float, usual_s: float, longest_s: float) -> bool:
    """Whether a leader may wait on for the requests of other promotions.

    Args:
        waited_s: for how long it has waited.
        unchanged_s: for how long no further one has begun or asked.
        usual_s: how long it waits for one of which nothing more is seen.
        longest_s: how long it waits while something happens.
    """
    return waited_s < usual_s or (unchanged_s < QUIET_S and waited_s < longest_s)


def answer_for(token: str, answer: str) -> str | None:
    """Return what a request was answered; None where the answer belongs to another request.

    An answer that is older than the request says what was true before the handler asked: the mark
    may have been cleared since, the quorum lost.

    `answer` is what stands in the answer's file, empty without one.
    """
    of, _, said = answer.partition(" ")
    return said if said and of == token else None


def answer_text(token: str, said: str) -> str:
    """Return the text of an answer, for `answer_for`."""
    return f"{token} {said}"


_KEEPING = ":keeps"
_AHEAD, _IS_AHEAD = ":ahead", ":is-ahead"


def keeping(token: str) -> str:
    """Return the token of a request for which a mark that is there is enough."""
    return token + _KEEPING


def ahead(token: str, last: str) -> str:
    """Return the token of a fence-peer handler whose peer may be marked before it is certain.

    `last` is what the same handler was answered before: it asks several times in a second for as
    long as the peer is unknown, and each change of the CIB costs the whole cluster.
    """
    return token + (_IS_AHEAD if last == AHEAD else _AHEAD)


def wants_ahead(token: str) -> bool:
    """Whether a request is one of `ahead`."""
    return token.endswith((_AHEAD, _IS_AHEAD))


def is_kept(token: str, seen: Facts) -> bool:
    """Whether a request that is not refused needs no change of the CIB.

    For the source of a resync: its peer has been marked since it was lost, and while it resyncs
    nobody but the source removes that mark. Each device of a node that comes back would change the
    CIB once, for nothing. A handler of fence-peer asks for no such thing: its peer's mark may have
    been removed a moment ago.

    Only of a member, whose CIB has the mark as well: that of a node that was fenced is to be
    outranked by the change (`fence_rules.admin_epoch_rise`).
    """
    return (
        token.endswith(_KEEPING)
        and seen.is_marked
        and not fence_rules.admin_epoch_rise(seen.membership)
    )


def refusal(token: str, seen: Facts) -> str | None:
    """Return the answer to a handler whose peer must not be marked; None: it is to be marked.

    A mark that is there is enough before the peer is certain only if this very handler has set it
    so: one that was set while the peer still was a member may not outrank the peer's CIB. Once the
    peer is certain it is marked anew.

    `token` is that of the handler's request.
    """
    if not fence_rules.is_certain(seen.membership):
        if seen.membership != "unknown" or not (seen.goes_on and wants_ahead(token)):
            return seen.membership
        return AHEAD if seen.is_marked and token.endswith(_IS_AHEAD) else None
    if seen.is_own_marked and seen.is_promoting:
        # The order to promote this replica is older than its mark: a node that joined since has
        # brought the mark along.
        return OWN_MARKED
    return None


def rise(before: Mapping[str, Facts]) -> int:
    """Return by how much the change that sets these marks raises the CIB's `admin_epoch`."""
    return max(
        (fence_rules.admin_epoch_rise(seen.membership) for seen in before.values()), default=0
    )


def confirmation(after: Facts, *, raised: int, is_same_membership: bool = True) -> str:
    """Return the answer to a handler whose peer was marked, once the mark has been read back.

    Args:
        after: what is seen of the device after the change.
        raised: by how much the change has raised the CIB's `admin_epoch` at least.
        is_same_membership: Corosync's is the one that was asked about before the change. If not, a
            node that was in that one, and is in this one no more, may have given its own CIB the
            same number.
    """
    rise = fence_rules.admin_epoch_rise(after.membership)
    if not after.is_marked or raised < rise or (rise and not is_same_membership):
        return "unknown"
    return AHEAD if after.membership == "unknown" and after.goes_on else after.membership
