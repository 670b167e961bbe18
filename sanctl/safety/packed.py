# SPDX-License-Identifier: GPL-2.0-or-later
"""The safety model's worlds as numbers, and what follows them from tables.

A world has two halves: the data (the replicas, their link, which generation is the newer) and the
votes (the nodes with their CIBs, the heartbeats, the quorum device, the faults that are left). Each
half that occurs is kept once, and a world is the numbers of its two halves. There are far fewer
halves than worlds.

The events are those of sanctl/safety/transitions.py. What they do to a half is
noted the first time and looked up afterwards:

* What may happen to the nodes depends on the votes, and on whether the sync network works.
* The death of a handler depends on the data, and on whether there are faults left.
* What may happen to a replica depends on the data, and on what the votes tell it: `_told`.
* What an event makes of the other half depends on that half and on the event's name.

No world is left out by that, and none is added: tests/unit/safety/test_safety.py compares with the
events alone. In the course of each exploration, too, the events are asked about one world of
`check_every`, and the exploration ends with an error where the tables say anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sanctl.safety.cluster import is_start_noted, write_mark
from sanctl.safety.rules import SHIPPED, Rules
from sanctl.safety.same_worlds import EPOCH_GAP, is_doubtful, mirrored, spaced
from sanctl.safety.transitions import (
    events,
    events_of_death,
    events_of_nodes,
    events_of_replica,
)
from sanctl.safety.world import REPLICAS, Event, Node, Replica, World, broken_invariant, is_whole

_Data = tuple[tuple[Replica, Replica], bool, str]
_Votes = tuple[tuple[Node, ...], int, int, int, "int | None", int]
#: The names of events, and what each makes of the data (of nodes: of the votes).
_Moves = tuple[tuple[int, int], ...]
#: Those of the events that are certain, and of those that are not (`DOUBTFUL`).
_Split = tuple[_Moves, _Moves]

_BITS = 32
_VOTES = (1 << _BITS) - 1
#: In the names of those events of nodes that change the data, too.
_TOUCHES_DATA = ("power", "fences", "networks", "sync network")


class PackedWorlds:
    """The safety model as a machine whose states are numbers (`sanctl.safety.search.Machine`)."""

    def __init__(self, rules: Rules, *, check_every: int = 64) -> None:
        """Begin with empty tables.

        Args:
            rules: what is decided, and what is relied on.
            check_every: compare the tables with the events in one world of so many.
        """
        self._rules = rules
        self._events = events(rules)
        self._check_every = check_every
        self._names: dict[str, int] = {}
        # The halves, and of each: its mirror image, and what an event of that name makes of it.
        self._data_numbers: dict[_Data, int] = {}
        self._datas: list[_Data] = []
        self._mirrored_data: list[int] = []
        self._data_after: list[dict[int, int]] = []
        self._votes_numbers: dict[_Votes, int] = {}
        self._voteses: list[_Votes] = []
        self._mirrored_votes: list[int] = []
        self._votes_after: list[dict[int, int]] = []
        # Of the votes: the marks, what each replica is told, and whether there are faults left.
        self._values: dict[object, int] = {}
        self._marks: list[int] = []
        self._told: list[tuple[int, int]] = []
        # What may happen: to nodes by the votes and the sync network; deaths of handlers by the
        # data; to a replica by the data and what it is told.
        self._of_nodes: dict[int, tuple[tuple[int, ...], _Moves, _Moves]] = {}
        self._of_death: dict[int, _Moves] = {}
        self._of_replica: dict[int, _Split] = {}
        self._wrong: dict[int, str | None] = {}

    def number(self, world: World) -> int:
        """Return the number of a world."""
        return self._number_data(world) << _BITS | self._number_votes(world)

    def state(self, number: int) -> World:
        """Return the world of a number."""
        replicas, is_synced, ahead = self._datas[number >> _BITS]
        nodes, apart, faults, lone, unreached, favored = self._voteses[number & _VOTES]
        return World(replicas, nodes, is_synced, apart, ahead, faults, lone, unreached, favored)

    def same(self, number: int) -> int:
        """Return one number for a world and its mirror image."""
        data = self._mirrored_data[number >> _BITS]
        return min(number, data << _BITS | self._mirrored_votes[number & _VOTES])

    def violation(self, number: int) -> str | None:
        """Return which of the invariants 1 to 4 is broken: of the votes only the marks count."""
        seen = number ^ (number & _VOTES) | self._marks[number & _VOTES]
        if seen not in self._wrong:
            self._wrong[seen] = broken_invariant(
                self.state(number), may_freeze_beside=bool(self._rules.promotes_unfenced)
            )
        return self._wrong[seen]

    def is_goal(self, number: int) -> bool:
        """Whether the cluster is whole."""
        return is_whole(self.state(number))

    def named(self, number: int) -> Iterable[tuple[str, int]]:
        """Return the events that are possible, each with the world it leads to."""
        return [(name, self.number(after)) for name, after in self._events(self.state(number))]

    def successors(self, number: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the worlds that can follow, and the world itself for what changes nothing."""
        try:
            following = self._look_up(number)
        except KeyError:
            self._note(number)
            following = self._look_up(number)
        if (number ^ number >> _BITS) % self._check_every == 0:
            seen = [*self.named(number)]
            for doubtful, those in enumerate(following):
                known = sorted(after for after in those if after != number)
                if known == sorted(after for name, after in seen if is_doubtful(name) == doubtful):
                    continue
                raise AssertionError("the tables of sanctl/safety/packed.py leave out or add")
        return following

    def _look_up(self, number: int) -> tuple[Sequence[int], Sequence[int]]:
        data, votes = number >> _BITS, number & _VOTES
        base = number ^ votes
        plain, touching, of_nodes = self._of_nodes[votes << 1 | self._datas[data][1]]
        data_after, votes_after = self._data_after[data], self._votes_after[votes]
        following = [base | after for after in plain]
        following += [data_after[name] << _BITS | after for name, after in touching]
        moves = self._of_death[data] if self._voteses[votes][2] else ()
        told_a, told_b = self._told[votes]
        (of_a, maybe_a), (of_b, maybe_b) = (
            self._of_replica[base | told_a],
            self._of_replica[base | told_b],
        )
        moves += of_a + of_b
        following += [after << _BITS | votes_after[name] for name, after in moves]
        doubtful = [data_after[name] << _BITS | after for name, after in of_nodes]
        if maybe_a or maybe_b:
            moves = maybe_a + maybe_b
            doubtful += [after << _BITS | votes_after[name] for name, after in moves]
        return following, doubtful

    def _note(self, number: int) -> None:
        """Ask the events what follows a world, as far as the tables lack it."""
        data, votes = number >> _BITS, number & _VOTES
        base = number ^ votes
        world = self.state(number)
        data_after, votes_after = self._data_after[data], self._votes_after[votes]
        of_nodes = votes << 1 | world.is_synced
        known = self._of_nodes.get(of_nodes)
        if known is None or any(name not in data_after for name, _ in known[1] + known[2]):
            seen = [*self._seen(number, world, events_of_nodes(world, self._rules))]
            touching = {name for text, name, _, _ in seen if _touches_data(text)}
            self._of_nodes[of_nodes] = (
                tuple(after for _, name, _, after in seen if name not in touching),
                *_split((text, name, after) for text, name, _, after in seen if name in touching),
            )
            data_after |= {name: after for _, name, after, _ in seen if name in touching}
        if world.faults and self._lacks(self._of_death.get(data), votes_after):
            self._of_death[data], _ = self._moves(number, world, events_of_death(world))
        for i in REPLICAS:
            told = base | self._told[votes][i]
            certain, doubtful = self._of_replica.get(told, (None, ()))
            if self._lacks(certain, votes_after) or self._lacks(doubtful, votes_after):
                following = events_of_replica(world, i, self._rules)
                self._of_replica[told] = self._moves(number, world, following)

    @staticmethod
    def _lacks(moves: _Moves | None, votes_after: dict[int, int]) -> bool:
        return moves is None or any(name not in votes_after for name, _ in moves)

    def _moves(self, number: int, world: World, following: Iterator[Event]) -> _Split:
        seen = [*self._seen(number, world, following)]
        self._votes_after[number & _VOTES] |= {name: votes for _, name, _, votes in seen}
        return _split((text, name, data) for text, name, data, _ in seen)

    def _seen(
        self, number: int, world: World, following: Iterator[Event]
    ) -> Iterator[tuple[str, int, int, int]]:
        """Yield of each event its name, as text and number, and the halves after it."""
        data, votes = number >> _BITS, number & _VOTES
        for text, after in following:
            name = self._names.setdefault(text, len(self._names))
            is_same = after.replicas is world.replicas and after.ahead == world.ahead
            if is_same and after.is_synced == world.is_synced:
                data_then = data
            else:
                data_then = self._number_data(after)
            is_same = after.nodes is world.nodes and after.apart == world.apart
            is_same = is_same and after[5:] == world[5:]
            votes_then = votes if is_same else self._number_votes(after)
            yield text, name, data_then, votes_then

    def _number_data(self, world: World) -> int:
        data: _Data = (world.replicas, world.is_synced, world.ahead)
        number = self._data_numbers.get(data)
        if number is None:
            number = self._data_numbers[data] = len(self._datas)
            self._datas.append(data)
            self._data_after.append({})
            self._mirrored_data.append(number)
            self._mirrored_data[number] = self._number_data(mirrored(world))
        return number

    def _number_votes(self, world: World) -> int:
        nodes = spaced(world.nodes)
        votes: _Votes = (
            nodes,
            world.apart,
            world.faults,
            world.lone,
            world.unreached,
            world.favored,
        )
        number = self._votes_numbers.get(votes)
        if number is None:
            number = self._votes_numbers[votes] = len(self._voteses)
            self._voteses.append(votes)
            self._votes_after.append({})
            self._marks.append(self._value(tuple(node.marks for node in nodes)))
            self._told.append(
                (self._value((0, _told(world, 0))), self._value((1, _told(world, 1))))
            )
            self._mirrored_votes.append(number)
            self._mirrored_votes[number] = self._number_votes(mirrored(world))
        return number

    def _value(self, value: object) -> int:
        return self._values.setdefault(value, len(self._values))


