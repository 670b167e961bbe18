# SPDX-License-Identifier: GPL-2.0-or-later
"""A mark of another device in the same CIB: what a node that is cut off may not do to it.

The model of one device, node-majority with three nodes, and beside it one mark of a second device,
whose replicas are on `b` and `w` and whose Primary is on `b`: with quorum and `w` as a member `b`
marks the replica on `w` there, and reads that back. From then on that Primary may have gone on
alone; so whenever `w` is in a partition with quorum, the mark is in its CIB.

Devices share the CIB and its version. What a node that is cut off writes there for one device can
make its CIB the newest, and that is everybody's when the nodes meet.
"""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.safety.cluster import write_mark
from sanctl.safety.rules import Rules
from sanctl.safety.same_worlds import (
    STILL_FAR,
    apart_still,
    in_spaced_worlds,
    with_spaced_epochs,
)
from sanctl.safety.search import Exploration, explore
from sanctl.safety.transitions import events
from sanctl.safety.world import Event, World, initial_world

_B, _W = 1, 2
# The mark of the other device's replica on w: a bit of Node.marks, and of World.lone, which is not
# used otherwise here, once it has been read back.
_MARK = 1 << _W


def explore_with_other_device(
    rules: Rules, faults: int, *, begins: tuple[str, ...] = ()
) -> Exploration[World]:
    """Explore three nodes and one mark of another device, for what becomes of that mark.

    Args:
        rules: what is decided, and what is relied on.
        faults: how many faults may happen.
        begins: the events before the exploration, by name.
    """
    of_device = events(rules)

    def possible(world: World) -> Iterator[Event]:
        yield from of_device(world)
        if not world.lone and _may_mark(world):
            marked = write_mark(world, _B, _W, is_set=True, rules=rules)
            if _may_mark(marked):
                name = "b marks w for another device, and reads it back"
                yield name, marked._replace(lone=_MARK)
                apart = apart_still(world, marked)
                if apart is not None:
                    yield name + STILL_FAR, apart._replace(lone=_MARK)

    first = initial_world(3, faults)
    for event in begins:
        first = next(world for name, world in possible(first) if name == event)
    # No mirror image: a's part and b's are not the same here.
    return explore(first, in_spaced_worlds(possible), _violation, key=with_spaced_epochs)


def _may_mark(world: World) -> bool:
    return world.is_quorate(_B) and bool(world.nodes[_B].view >> _W & 1)


def _violation(world: World) -> str | None:
    there = world.nodes[_W]
    is_formed = world.is_quorate(_W) and there.view == world.reach(_W)
    if world.lone and is_formed and not there.marks & _MARK:
        return "a mark of another device is lost"
    return None
