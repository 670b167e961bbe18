# SPDX-License-Identifier: GPL-2.0-or-later
"""Which worlds of the safety model are one, and what is not certain of a world that is several.

Two worlds are one where no event and no invariant tells them apart: a world and its mirror image,
and worlds whose CIBs differ in how old all are together. Besides, how far apart CIBs are that are
far apart is not told apart, though it may matter, as is said at `spaced`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache

from sanctl.safety.world import Event, Node, World

#: Epochs of CIBs that are so far apart, or farther, are not told apart: see `spaced`.
EPOCH_GAP = 2
#: How the names of events end that a state allows in some of the worlds that it stands for alone:
#: what comes of them is explored, and no way back to a whole cluster takes one.
DOUBTFUL = " (maybe)"
#: Of an event that raises a CIB which is behind, by how much is not known: the two that it may be.
STILL_FAR = f", far behind a newer CIB{DOUBTFUL}"
NEARER = f", not so far behind a newer CIB{DOUBTFUL}"


def is_doubtful(event: str) -> bool:
    """Whether an event is one that not all worlds allow which a state stands for."""
    return event.endswith(DOUBTFUL)


def canonical(world: World) -> World:
    """Return the one world that stands for all that differ only in what does not matter.

    That is how old all CIBs are together, and how far apart those are that are far apart
    (`spaced`), and which node is called a.
    """
    world = with_spaced_epochs(world)
    a, b = world.replicas
    if a == b:
        return min(world, mirrored(world))
    return world if a < b else mirrored(world)


def spaced(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the nodes with epochs from 0 on, none more than EPOCH_GAP above the next lower one.

    Epochs are compared, raised by one, and raised above all others. So a number that is added to
    all of them changes nothing; and how far one is above the next lower one, if EPOCH_GAP or more,
    matters only where the lower one is raised by one: then both is explored, that the gap was just
    that and is less now, and that it still is as much (`apart_still`).
    """
    gap = EPOCH_GAP
    epochs = sorted({node.epoch for node in nodes})
    spaces = [epochs[0], *(high - low for low, high in itertools.pairwise(epochs))]
    if not spaces[0] and max(spaces) <= gap:
        return nodes
    ranks = itertools.accumulate((min(space, gap) for space in spaces[1:]), initial=0)
    new = dict(zip(epochs, ranks, strict=True))
    return tuple(node._replace(epoch=new[node.epoch]) for node in nodes)


def with_spaced_epochs(world: World) -> World:
    """Return the same world with its nodes `spaced`."""
    nodes = spaced(world.nodes)
    return world if nodes is world.nodes else world._replace(nodes=nodes)


def in_spaced_worlds(
    possible: Callable[[World], Iterator[Event]],
) -> Callable[[World], Iterator[Event]]:
    """Return the same events, each with a world whose epochs are `spaced`.

    For who keeps worlds as they are reached, and takes those for one that differ in distances
    alone. Of a greater distance than EPOCH_GAP `apart_still` would not see that it may be that.
    """

    def spaced_after(world: World) -> Iterator[Event]:
        for name, after in possible(world):
            yield name, with_spaced_epochs(after)

    return spaced_after


def apart_still(before: World, after: World) -> World | None:
    """Return the other world that an event may lead to which raises a CIB that is far behind.

    In `after` the distance to the next newer CIB is one less than EPOCH_GAP. It was EPOCH_GAP or
    more, so it may be as much as before. None where the event raises no such CIB.
    """
    if after.nodes is before.nodes:
        return None
    epochs = [node.epoch for node in before.nodes]
    for i, node in enumerate(after.nodes):
        if node.epoch == epochs[i]:
            continue
        members = [j for j in range(len(epochs)) if node.view >> j & 1]
        top = max(epochs[j] for j in members)
        newer = [epoch for epoch in epochs if epoch > top]
        if node.epoch != top + 1 or not newer or min(newer) - top < EPOCH_GAP:
            return None
        return after._replace(
            nodes=tuple(
                each if j in members or epochs[j] <= top else each._replace(epoch=each.epoch + 1)
                for j, each in enumerate(after.nodes)
            )
        )
    return None


def mirrored(world: World) -> World:
    """Return the world with its two nodes exchanged."""
    a, b, *w = (_mirrored_node(node) for node in world.nodes)
    return World(
        replicas=(world.replicas[1], world.replicas[0]),
        nodes=(b, a, *w),
        is_synced=world.is_synced,
        apart=_MIRRORED[world.apart],
        ahead=_OTHER[world.ahead],
        faults=world.faults,
        lone=_MIRRORED[world.lone],
        unreached=None if world.unreached is None else _MIRRORED[world.unreached],
        favored=world.favored if world.unreached is None else 1 - world.favored,
    )


_MIRRORED = (0, 2, 1, 3, 4, 6, 5, 7)  # masks with the bits of a and b exchanged
_OTHER = {"=": "=", "!": "!", "a": "b", "b": "a"}


@cache
def _mirrored_node(node: Node) -> Node:
    return node._replace(
        view=_MIRRORED[node.view],
        marks=_MIRRORED[node.marks],
        active=_MIRRORED[node.active],
        primary=_MIRRORED[node.primary],
        not_down=_MIRRORED[node.not_down],
        fenced=_MIRRORED[node.fenced],
    )
