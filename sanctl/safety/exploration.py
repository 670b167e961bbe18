# SPDX-License-Identifier: GPL-2.0-or-later
"""Explores one device on a cluster: with all rules or a broken one, from the start or later on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from sanctl.safety.drbd import begin_unmarked, lose_disk
from sanctl.safety.packed import PackedWorlds
from sanctl.safety.rules import Rules
from sanctl.safety.search import Exploration, Progress, explore_machine
from sanctl.safety.transitions import events
from sanctl.safety.world import Event, World, initial_world


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
        limit: how many states are too many.
        progress: called when all states of one more depth are known.
    """
    first, possible = initial_world(nodes, faults, has_device=has_device), events(rules)
    if lost_disk is not None:
        first = lose_disk(first, lost_disk)
    if is_unmarked:
        first = begin_unmarked(_after(first, _TO_A_RESYNC, possible), 0)
    first = _after(first, begins, possible)
    machine = PackedWorlds(rules)
    return explore_machine(
        machine, machine.number(first), ends=ends, limit=limit, progress=progress
    )


def _after(
    world: World, names: tuple[str, ...], possible: Callable[[World], Iterator[Event]]
) -> World:
    for event in names:
        world = next(after for name, after in possible(world) if name == event)
    return world
