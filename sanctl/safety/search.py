# SPDX-License-Identifier: GPL-2.0-or-later
"""Breadth-first search of any finite state machine: all states, or the shortest counterexample.

Independent of the machine that is explored. States are hashable values; a machine says which
follow.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Counterexample(NamedTuple, Generic[S]):
    """A state that breaks an invariant, and the shortest way there.

    Attributes:
        what: what is wrong with it, one sentence.
        steps: the names of the events from the first state on.
        states: the states, one more than steps.
    """

    what: str
    steps: tuple[str, ...]
    states: tuple[S, ...]


class Exploration(NamedTuple, Generic[S]):
    """The result of an exploration.

    Attributes:
        states: how many states were reached.
        transitions: how many transitions between them were tried.
        depth: how many events the farthest state is away.
        found: the first counterexample, None where there is none.
    """

    states: int
    transitions: int
    depth: int
    found: Counterexample[S] | None


def explore(
    first: S,
    events: Callable[[S], Iterable[tuple[str, S]]],
    violation: Callable[[S], str | None],
    is_goal: Callable[[S], bool] | None = None,
    *,
    key: Callable[[S], Hashable] = lambda state: state,
    limit: int = 5_000_000,
) -> Exploration[S]:
    """Visit every state that can be reached, nearest first, and stop at the first that is wrong.

    Where a goal is given, a state from which no way leads to a goal is wrong, too. Such dead ends
    are searched when all states are known, and the one nearest to the first state is reported.

    Args:
        first: where it begins.
        events: the events that are possible in a state, each with the state it leads to.
        violation: what is wrong with a state, None where nothing is.
        is_goal: whether a state is one that has to stay reachable.
        key: what two states that differ in nothing of interest have in common.
        limit: how many states are too many.

    Raises:
        OverflowError: there are more states than the limit.
    """
    number: dict[Hashable, int] = {key(first): 0}
    met: dict[S, int] = {first: 0}
    order: list[S] = [first]
    came: list[tuple[int, str]] = [(-1, "")]
    into: list[list[int]] = [[]]
    depths = [0]
    transitions = 0

    def found(at: int, what: str) -> Counterexample[S]:
        path = list(_back(came, at))[::-1]
        return Counterexample(
            what, tuple(came[step][1] for step in path[1:]), tuple(order[step] for step in path)
        )

    wrong = violation(first)
    if wrong:
        return Exploration(1, 0, 0, found(0, wrong))
    at = 0
    while at < len(order):
        for name, state in events(order[at]):
            transitions += 1
            # Most are come upon again and again: the key of each is made once.
            seen = met.get(state)
            if seen is None:
                same = key(state)
                seen = number.get(same)
                if seen is not None:
                    met[state] = seen
            if seen is None:
                if len(order) >= limit:
                    raise OverflowError(f"more than {limit} states")
                seen = met[state] = number[same] = len(order)
                order.append(state)
                came.append((at, name))
                depths.append(depths[at] + 1)
                into.append([])
                wrong = violation(state)
                if wrong:
                    return Exploration(len(order), transitions, depths[-1], found(seen, wrong))
            if is_goal is not None:
                into[seen].append(at)
        at += 1
    dead = None if is_goal is None else _dead_end(order, into, is_goal)
    return Exploration(
        len(order),
        transitions,
        depths[-1],
        None if dead is None else found(dead, "no way leads from here to a whole cluster"),
    )


def _back(came: list[tuple[int, str]], at: int) -> Iterator[int]:
    while at >= 0:
        yield at
        at = came[at][0]


def _dead_end(
    order: list[S],
    into: list[list[int]],
    is_goal: Callable[[S], bool],
) -> int | None:
    """Return the nearest state from which no goal can be reached."""
    leads = [is_goal(state) for state in order]
    todo = [at for at, good in enumerate(leads) if good]
    while todo:
        for before in into[todo.pop()]:
            if not leads[before]:
                leads[before] = True
                todo.append(before)
    return next((at for at, good in enumerate(leads) if not good), None)
