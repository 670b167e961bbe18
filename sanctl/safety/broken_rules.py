# SPDX-License-Identifier: GPL-2.0-or-later
"""Every broken variant of the safety model, one rule each, and the counterexample expected of it.

A rule that can be broken without a counterexample is not explored, or not needed. All other rules
are kept, so that the counterexample is due to the broken one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from sanctl.model.drbd import ResourceState
from sanctl.plan.failover import fence_rules
from sanctl.safety.drbd import begin_unmarked, lose_disk
from sanctl.safety.packed import PackedWorlds
from sanctl.safety.rules import SHIPPED, MembershipFacts, Rules
from sanctl.safety.search import Exploration, Progress, explore_machine
from sanctl.safety.transitions import events
from sanctl.safety.world import EPOCH_GAP, Event, World, initial_world


class BrokenRule(NamedTuple):
    """A rule, and the model without it.

    Attributes:
        name: its name for --rules.
        rule: the rule that is broken, one sentence.
        rules: all rules, with this one broken.
        nodes: the number of nodes with which a counterexample is found.
        has_device: a quorum device votes, too.
        faults: the number of faults that it takes.
        finds: how the sentence of the counterexample begins.
        steps: the number of events of the shortest way there.
        begins: the first events, where an exploration from the initial world takes too long.
        ends: a dead end is what is found.
        gap: epochs of CIBs that are so far apart, or farther, are not told apart.
        lost_disk: the replica whose disk DRBD has dropped at first.
        is_unmarked: a resync has begun at first whose target is not marked.
    """

    name: str
    rule: str
    rules: Rules
    nodes: int
    faults: int
    finds: str
    steps: int
    begins: tuple[str, ...] = ()
    ends: bool = False
    has_device: bool = False
    gap: int = EPOCH_GAP
    lost_disk: int | None = None
    is_unmarked: bool = False


#: Of a replica whose disk is lost at first (0: the active one's): the events that mark it. Before
#: them writes can be lost: the next monitor is some seconds away.
MARKED_DISKLESS = {
    0: ("a sees that it has no disk", "a marks a, which has no disk"),
    1: ("a sees that its peer has no disk", "a marks b, which has no disk"),
}
_TO_A_RESYNC = ("the replica on b stops", "the replica on b starts", "DRBD connects")
#: Of a resync that began without a mark: the events that mark its target. Before them writes can be
#: lost, as above.
MARKED_TARGET = ("a sees that its target is not marked", "a marks b, a target")
#: By the source's role: the events after which the mark is written when the resync has ended.
LATE_TARGET = {
    "active": (MARKED_TARGET[0], "the resync ends on b", "a learns that its peer is UpToDate"),
    "standby": (
        "a is demoted",
        MARKED_TARGET[0],
        "the resync ends on b",
        "a learns that its peer is UpToDate",
    ),
}


def explore_cluster(
    rules: Rules,
    nodes: int,
    faults: int,
    *,
    has_device: bool = False,
    lost_disk: int | None = None,
    is_unmarked: bool = False,
    begins: tuple[str, ...] = (),
    ends: bool = True,
    gap: int = EPOCH_GAP,
    limit: int = 100_000_000,
    progress: Progress | None = None,
) -> Exploration[World]:
    """Explore a cluster of two or three nodes.

    Args:
        rules: what is decided, and what is relied on.
        nodes: with two nodes heartbeat, with three node-majority.
        has_device: of two nodes: node-majority with a quorum device.
        faults: how many faults may happen.
        lost_disk: the replica whose disk DRBD has dropped at first; 0 is the active one.
        is_unmarked: a resync of b, which was stopped and started, has begun without a mark.
        begins: the events before the exploration, by name.
        ends: look for dead ends, too.
        gap: epochs of CIBs that are so far apart, or farther, are not told apart.
        limit: how many states are too many.
        progress: called when all states of one more depth are known.
    """
    first, possible = initial_world(nodes, faults, has_device=has_device), events(rules)
    if lost_disk is not None:
        first = lose_disk(first, lost_disk)
    if is_unmarked:
        first = begin_unmarked(_after(first, _TO_A_RESYNC, possible), 0)
    first = _after(first, begins, possible)
    machine = PackedWorlds(rules, gap=gap)
    return explore_machine(
        machine, machine.number(first), ends=ends, limit=limit, progress=progress
    )


def _after(
    world: World, names: tuple[str, ...], possible: Callable[[World], Iterator[Event]]
) -> World:
    for event in names:
        world = next(after for name, after in possible(world) if name == event)
    return world


def _silence_is_absence(seen: MembershipFacts) -> str:
    if not seen.is_quorate:
        return "unknown"
    return "member" if seen.is_member else "fenced"


def _anybody(state: ResourceState | None) -> int | None:
    return None if state is None else 1


BROKEN_RULES = (
    BrokenRule(
        "no-freeze",
        "A Primary that loses its peer freezes until its handler has answered.",
        SHIPPED._replace(freezes=False),
        nodes=3,
        faults=1,
        finds="3: a serves alone",
        steps=2,
    ),
    BrokenRule(
        "gives-up",
        "The handler of a frozen Primary does not give up after a long wait.",
        SHIPPED._replace(stays_frozen=False),
        nodes=3,
        faults=1,
        finds="3: a serves alone",
        steps=3,
    ),
    BrokenRule(
        "no-quorum-asked",
        "Without quorum nothing is certain, neither before marking nor after.",
        SHIPPED._replace(asks_before=False, asks_after=False),
        nodes=3,
        faults=1,
        finds="3: a serves alone",
        steps=5,
    ),
    BrokenRule(
        "not-asked-after",
        "The handler asks again after marking: quorum may have been lost in between.",
        SHIPPED._replace(asks_after=False),
        nodes=3,
        faults=1,
        finds="3: a serves alone",
        steps=5,
    ),
    BrokenRule(
        "silence-is-absence",
        "A peer that is no member is unknown until it is known to be fenced.",
        SHIPPED._replace(peer_membership=_silence_is_absence),
        nodes=2,
        faults=1,
        finds="4: the replicas have diverged",
        steps=13,
        begins=(
            "a loses all networks",
            "corosync forms b",
            "DRBD on a notices that the link is gone",
        ),
    ),
    BrokenRule(
        "fencing-assumed",
        "A node counts as fenced only when its power switch has said so.",
        SHIPPED._replace(confirms=False),
        nodes=2,
        faults=1,
        finds="1: both nodes are Primary",
        steps=9,
    ),
    BrokenRule(
        "standby-clears",
        "Only a Primary in sync clears a mark, never the standby its own.",
        SHIPPED._replace(clears_own=True),
        nodes=3,
        faults=1,
        finds="3: a serves alone",
        steps=6,
    ),
    BrokenRule(
        "no-lock",
        "Clearing and marking exclude each other by a lock.",
        SHIPPED._replace(locks=False),
        nodes=2,
        faults=1,
        finds="3: a serves alone",
        steps=15,
        begins=(
            "the replica on b stops",
            "the replica on b starts",
            "DRBD connects",
            "the resync handler of a asks: certain",
            "the resync handler of a marks b",
            "the resync handler of a asks again: certain, the resync begins",
            "the resync ends on b",
            "a learns that its peer is UpToDate",
            "the sync network is cut",
        ),
    ),
    BrokenRule(
        "mark-ignored",
        "No marked replica is promoted.",
        SHIPPED._replace(heeds_marks=False, heeds_own=False),
        nodes=2,
        faults=1,
        finds="4: the replicas have diverged",
        steps=12,
        begins=(
            "the sync network is cut",
            "DRBD on a notices that the link is gone",
        ),
    ),
    BrokenRule(
        "promotes-outdated",
        "No Outdated or Inconsistent replica is promoted (promotion score, and DRBD itself).",
        SHIPPED._replace(score=_anybody, drbd_refuses=False),
        nodes=3,
        faults=0,
        finds="4: the replicas have diverged",
        steps=8,
    ),
    BrokenRule(
        "no-wait-for-all",
        "With two nodes, one that has started waits until it has seen the other.",
        SHIPPED._replace(waits_for_all=False, checks_overlap=False),
        nodes=2,
        faults=1,
        finds="4: the replicas have diverged",
        steps=14,
        begins=(
            "a loses all networks",
            "DRBD on a notices that the link is gone",
        ),
    ),
    BrokenRule(
        "untried-trusted",
        "With two nodes, a replica that has connected to no peer since it was started is not "
        "promoted because the peer is fenced.",
        SHIPPED._replace(checks_overlap=False),
        nodes=2,
        faults=2,
        finds="4: the replicas have diverged",
        steps=17,
        begins=(
            "b loses power",
            "corosync forms a",
            "a fences b",
            "DRBD on a notices that the link is gone",
            "the handler of a asks: certain",
            "the handler of a marks b",
        ),
    ),
    BrokenRule(
        "untried-trusted-device",
        "With a quorum device, which has a vote and no CIB, it is not promoted for that either.",
        SHIPPED._replace(checks_overlap=False),
        nodes=2,
        faults=2,
        finds="4: the replicas have diverged",
        steps=17,
        begins=(
            "b loses power",
            "DRBD on a notices that the link is gone",
            "the handler of a asks: certain",
            "the handler of a marks b",
            "the quorum device votes for a",
            "a loses all networks",
            "a fences b",
            "b boots",
            "the quorum device votes for b",
        ),
        has_device=True,
    ),
    BrokenRule(
        "own-mark-ignored",
        "The handler of a promotion does not begin while its own replica is marked: the order may "
        "be older than the mark.",
        SHIPPED._replace(heeds_own=False),
        nodes=2,
        faults=2,
        finds="4: the replicas have diverged",
        steps=18,
        begins=(
            "b loses power",
            "DRBD on a notices that the link is gone",
            "the handler of a asks: certain",
            "the handler of a marks b",
            "a fences b",
            "b boots",
            "the handler of a asks again: certain, and returns",
        ),
    ),
    BrokenRule(
        "stale-roles",
        "The cluster promotes only when it knows the other demoted or fenced, by no stale CIB.",
        SHIPPED._replace(demotes_first=False),
        nodes=2,
        faults=1,
        finds="1: both nodes are Primary",
        steps=7,
    ),
    BrokenRule(
        "promotes-first",
        "No replica is promoted before the node that served is fenced, even with quorum and that "
        "node outside of it: it serves reads until it notices.",
        SHIPPED._replace(promotes_unfenced="any", peer_membership=_silence_is_absence),
        nodes=3,
        faults=1,
        finds="1: both nodes serve",
        steps=8,
    ),
    BrokenRule(
        "promotes-after-lease",
        "Nor once that node has noticed and is frozen, as after a lease: what is frozen may go on.",
        SHIPPED._replace(promotes_unfenced="frozen", peer_membership=_silence_is_absence),
        nodes=3,
        faults=1,
        finds="1: both nodes serve",
        steps=13,
    ),
    BrokenRule(
        "orders-first",
        "Nor is its promotion ordered then, for the handler to wait for the fencing: the node may "
        "be back, and a member is certain enough.",
        SHIPPED._replace(promotes_unfenced="any"),
        nodes=3,
        faults=1,
        finds="1: both nodes serve",
        steps=10,
    ),
    BrokenRule(
        "clears-without-quorum",
        "Marks are cleared only with quorum.",
        SHIPPED._replace(clears_with_quorum=False, outranks=False, reads_back=False),
        nodes=2,
        faults=1,
        finds="3: b serves alone",
        steps=20,
        begins=(
            "a loses all networks",
            "corosync forms b",
            "DRBD on a notices that the link is gone",
            "the sync network is back",
            "the handler of a asks: certain",
        ),
        gap=5,
    ),
    BrokenRule(
        "target-not-marked",
        "The target of a resync is marked before the resync begins.",
        SHIPPED._replace(marks_targets=False),
        nodes=3,
        faults=1,
        finds="3: a serves alone",
        steps=7,
    ),
    BrokenRule(
        "fenced-target",
        "A resync begins to a member only: a peer that is connected and no member reads another "
        "CIB. Here the quorum device changes its mind, too, and nodes start without fencing.",
        SHIPPED._replace(
            may_begin_resync=fence_rules.is_certain,
            is_device_steady=False,
            fences_before_start=False,
        ),
        nodes=2,
        faults=1,
        finds="4: the replicas have diverged",
        steps=29,
        begins=(
            "the heartbeats of a are cut",
            "corosync forms a",
            "corosync forms b",
            "the quorum device votes for a",
            "the replica on b stops",
            "a fences b",
            "b boots",
            "the quorum device votes for b",
            "the replica on b starts",
            "the quorum device votes for a",
            "DRBD connects",
            "the resync handler of a asks: certain",
            "the resync handler of a marks b",
            "the resync handler of a asks again: certain, the resync begins",
            "the quorum device votes for b",
            "the resync ends on b",
            "b fences a",
            "a boots",
            "the cluster orders the promotion of b",
        ),
        has_device=True,
    ),
    BrokenRule(
        "late-mark",
        "A Primary's handler marks only while its node is Primary; the mark is read back.",
        SHIPPED._replace(guards_marking=False, reads_back=False),
        nodes=2,
        faults=2,
        finds="3: b serves alone",
        steps=14,
        begins=(
            "the sync network is cut",
            "DRBD on a notices that the link is gone",
            "the handler of a asks: certain",
            "a is demoted",
            "the cluster orders the promotion of b",
            "the heartbeats of a are cut",
        ),
    ),
    BrokenRule(
        "equal-epochs",
        "The CIB in which a fenced peer is marked outranks what that peer wrote when alone.",
        SHIPPED._replace(outranks=False),
        nodes=2,
        faults=2,
        finds="4: the replicas have diverged",
        steps=23,
        begins=(
            "a loses all networks",
            "corosync forms b",
            "DRBD on a notices that the link is gone",
            "the handler of a asks: certain",
            "the handler of a marks b",
            "b fences a",
            "the heartbeats are back",
            "the cluster orders the promotion of b",
            "DRBD on b notices that the link is gone",
            "DRBD on b calls the handler",
            "the handler of b asks: certain",
            "the handler of b marks a",
            "the handler of b asks again: certain, and returns",
        ),
    ),
    BrokenRule(
        "marks-stay",
        "Where both replicas are marked, in contact and in sync, one node removes its peer's mark.",
        SHIPPED._replace(unmarks=False),
        nodes=3,
        faults=1,
        finds="no way leads from here",
        steps=12,
        begins=("b loses all networks",),
        ends=True,
    ),
    BrokenRule(
        "unmarks-itself",
        "The mark that goes then is the peer's, not the node's own.",
        SHIPPED._replace(unmarks_peer=False),
        nodes=2,
        faults=2,
        finds="3: b serves alone",
        steps=22,
        begins=(
            "a loses all networks",
            "corosync forms b",
            "DRBD on a notices that the link is gone",
            "the sync network is back",
            "the handler of a asks: certain",
            "the handler of a marks b",
            "b fences a",
            "the heartbeats are back",
            "a boots",
            "the cluster orders the promotion of b",
            "corosync forms a+b",
            "the replica on a starts",
            "DRBD on b notices that the link is gone",
            "DRBD connects",
            "b becomes Primary",
        ),
    ),
    BrokenRule(
        "starts-unfenced",
        "A replica is started only where the other node is a member, or was fenced since this one "
        "was started.",
        SHIPPED._replace(fences_before_start=False),
        nodes=2,
        has_device=True,
        faults=2,
        finds="4: the replicas have diverged",
        steps=24,
        begins=(
            "a loses power",
            "corosync forms b",
            "the quorum device votes for b",
            "b fences a",
            "a boots",
            "the quorum device votes for a",
            "the replica on a starts",
            "DRBD on b notices that the link is gone",
            "DRBD connects",
            "a loses all networks",
            "the quorum device votes for b",
            "DRBD on a notices that the link is gone",
            "the cluster orders the promotion of b",
            "DRBD on b notices that the link is gone",
            "DRBD on b calls the handler",
            "the handler of b asks: certain",
            "the handler of b marks a",
        ),
    ),
    BrokenRule(
        "withdraws",
        "A handler that is not certain any more leaves its mark: another handler may need it.",
        SHIPPED._replace(withdraws="any"),
        nodes=2,
        faults=1,
        finds="3: a serves alone",
        steps=28,
        begins=(
            "a is demoted",
            "the cluster orders the promotion of a",
            "the replica on b stops",
            "the replica on b starts",
            "DRBD on a calls the handler",
            "the handler of a asks: certain",
            "the handler of a marks b",
            "the handler of a asks again: certain, and returns",
            "DRBD connects",
            "a is demoted",
            "the cluster orders the promotion of a",
            "the replica on b stops",
            "the replica on b starts",
            "DRBD on a calls the handler",
        ),
    ),
    BrokenRule(
        "own-disk-unmarked",
        "A Primary whose disk was dropped marks its own replica while its peer has every write.",
        SHIPPED._replace(marks_own=False),
        nodes=3,
        faults=1,
        finds="2: a serves without",
        steps=12,
        begins=("a write of a misses its own disk", "b loses power"),
        lost_disk=0,
    ),
    BrokenRule(
        "peer-disk-unmarked",
        "A Primary marks a connected peer whose disk was dropped.",
        SHIPPED._replace(marks_diskless=False),
        nodes=3,
        faults=1,
        finds="2: b serves without",
        steps=11,
        begins=("a write of a misses the disk of b", "a loses power"),
        lost_disk=1,
    ),
    BrokenRule(
        "target-not-marked-later",
        "The monitor of the source of a resync marks a target that is not marked.",
        SHIPPED._replace(marks_later=False),
        nodes=3,
        faults=1,
        finds="3: a serves alone",
        steps=3,
        is_unmarked=True,
    ),
)
