# SPDX-License-Identifier: GPL-2.0-or-later
"""States of the model of reservations (sanctl/safety/reservations.py): what is wrong, what is one.

Of versions only their order counts, and how far apart they are where they are close; of changes,
which of them come before which.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sanctl.model.reservation import Version

NAMES = "abc"

# A state of the reservations: the changes that it is ahead of the newest one that a host has seen,
# each with a number. STALE: that one does not come before it.
Content = tuple[int, ...]
SEEN: Content = ()
STALE: Content = (-1,)

# The next step of the process that stores: of a standby; of a Primary without one.
STANDBY, NO_PROCESS = "", "no process"
RAISES, READY, CHANGES, STORED, PUSHES, CLEARS = (
    "raises the epoch", "ready", "changes", "has stored", "pushes to clear", "clears",
)  # fmt: skip

#: Of epochs, or generations of one epoch, that follow each other, the distance counts up to here.
#: With 1 the order alone counts: what comes next may be any number of steps below the one above.
GAP = 1


class Stored(NamedTuple):
    """A state as it is in a file, or is sent."""

    version: Version
    content: Content


class Node(NamedTuple):
    """A node with a replica.

    Attributes:
        is_primary: its replica is Primary.
        file: what its file has.
        promised: the epoch that it says was promised last.
        kernel: what its kernel has, and enforces; of a standby: noted where it was read too early.
        serves: hosts are let in.
        has_raised: the state was stored in an epoch of its own since the promotion.
        step: the next one of the process that stores.
        offered: what that process is about to store on all replicas.
        peers: the replicas that have stored it, or are marked.
    """

    is_primary: bool = False
    file: Stored = Stored(Version(0, 0), SEEN)
    promised: int = 0
    kernel: Content = SEEN
    serves: bool = False
    has_raised: bool = False
    step: str = STANDBY
    offered: Stored | None = None
    peers: int = 0


class Push(NamedTuple):
    """A state that was sent and may arrive at any time."""

    sender: int
    to: int
    state: Stored


class Hosts(NamedTuple):
    """One state: the nodes, and what is between them.

    Attributes:
        nodes: all replicas.
        marks: the nodes whose replica is marked.
        clearing: those whose mark is about to go: the Primary has sent that, and does not wait.
        late: the pushes that are stuck, sorted.
        free: so many more may be.
    """

    nodes: tuple[Node, ...]
    marks: int = 0
    clearing: int = 0
    late: tuple[Push, ...] = ()
    free: int = 1


def first_state(nodes: int, late: int = 1) -> Hosts:
    """Return a device whose node a serves; so many pushes may be stuck at once."""
    state = Stored(Version(0, 0), SEEN)
    serving = Node(is_primary=True, file=state, serves=True, step=READY)
    return Hosts((serving, *(Node(file=state) for _ in range(nodes - 1))), free=late)


def is_whole(state: Hosts) -> bool:
    """Whether a node serves, all are up, and none is marked."""
    return any(node.serves and node.step == READY for node in state.nodes) and not state.marks


def broken_reservations(state: Hosts) -> str | None:
    """Return what is wrong with a state, None where nothing is."""
    for i, node in enumerate(state.nodes):
        if node.serves and node.kernel == STALE:
            return f"{NAMES[i]} serves with reservations that were replaced"
        if node.file.content == STALE and not state.marks >> i & 1:
            return f"{NAMES[i]} may be promoted with reservations that were replaced"
    return None


def reservations_text(state: Hosts) -> str:
    """Return one line for a reader of a trace."""
    parts = []
    for i, node in enumerate(state.nodes):
        words = [f"{NAMES[i]}:", "Primary" if node.is_primary else "standby"]
        words += ["serves"] if node.serves else []
        words += [f"file {_stored_text(node.file)}"]
        words += [f"promised {node.promised}"] if node.promised > node.file.version.epoch else []
        words += [f"kernel {_content_text(node.kernel)}"] if node.is_primary else []
        words += [node.step] if node.step else []
        words += [_stored_text(node.offered)] if node.offered else []
        words += ["MARKED"] if state.marks >> i & 1 else []
        parts.append(" ".join(words))
    parts += [
        f"{NAMES[push.sender]}->{NAMES[push.to]} {_stored_text(push.state)}" for push in state.late
    ]
    return " | ".join(parts)


def _stored_text(state: Stored) -> str:
    return f"{state.version.epoch}.{state.version.generation} {_content_text(state.content)}"


def _content_text(content: Content) -> str:
    if content == STALE:
        return "STALE"
    return "seen" + "".join(f"+{number}" for number in content)


# What is not told apart.


def stored(state: Hosts) -> Iterator[Stored]:
    """Yield the states that are in a file, or on their way there."""
    for node in state.nodes:
        yield node.file
        if node.offered is not None:
            yield node.offered
    for push in state.late:
        yield push.state


def contents(state: Hosts) -> Iterator[Content]:
    """Yield the contents of these, and of the kernels."""
    for node in state.nodes:
        yield node.kernel
    for each in stored(state):
        yield each.content


def map_contents(state: Hosts, new: Callable[[Content], Content]) -> Hosts:
    """Return the state with other contents."""
    return _mapped(state, lambda stored: stored._replace(content=new(stored.content)), new)


def _mapped(
    state: Hosts, new: Callable[[Stored], Stored], new_kernel: Callable[[Content], Content]
) -> Hosts:
    nodes = tuple(
        node._replace(
            file=new(node.file),
            kernel=new_kernel(node.kernel),
            offered=None if node.offered is None else new(node.offered),
        )
        for node in state.nodes
    )
    late = tuple(push._replace(state=new(push.state)) for push in state.late)
    return state._replace(nodes=nodes, late=late)


def _renamed_changes(state: Hosts) -> Hosts:
    """Return the state with its changes renamed: only their order and what comes of them counts."""
    ahead = [each for each in dict.fromkeys(contents(state)) if each not in {SEEN, STALE}]
    if not ahead:
        return state
    numbers = {content: number for number, content in enumerate(ahead, 1)}
    new = {SEEN: SEEN, STALE: STALE}
    for content in ahead:
        # Of the changes that it is ahead, those that are nowhere by themselves do not count.
        before = (content[: end + 1] for end in range(len(content)))
        new[content] = tuple(numbers[each] for each in before if each in numbers)
    return map_contents(state, new.__getitem__)


def renamed(state: Hosts, gap: int = GAP) -> Hosts:
    """Return the state with its changes and versions renamed: of versions, only their order."""
    versions = {each.version for each in stored(state)}
    promised = {max(node.promised, node.file.version.epoch) for node in state.nodes}
    epochs = _closer({version.epoch for version in versions} | promised, gap)
    generations = {
        epoch: _closer({0} | {each.generation for each in versions if each.epoch == epoch}, gap)
        for epoch in epochs
    }

    def renamed(version: Version) -> Version:
        return Version(epochs[version.epoch], generations[version.epoch][version.generation])

    return _renamed_changes(_with_versions(state, renamed, lambda epoch: epochs[epoch]))


def _with_versions(
    state: Hosts, new: Callable[[Version], Version], new_epoch: Callable[[int], int]
) -> Hosts:
    nodes = tuple(
        node._replace(promised=new_epoch(max(node.promised, node.file.version.epoch)))
        for node in state.nodes
    )
    return _mapped(
        state._replace(nodes=nodes),
        lambda stored: stored._replace(version=new(stored.version)),
        lambda content: content,
    )


def _closer(numbers: set[int], gap: int) -> dict[int, int]:
    """Return the numbers from 0 on, in their order, those far apart only so far."""
    closer: dict[int, int] = {}
    last = at = 0
    for number in sorted(numbers):
        at = at + min(number - last, gap) if closer else 0
        closer[number], last = at, number
    return closer


def epochs_apart(state: Hosts, epoch: int, gap: int) -> Iterator[Hosts]:
    """Yield the states that this one may stand for where one more than an epoch is used.

    An epoch that is `gap` above may be more above. Then it is so many above the new one, too.
    """
    yield state
    known = {each.version.epoch for each in stored(state)}
    known |= {node.promised for node in state.nodes}
    if min((each for each in known if each > epoch), default=0) == epoch + gap:
        yield _with_versions(
            state,
            lambda version: version._replace(epoch=version.epoch + (version.epoch > epoch)),
            lambda number: number + (number > epoch),
        )


def generations_apart(state: Hosts, base: Version, gap: int) -> Iterator[Hosts]:
    """Yield the same of the generations of one epoch."""
    yield state
    known = {each.version.generation for each in stored(state) if each.version.epoch == base.epoch}
    if min((each for each in known if each > base.generation), default=0) == base.generation + gap:
        yield _with_versions(
            state,
            lambda version: (
                version._replace(generation=version.generation + (version > base))
                if version.epoch == base.epoch
                else version
            ),
            lambda number: number,
        )


def canonical(state: Hosts, gap: int = GAP) -> Hosts:
    """Return the one state that stands for all that differ by the names of their nodes alone."""
    orders = itertools.permutations(range(len(state.nodes)))
    return min((renamed(_permuted(state, order), gap) for order in orders), key=_order)


def _order(state: Hosts) -> tuple[object, ...]:
    nodes = [(*node[:-2], node.offered or (), node.peers) for node in state.nodes]
    return (*nodes, state.marks, state.clearing, state.late)


def _permuted(state: Hosts, order: tuple[int, ...]) -> Hosts:
    """Return the state with other names: node `order[i]` is i afterwards."""
    place = {old: new for new, old in enumerate(order)}

    def bits(mask: int) -> int:
        return sum(1 << place[old] for old in order if mask >> old & 1)

    nodes = tuple(state.nodes[old]._replace(peers=bits(state.nodes[old].peers)) for old in order)
    late = (push._replace(sender=place[push.sender], to=place[push.to]) for push in state.late)
    return Hosts(nodes, bits(state.marks), bits(state.clearing), tuple(sorted(late)), state.free)