def _split(seen: Iterable[tuple[str, int, int]]) -> _Split:
    """Return the names and what follows, of the events that are certain and of those that are not.

    Given each one's name as text and number, and what follows.
    """
    certain: list[tuple[int, int]] = []
    doubtful: list[tuple[int, int]] = []
    for text, name, after in seen:
        (doubtful if is_doubtful(text) else certain).append((name, after))
    return tuple(certain), tuple(doubtful)


def _touches_data(name: str) -> bool:
    return any(word in name for word in _TOUCHES_DATA)


def _told(world: World, i: int) -> object:
    """Return all that the events of a replica read of the votes."""
    node, j = world.nodes[i], 1 - i
    if not node.is_up:
        return None
    reach = world.reach(i)
    formed = write_mark(world, i, i, is_set=bool(node.marks >> i & 1), rules=SHIPPED)
    here = formed.nodes[i].epoch
    newer = [there.epoch for there in formed.nodes if there.epoch > here]
    is_behind = bool(newer) and min(newer) - here >= EPOCH_GAP
    return (
        world.is_quorate(i),
        bool(node.view >> j & 1),
        bool(node.active >> j & 1),
        bool(node.primary >> j & 1),
        bool(node.not_down >> j & 1),
        bool(node.fenced >> j & 1),
        node.is_joining,
        node.is_new,
        is_start_noted(world, i),
        node.marks & 0b11,
        # For an order: the peer is in this partition, and knows that.
        bool((node.view & reach) >> j & 1 and world.nodes[j].view == node.view),
        # For fencing by the others.
        (node.view & reach).bit_count() > 1,
        # For unmarking.
        formed.nodes[i].marks & 0b11 == 0b11,
        # For a change of a CIB that is far behind: another mark than this one has is one.
        formed.nodes[i].marks & 0b11 if is_behind else None,
    )
