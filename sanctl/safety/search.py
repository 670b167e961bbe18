# SPDX-License-Identifier: GPL-2.0-or-later
"""Breadth-first search of any finite state machine: all states, or the shortest counterexample.

Independent of the machine that is explored. A machine numbers its states: what is kept of a state
that was reached is its number, its predecessor, and the transitions that leave it, each in an
array; some hundred bytes where a state as values would take thousands.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
S_co = TypeVar("S_co", bound=Hashable, covariant=True)


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


class Machine(Protocol[S_co]):
    """A state machine whose states are named by numbers below 2**64."""

    def successors(self, number: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the states that can follow, in the order of their events, and that may follow.

        The latter are explored as well, but no way to a goal leads over such a step.
        """

    def same(self, number: int) -> int:
        """Return one number for all states that differ in nothing of interest."""

    def violation(self, number: int) -> str | None:
        """Return what is wrong with a state, None where nothing is."""

    def is_goal(self, number: int) -> bool:
        """Whether a state is one that has to stay reachable."""

    def state(self, number: int) -> S_co:
        """Return the state of a number."""

    def named(self, number: int) -> Iterable[tuple[str, int]]:
        """Return the events that are possible in a state, each with the state it leads to."""


#: Told after each depth: the depth, and how many states and transitions there are so far.
Progress = Callable[[int, int, int], None]


def explore(
    first: S,
    events: Callable[[S], Iterable[tuple[str, S]]],
    violation: Callable[[S], str | None],
    is_goal: Callable[[S], bool] | None = None,
    *,
    key: Callable[[S], Hashable] = lambda state: state,
    is_doubtful: Callable[[str], bool] = lambda _name: False,
    limit: int = 5_000_000,
) -> Exploration[S]:
    """Explore a machine that is given as functions of its states, which are hashable values.

    Args:
        first: where it begins.
        events: the events that are possible in a state, each with the state it leads to.
        violation: what is wrong with a state, None where nothing is.
        is_goal: whether a state is one that has to stay reachable.
        key: what two states that differ in nothing of interest have in common.
        is_doubtful: of an event's name, whether it is one that no way to a goal may take.
        limit: how many states are too many.

    Raises:
        OverflowError: there are more states than the limit.
    """
    machine = _Values(events, violation, is_goal, key, is_doubtful)
    return explore_machine(machine, machine.number(first), ends=is_goal is not None, limit=limit)


def explore_machine(
    machine: Machine[S],
    first: int,
    *,
    ends: bool,
    limit: int,
    progress: Progress | None = None,
) -> Exploration[S]:
    """Visit every state that can be reached, nearest first, and stop at the first that is wrong.

    With `ends` a state from which no way leads to a goal is wrong, too. Such dead ends are searched
    when all states are known, and the one nearest to the first state is reported.

    Args:
        machine: what is explored.
        first: the state where it begins.
        ends: look for dead ends, too.
        limit: how many states are too many.
        progress: called when all states of one more depth are known.

    Raises:
        OverflowError: there are more states than the limit.
    """
    successors, same = machine.successors, machine.same
    index = {same(first): 0}
    order = array("Q", [first])
    came = array("I", [0])
    begins = array("Q", [0])
    targets = array("I")
    transitions = depth = 0

    def found(at: int, what: str) -> Counterexample[S]:
        path = [at]
        while at:
            at = came[at]
            path.append(at)
        return _counterexample(machine, what, [order[step] for step in reversed(path)])

    wrong = machine.violation(first)
    if wrong:
        return Exploration(1, 0, 0, found(0, wrong))
    at, level = 0, 1
    while at < len(order):
        if at == level:
            depth += 1
            level = len(order)
            if progress is not None:
                progress(depth, level, transitions)
        here = order[at]
        following, doubtful = successors(here)
        last = len(following)
        for step, number in enumerate(itertools.chain(following, doubtful)):
            if number == here:
                continue
            transitions += 1
            one = same(number)
            seen = index.get(one)
            if seen is None:
                seen = len(order)
                if seen >= limit:
                    raise OverflowError(f"more than {limit} states")
                index[one] = seen
                order.append(number)
                came.append(at)
                wrong = machine.violation(number)
                if wrong:
                    return Exploration(seen + 1, transitions, depth + 1, found(seen, wrong))
            if ends and step < last:
                targets.append(seen)
        if ends:
            begins.append(len(targets))
        at += 1
    if not ends:
        return Exploration(len(order), transitions, depth, None)
    index.clear()
    dead = _dead_end(bytearray(map(machine.is_goal, order)), begins, targets)
    return Exploration(
        len(order),
        transitions,
        depth,
        None if dead is None else found(dead, "no way leads from here to a whole cluster"),
    )


def _counterexample(machine: Machine[S], what: str, path: list[int]) -> Counterexample[S]:
    steps = [
        next(name for name, after in machine.named(path[step]) if after == path[step + 1])
        for step in range(len(path) - 1)
    ]
    return Counterexample(what, tuple(steps), tuple(machine.state(number) for number in path))


def _dead_end(leads: bytearray, begins: array[int], targets: array[int]) -> int | None:
    """Return the nearest state from which no goal can be reached.

    Goes through the states that are not known to lead to a goal, backwards and forwards in turn,
    until no more are known after a round than before: the transitions need not be turned round.

    Args:
        leads: of each state whether it is a goal; afterwards whether it leads to one.
        begins: where the transitions of each state begin in `targets`, and where the last ends.
        targets: the states that the transitions lead to.
    """
    rest = array("I", (at for at in range(len(leads)) if not leads[at]))
    before = len(rest) + 1
    while len(rest) < before:
        before = len(rest)
        still = array("I")
        for at in reversed(rest):
            if any(leads[after] for after in targets[begins[at] : begins[at + 1]]):
                leads[at] = 1
            else:
                still.append(at)
        rest = still
    return min(rest, default=None)


class _Values(Generic[S]):
    """A machine that is given as functions of its states; each is kept whole, under a number."""

    def __init__(
        self,
        events: Callable[[S], Iterable[tuple[str, S]]],
        violation: Callable[[S], str | None],
        is_goal: Callable[[S], bool] | None,
        key: Callable[[S], Hashable],
        is_doubtful: Callable[[str], bool],
    ) -> None:
        self._events, self._violation, self._is_goal, self._key = events, violation, is_goal, key
        self._is_doubtful = is_doubtful
        self._numbers: dict[S, int] = {}
        self._states: list[S] = []
        self._same: list[int] = []
        self._keys: dict[Hashable, int] = {}

    def number(self, state: S) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            # The same states are come upon again and again: the key of each is made once.
            self._same.append(self._keys.setdefault(self._key(state), number))
        return number

    def successors(self, number: int) -> tuple[Sequence[int], Sequence[int]]:
        split: tuple[list[int], list[int]] = ([], [])
        for name, after in self._events(self._states[number]):
            split[self._is_doubtful(name)].append(self.number(after))
        return split

    def same(self, number: int) -> int:
        return self._same[number]

    def violation(self, number: int) -> str | None:
        return self._violation(self._states[number])

    def is_goal(self, number: int) -> bool:
        return self._is_goal is not None and self._is_goal(self._states[number])

    def state(self, number: int) -> S:
        return self._states[number]

    def named(self, number: int) -> Iterable[tuple[str, int]]:
        return [(name, self.number(after)) for name, after in self._events(self._states[number])]
