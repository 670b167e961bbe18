# SPDX-License-Identifier: GPL-2.0-or-later
"""What becomes of a mark whose writer could not keep its quorum: the model looks closer.

A handler marks its peer, asks again, and is not certain any more: it has lost quorum, or the peer
is unknown now. It does not let DRBD go on; its mark stays in its copy of the CIB, and where that is
the newest when the nodes meet, it is everybody's. No node serves by such a mark, but a replica that
has every write may not be promoted as long as it is there.

Two things are shown of it: nothing that the model forbids comes of it, and once power and networks
are whole, the cluster by itself takes it off, without a node being fenced or booted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from sanctl.safety.rules import Rules
from sanctl.safety.same_worlds import (
    NEARER,
    STILL_FAR,
    canonical,
    in_spaced_worlds,
    is_doubtful,
)
from sanctl.safety.search import Exploration, explore
from sanctl.safety.transitions import events
from sanctl.safety.world import (
    NAMES,
    REPLICAS,
    Event,
    World,
    broken_invariant,
    initial_world,
    is_whole,
)

# Events that end in, or begin with, a node that is off.
_BY_POWER = ("loses power", "boots", "fences", "is fenced", "rebooting", "begin without the other")


class LoneMarks(NamedTuple):
    """What was found of lone marks.

    Attributes:
        everybodys: in how many states such a mark is in the CIB of every node.
        exploration: of all states, for what the model forbids.
        ends: of the states with such a mark, power and networks whole: how they end.
    """

    everybodys: int
    exploration: Exploration[World]
    ends: Exploration[World | None]


def explore_lone_marks(
    rules: Rules, nodes: int, faults: int, *, has_device: bool = False
) -> LoneMarks:
    """Explore a cluster, and note what becomes of lone marks."""
    possible = in_spaced_worlds(with_lone_marks(events(rules)))
    everybodys: list[World] = []
    repaired: dict[World, None] = {}

    def look(world: World) -> str | None:
        if world.lone:
            if all(node.marks & world.lone == world.lone for node in world.nodes):
                everybodys.append(world)
            is_repaired = world.is_synced and not world.apart and not world.unreached
            if is_repaired and all(node.is_up for node in world.nodes):
                repaired[canonical(world._replace(faults=0))] = None
        return broken_invariant(world)

    first = initial_world(nodes, faults, has_device=has_device)
    exploration = explore(first, possible, look, is_whole, key=canonical, is_doubtful=is_doubtful)

    def quiet(world: World | None) -> Iterator[tuple[str, World | None]]:
        if world is None:
            yield from (("a lone mark, all repaired", each) for each in repaired)
            return
        for name, after in possible(world):
            if not any(word in name for word in _BY_POWER):
                yield name, after

    ends = explore(
        None,
        quiet,
        lambda world: None if world is None else broken_invariant(world),
        lambda world: world is not None and is_whole(world),
        key=lambda world: None if world is None else canonical(world),
        is_doubtful=is_doubtful,
    )
    return LoneMarks(len(everybodys), exploration, ends)


def with_lone_marks(
    possible: Callable[[World], Iterator[Event]],
) -> Callable[[World], Iterator[Event]]:
    """Return the same events, with a note of the marks that their writers did not confirm."""

    def noted(world: World) -> Iterator[Event]:
        for name, after in possible(world):
            yield name, after._replace(lone=_lone(world, name, after))

    return noted


def _lone(world: World, event: str, after: World) -> int:
    lone = world.lone
    for i in REPLICAS:
        peer = 1 << (1 - i)
        said = event.removesuffix(NEARER).removesuffix(STILL_FAR)
        if not said.startswith(f"the handler of {NAMES[i]} "):
            continue
        if said.endswith(("not certain", "hears no answer")):
            lone |= peer
        elif said.endswith("and returns"):
            lone &= ~peer
    held = 0
    for node in after.nodes:
        held |= node.marks
    return lone & held
