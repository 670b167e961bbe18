# SPDX-License-Identifier: GPL-2.0-or-later
"""A third model: persistent reservations, stored in a file beside each replica, over failovers.

The model of one device (sanctl/safety/world.py) says that at most one node is Primary, that a node
is promoted only while it is not marked, and that a mark that was read back with quorum stays until
it is removed. This one takes that for granted and says that more is not needed: a node that serves
has the newest reservations that a host was answered or could read.

Any number of changes, promotions, crashes, orderly stops, killed processes and pushes that come
late; at one moment one push is stuck (or as many as asked for), and two changes are not stored.
Less is asked of the rest than the cluster does: any node that is not marked may be promoted while
no other is Primary; a Primary marks its peer, for whatever reason, or does not get to it. A push
fails, or is stuck for as long as it takes, whatever the links are like. What decides is not copied
but called: sanctl/plan/failover/reservation_rules.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from sanctl.model.reservation import Version
from sanctl.plan.failover import reservation_rules
from sanctl.plan.failover.reservation_rules import PeerState
from sanctl.safety.reservation_world import (
    CHANGES,
    CLEARS,
    GAP,
    NAMES,
    NO_PROCESS,
    PUSHES,
    RAISES,
    READY,
    SEEN,
    STALE,
    STORED,
    Content,
    Hosts,
    Node,
    Push,
    Stored,
    broken_reservations,
    canonical,
    contents,
    epochs_apart,
    first_state,
    generations_apart,
    is_whole,
    map_contents,
    renamed,
)
from sanctl.safety.search import Exploration, explore

#: Changes that a kernel has and no file: so many are told apart.
_MAX_AHEAD = 2


class ReservationRules(NamedTuple):
    """What is relied on; the defaults are what is shipped.

    Attributes:
        asks_all: R1: nothing is answered that a replica lacks which is not marked.
        others_first: R1: the own file is written last.
        sets_anew: R1: a mark whose removal may be under way does not count until it is set again.
        stores_before_clear: R2: a peer has stored the state before its mark goes.
        locks: R2: no change between that and the removal.
        compares: R3: where all are marked, the one with the older state stays marked.
        raises: R4: the epoch is raised.
        promises: R4: to a number that the own file had before anything was sent.
        raises_per_process: R4: by each process, not only by the first one after a promotion.
        refuses_older: R5: a standby takes no older state.
        heeds_role: R5: it takes one only from the Primary, and none while it is Primary itself.
        reads_as_primary: R5: the file is read once the node is Primary.
        settles_first: R7: a node serves only after its state was stored as in R1.
        hides_changes: no host reads a change before it is answered. LIO does not keep this one.
    """

    asks_all: bool = True
    others_first: bool = True
    sets_anew: bool = True
    stores_before_clear: bool = True
    locks: bool = True
    compares: bool = True
    raises: bool = True
    promises: bool = True
    raises_per_process: bool = True
    refuses_older: bool = True
    heeds_role: bool = True
    reads_as_primary: bool = True
    settles_first: bool = True
    hides_changes: bool = True


Event = tuple[str, Hosts]


def explore_reservations(
    rules: ReservationRules,
    nodes: int = 2,
    *,
    late: int = 1,
    gap: int = GAP,
    limit: int = 5_000_000,
) -> Exploration[Hosts]:
    """Visit every state of a device with that many replicas.

    The nodes are alike: of states that differ by their names alone one is visited.

    Args:
        rules: what is relied on.
        nodes: how many replicas.
        late: how many pushes may be stuck at once.
        gap: up to where distances of versions count. With 1 more may be found than there is.
        limit: how many states are too many.
    """
    return explore(
        first_state(nodes, late),
        lambda state: events(state, rules, gap),
        broken_reservations,
        key=lambda state: canonical(state, gap),
        limit=limit,
    )


def explore_repair(rules: ReservationRules, nodes: int = 2) -> Exploration[Hosts | None]:
    """Look for a state from which repair alone does not lead to a node that serves, none marked.

    Repair is a process that starts, a push that arrives, and what the cluster does by itself.
    """
    everywhere: list[Hosts] = []

    def look(state: Hosts) -> str | None:
        everywhere.append(state)
        return broken_reservations(state)

    explore(first_state(nodes), lambda state: events(state, rules), look, key=canonical)

    def repairs(state: Hosts | None) -> Iterator[tuple[str, Hosts | None]]:
        if state is None:
            yield from (("any state", each) for each in everywhere)
            return
        for name, after in events(state, rules):
            if not name.endswith(_NO_REPAIR):
                yield name, after

    return explore(
        None,
        repairs,
        lambda _state: None,
        lambda state: state is not None and is_whole(state),
        key=lambda state: None if state is None else canonical(state),
    )


_NO_REPAIR = ("is lost, or demoted", "is killed", "is stuck", "for another reason", "out of turn")


def events(state: Hosts, rules: ReservationRules, gap: int = GAP) -> Iterator[Event]:
    """Yield what may happen next."""
    for name, after in _events(state, rules, gap):
        yield name, renamed(_without_void_pushes(after) if rules.refuses_older else after, gap)


def _without_void_pushes(state: Hosts) -> Hosts:
    """Return the state without pushes that will be refused: what a replica has gets no older."""
    for push in state.late:
        there = state.nodes[push.to]
        newest = reservation_rules.newest_known(there.file.version, there.promised)
        if push.state.version <= newest:
            state = _without_push(state, push)
    return state


def _without_push(state: Hosts, push: Push) -> Hosts:
    late = tuple(each for each in state.late if each != push)
    return state._replace(late=late, free=state.free + len(state.late) - len(late))


def _events(state: Hosts, rules: ReservationRules, gap: int) -> Iterator[Event]:
    has_primary = any(node.is_primary for node in state.nodes)
    for i, node in enumerate(state.nodes):
        if node.is_primary:
            yield from _primary(state, i, rules, gap)
        else:
            yield from _standby(state, i, rules, has_primary=has_primary)
    if state.clearing:
        yield "the removal of the mark comes late", _cleared(state)
    for push in state.late:
        yield from _late(state, push, rules)


def _late(state: Hosts, push: Push, rules: ReservationRules) -> Iterator[Event]:
    lost = _without_push(state, push)
    yield f"the push to {NAMES[push.to]} is lost", lost
    is_primary = state.nodes[push.sender].is_primary
    after = _stores(lost, push.to, push.state, rules, is_primary=is_primary)
    if after is not None:
        yield f"the push to {NAMES[push.to]} arrives late", after


def _standby(
    state: Hosts, i: int, rules: ReservationRules, *, has_primary: bool
) -> Iterator[Event]:
    node, name = state.nodes[i], NAMES[i]
    if not rules.reads_as_primary:
        yield f"{name} reads its file", _with(state, i, node._replace(kernel=node.file.content))
    if has_primary:
        return
    is_promotable = reservation_rules.may_promote(node.file.version, is_first_activation=False)
    if not state.marks >> i & 1 and is_promotable:
        kernel = node.file.content if rules.reads_as_primary else node.kernel
        primary = node._replace(is_primary=True, kernel=kernel, step=NO_PROCESS)
        after = _with(state, i, primary)
        yield f"{name} is promoted", after if rules.settles_first else _serve(after, i)
    for j, peer in enumerate(state.nodes):
        if j == i:
            continue
        if not state.marks >> j & 1:
            yield f"{name} marks {NAMES[j]} out of turn", _mark(state, j)
        if state.marks == (1 << len(state.nodes)) - 1:
            # The own mark stays, and so does that of an older state.
            others = [each.file.version for k, each in enumerate(state.nodes) if k != j]
            are_same = all(each.file.content == peer.file.content for each in state.nodes)
            may_go = reservation_rules.may_unmark(peer.file.version, others, are_same=are_same)
            if may_go or not rules.compares:
                unmarked = state._replace(marks=state.marks & ~(1 << j))
                yield f"{name} removes the mark of {NAMES[j]}", unmarked


def _primary(state: Hosts, i: int, rules: ReservationRules, gap: int) -> Iterator[Event]:
    node, name = state.nodes[i], NAMES[i]
    # What it has sent to the CIB comes before that is known, or never. A change that waits for a
    # replica ends, and nobody is answered.
    standby = Node(file=node.file, promised=node.promised)
    yield f"{name} is lost, or demoted", _with(state._replace(clearing=0), i, standby)
    # One that comes while the process is busy is as one that comes afterwards.
    if node.serves and node.step in {READY, NO_PROCESS} and len(node.kernel) < _MAX_AHEAD:
        yield f"a host sends a change to {name}", _with(state, i, _changed(state, node))
    if node.serves and not rules.hides_changes:
        yield f"a host reads the reservations on {name}", _see(state, node.kernel)
    if node.step == NO_PROCESS:
        if node.has_raised and not rules.raises_per_process:
            yield f"the process on {name} starts", _with(state, i, node._replace(step=READY))
        else:
            for after in _raise(state, i, rules, gap):
                yield f"the process on {name} starts", after
        return
    yield f"the process on {name} is killed", _with(state, i, _without_process(node))
    if node.step == READY:
        for j in range(len(state.nodes)):
            if j != i and not state.marks >> j & 1:
                yield f"{name} marks {NAMES[j]} for another reason", _mark(state, j)
        yield from _ready(state, i, gap)
    elif node.step == STORED:
        answered = _see(_with(state, i, node._replace(step=READY)), node.file.content)
        yield f"{name} answers the host", answered
    elif node.step == CLEARS:
        yield from _clear(state, i, rules)
    else:
        yield from _ask(state, i, rules, gap)
        yield from _store(state, i, rules)


def _changed(state: Hosts, node: Node) -> Node:
    if node.kernel == STALE:
        return node
    number = 1 + max(itertools.chain(*contents(state)), default=0)
    return node._replace(kernel=(*node.kernel, number))


def _without_process(node: Node) -> Node:
    return node._replace(step=NO_PROCESS, offered=None, peers=0)


def _raise(
    state: Hosts, i: int, rules: ReservationRules, gap: int, refused_by: tuple[Version, ...] = ()
) -> Iterator[Hosts]:
    """Yield how a process begins to store the state of its file in an epoch of its own."""
    own, promised = state.nodes[i].file, state.nodes[i].promised
    version = own.version
    if rules.raises:
        promise = reservation_rules.next_promise(version, promised, refused_by=refused_by)
        version = reservation_rules.first_version(promise)
        promised = promise if rules.promises else promised
    for apart in epochs_apart(state, version.epoch - 1, gap) if rules.raises else [state]:
        node = apart.nodes[i]._replace(
            step=RAISES, offered=own._replace(version=version), peers=0, promised=promised
        )
        yield _with(apart, i, node)


def _ready(state: Hosts, i: int, gap: int) -> Iterator[Event]:
    node, name = state.nodes[i], NAMES[i]
    if node.kernel != node.file.content:
        version = reservation_rules.next_version(node.file.version)
        for apart in generations_apart(state, node.file.version, gap):
            offered = Stored(version, node.kernel)
            begun = apart.nodes[i]._replace(step=CHANGES, offered=offered, peers=0)
            yield f"the process on {name} begins the change", _with(apart, i, begun)
    for j in range(len(state.nodes)):
        if state.marks >> j & 1 and not state.clearing >> j & 1:
            # `peers` has the one whose mark is to go, until it has stored the state.
            begun = node._replace(step=PUSHES, offered=node.file, peers=1 << j)
            yield f"{name} is to clear the mark of {NAMES[j]}", _with(state, i, begun)


def _clear(state: Hosts, i: int, rules: ReservationRules) -> Iterator[Event]:
    node, name = state.nodes[i], NAMES[i]
    ready = _with(state, i, node._replace(step=READY, offered=None, peers=0))
    cleared = ready._replace(marks=state.marks & ~node.peers, clearing=state.clearing & ~node.peers)
    yield f"{name} clears the mark", cleared
    sent = state._replace(clearing=state.clearing | node.peers)
    if not rules.locks:
        yield (
            f"{name} goes on, and the mark is cleared later",
            ready._replace(clearing=sent.clearing),
        )
    killed = _with(sent, i, _without_process(node))
    yield f"the removal is sent, and the process on {name} is killed", killed


def _ask(state: Hosts, i: int, rules: ReservationRules, gap: int) -> Iterator[Event]:
    """Yield how the process that is about to store a state gets to know it on another replica."""
    node, name = state.nodes[i], NAMES[i]
    assert node.offered is not None
    for j, peer in enumerate(state.nodes):
        is_target = bool(node.peers >> j & 1)
        if j == i or is_target != (node.step == PUSHES):
            continue
        asked = _with(state, i, node._replace(peers=node.peers | 1 << j))
        after = _stores(asked, j, node.offered, rules, is_primary=True)
        if after is not None:
            is_stored = reservation_rules.may_clear(node.file.version, node.offered.version)
            if node.step == PUSHES and is_stored:
                after = _with(after, i, node._replace(step=CLEARS))
            yield f"{NAMES[j]} stores the state of {name}", after
        elif rules.raises:
            newest = reservation_rules.newest_known(peer.file.version, peer.promised)
            for above in _raise(state, i, rules, gap, (newest,)):
                yield f"{NAMES[j]} refuses the state of {name}, which goes above", above
        push = Push(i, j, node.offered)
        if state.free and after is not None and push not in state.late:
            late = tuple(sorted((*state.late, push)))
            stuck = state._replace(late=late, free=state.free - 1)
            yield f"the push of {name} to {NAMES[j]} is stuck", stuck
        if node.step == PUSHES:
            if not rules.stores_before_clear:
                yield f"{name} does not wait", _with(state, i, node._replace(step=CLEARS))
            given_up = node._replace(step=READY, offered=None, peers=0)
            yield f"{name} gives up", _with(state, i, given_up)
            continue
        is_clearing = bool(state.clearing >> j & 1) and rules.sets_anew and rules.locks
        is_marked = bool(state.marks >> j & 1)
        seen = reservation_rules.peer_state(
            has_stored=False, is_marked=is_marked, is_clearing=is_clearing
        )
        if seen is PeerState.MARKED:
            yield f"{name} finds {NAMES[j]} marked", asked
        else:
            yield f"{name} marks {NAMES[j]}", _mark(asked, j)


def _store(state: Hosts, i: int, rules: ReservationRules) -> Iterator[Event]:
    """Yield how the process stores a state in its own file, once it may."""
    node, name = state.nodes[i], NAMES[i]
    if node.step == PUSHES:
        return
    assert node.offered is not None
    known = {
        NAMES[j]: PeerState.STORED if node.peers >> j & 1 else PeerState.UNKNOWN
        for j in range(len(state.nodes))
        if j != i
    }
    if not rules.others_first and node.file != node.offered:
        yield f"{name} stores first", _with(state, i, node._replace(file=node.offered))
    if not reservation_rules.may_answer(known) and rules.asks_all:
        return
    stored = node._replace(file=node.offered, offered=None, peers=0)
    if node.step == CHANGES:
        yield f"{name} stores the change", _with(state, i, stored._replace(step=STORED))
    else:
        raised = stored._replace(step=READY, has_raised=not rules.raises_per_process)
        yield f"{name} stores, and serves", _serve(_with(state, i, raised), i)


def _stores(
    state: Hosts, j: int, offered: Stored, rules: ReservationRules, *, is_primary: bool
) -> Hosts | None:
    """Return the state after a node was sent a state; None: it refuses that."""
    node = state.nodes[j]
    own = node.file
    takes = reservation_rules.accepts(
        own.version if rules.refuses_older else None,
        node.promised,
        offered.version,
        is_same=own == offered,
        is_from_primary=not rules.heeds_role or (is_primary and not node.is_primary),
    )
    return _with(state, j, node._replace(file=offered)) if takes else None


def _cleared(state: Hosts) -> Hosts:
    return state._replace(marks=state.marks & ~state.clearing, clearing=0)


def _mark(state: Hosts, j: int) -> Hosts:
    # Requests of one node are not overtaken by its later ones: a removal that was sent is over.
    return state._replace(marks=state.marks | 1 << j, clearing=state.clearing & ~(1 << j))


def _serve(state: Hosts, i: int) -> Hosts:
    """Return the state in which hosts are let in: they can read what the file had."""
    node = state.nodes[i]
    # A process that starts while hosts are let in finds a kernel that may be ahead.
    served = _with(state, i, node._replace(serves=True))
    return _see(served, node.file.content if node.serves else node.kernel)


def _see(state: Hosts, seen: Content) -> Hosts:
    """Return the state after a host has seen reservations: none of before may come back."""
    if seen in {SEEN, STALE}:
        return state
    return map_contents(
        state,
        lambda content: content[len(seen) :] if content[: len(seen)] == seen else STALE,
    )


def _with(state: Hosts, i: int, node: Node) -> Hosts:
    return state._replace(nodes=(*state.nodes[:i], node, *state.nodes[i + 1 :]))
