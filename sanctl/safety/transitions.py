# SPDX-License-Identifier: GPL-2.0-or-later
"""The safety model's events: each fault (new ones, too), repair, step of a handler or an agent.

A state is a World (sanctl/safety/world.py, with the invariants in prose); this module says
which events can follow. The rules that sanctl decides by are not copied here but called:
`promotion_score` and sanctl/plan/failover/fence_rules.py, which the agents call, too. The rest is
the behaviour of what sanctl relies on: DRBD 8.4 (states from drbd_state.c and drbd_nl.c), corosync
(membership, extended virtual synchrony), Pacemaker (one order at a time, demote or fence before
promote). `Rules` (sanctl/safety/rules.py) names each of these promises, so that each can be
broken and be seen to matter.

Time is not in it: whatever can happen can happen next, or never. A fault costs one of a bounded
number; repair, the cluster's actions, the host's writes and every delay are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sanctl.plan.failover import fence_rules
from sanctl.safety.cluster import (
    boot,
    cluster_events,
    order_events,
    power_off,
    record_role,
    rejoin,
    write_mark,
)
from sanctl.safety.drbd import (
    as_what,
    continue_alone,
    drbd_events,
    is_connected,
    is_served_from,
    resync_events,
    stop_replica,
)
from sanctl.safety.membership import (
    is_mark_confirmed,
    is_peer_certain,
    may_clear_beside,
    peer_membership,
    raises_cib,
)
from sanctl.safety.rules import Rules
from sanctl.safety.same_worlds import NEARER, STILL_FAR, apart_still
from sanctl.safety.world import (
    ASKS,
    ASKS_AGAIN,
    FILLS,
    KILLED,
    MARKS,
    NAMES,
    NO_HANDLER,
    REPLICAS,
    Event,
    World,
    drbd_state,
    with_node,
    with_replica,
)


def events(rules: Rules) -> Callable[[World], Iterator[Event]]:
    """Return the function that yields the events possible in a world, and the worlds after them."""

    def possible(world: World) -> Iterator[Event]:
        for name, after in _all(world, rules):
            if after != world:
                yield name, after

    return possible


def _all(world: World, rules: Rules) -> Iterator[Event]:
    yield from events_of_nodes(world, rules)
    yield from events_of_death(world)
    for i in REPLICAS:
        yield from events_of_replica(world, i, rules)


def events_of_nodes(world: World, rules: Rules) -> Iterator[Event]:
    """Yield what may happen to nodes, networks and partitions."""
    if world.faults:
        yield from _faults(world._replace(faults=world.faults - 1))
    yield from _repairs(world, rules)
    for i, node in enumerate(world.nodes):
        if node.is_up:
            yield from cluster_events(world, i, rules)


def events_of_death(world: World) -> Iterator[Event]:
    """Yield the deaths of handlers, which are faults."""
    if not world.faults:
        return
    world = world._replace(faults=world.faults - 1)
    for i, replica in enumerate(world.replicas):
        if replica.handler_runs:
            # DRBD: "helper broken"; a Primary stays frozen, and DRBD calls no other by itself.
            dead = KILLED if replica.for_primary and replica.role == "P" else NO_HANDLER
            killed = replica._replace(
                handler=dead, is_late=False, is_ordered=False, has_marked=False
            )
            yield f"the handler of {NAMES[i]} is killed", with_replica(world, i, killed)


def events_of_replica(world: World, i: int, rules: Rules) -> Iterator[Event]:
    """Yield what may happen to a replica: by Pacemaker, DRBD, its handlers, the device agent."""
    for name, after in _of_replica(world, i, rules):
        apart = apart_still(world, after)
        if apart is None:
            yield name, after
        else:
            yield name + NEARER, after
            yield name + STILL_FAR, apart


def _of_replica(world: World, i: int, rules: Rules) -> Iterator[Event]:
    if world.nodes[i].is_up:
        yield from order_events(world, i, rules)
    yield from drbd_events(world, i, rules)
    yield from resync_events(world, i, rules)
    yield from _handler(world, i, rules)
    yield from _agent(world, i, rules)


# What breaks, and what is repaired.


def _faults(world: World) -> Iterator[Event]:
    everybody = (1 << len(world.nodes)) - 1
    if world.is_synced:
        yield "the sync network is cut", world._replace(is_synced=False)
    for i, node in enumerate(world.nodes):
        # Two nodes that are alone leave the third alone, too.
        alone = world.apart | 1 << i
        if (everybody & ~alone).bit_count() < 2:
            alone = everybody
        if alone != world.apart:
            yield f"the heartbeats of {NAMES[i]} are cut", world._replace(apart=alone)
            if i in REPLICAS and world.is_synced:
                lost = world._replace(apart=alone, is_synced=False)
                if world.unreached is not None:
                    lost = lost._replace(unreached=world.unreached | 1 << i)
                yield f"{NAMES[i]} loses all networks", lost
        if node.is_up:
            yield f"{NAMES[i]} loses power", power_off(world, i)
    if world.unreached is not None:
        for out, name in (
            (0b11, "the quorum device is lost"),
            *((1 << i, f"{NAMES[i]} does not reach the quorum device") for i in REPLICAS),
        ):
            if world.unreached | out != world.unreached:
                yield name, world._replace(unreached=world.unreached | out)


def _repairs(world: World, rules: Rules) -> Iterator[Event]:
    if not world.is_synced:
        yield "the sync network is back", world._replace(is_synced=True)
    if world.apart:
        yield "the heartbeats are back", rejoin(world)
    if world.unreached:
        yield "the quorum device is reached again", world._replace(unreached=0)
    for i, node in enumerate(world.nodes):
        if not node.is_up:
            has_device = world.unreached is not None
            waits = len(world.nodes) == 2 and rules.waits_for_all and not has_device
            yield f"{NAMES[i]} boots", boot(world, i, waits=waits)
        elif node.waits and not any(world.nodes[j].is_up for j in REPLICAS if j != i):
            # `quorum.cancel_wait_for_all`, by an operator who sees that the other node is off.
            begun = with_node(world, i, node._replace(waits=False))
            yield f"an operator lets {NAMES[i]} begin without the other, which is off", begun


# The fence-peer handler, step by step.


def _handler(world: World, i: int, rules: Rules) -> Iterator[Event]:
    here = world.replicas[i]
    if not here.handler_runs:
        return
    peer, name = 1 - i, f"the handler of {NAMES[i]}"
    # The order may be older than the mark: a node that has just joined brought it along. Nor does
    # a Primary go on that is marked: its peer may have been promoted, wrongly, beside it.
    is_out = rules.heeds_own and bool(world.nodes[i].marks >> i & 1)
    membership = peer_membership(world, i, rules)
    is_certain = rules.is_certain(membership) and not is_out
    is_called_for = not rules.guards_marking or fence_rules.may_mark(
        drbd_state(here), is_promoting=here.is_ordered
    )
    if here.handler == ASKS:
        if rules.locks and here.holds_lock:
            return
        if (is_certain or not rules.asks_before) and is_called_for:
            raises = raises_cib(membership, rules)
            marking = here._replace(handler=MARKS, raises=raises)
            yield f"{name} asks: certain", with_replica(world, i, marking)
        if not here.for_primary:
            ended = here._replace(handler=NO_HANDLER, is_ordered=False, is_late=False)
            yield f"{name} gives up, the promotion fails", with_replica(world, i, ended)
        elif here.role != "P" or here.is_linked:
            ended = here._replace(handler=NO_HANDLER, is_late=False)
            yield f"{name} ends", with_replica(world, i, ended)
        elif not rules.stays_frozen:
            yield f"{name} gives up, I/O goes on", _answered(world, i)
    elif here.handler == MARKS:
        marked = write_mark(world, i, peer, is_set=True, rules=rules, raises=here.raises)
        how = as_what(here)
        is_new = rules.withdraws == "own" and not world.nodes[i].marks >> peer & 1
        after = with_replica(marked, i, here._replace(handler=ASKS_AGAIN, has_marked=is_new))
        yield f"{name} marks {NAMES[peer]}{how}", after
        after = with_replica(marked, i, here._replace(handler=ASKS))
        yield f"{name} marks {NAMES[peer]}{how}, and hears no answer", after
    elif is_mark_confirmed(world, i, rules):
        yield f"{name} asks again: certain, and returns", _answered(world, i)
    else:
        asking = with_replica(world, i, here._replace(handler=ASKS, has_marked=False))
        yield f"{name} asks again: not certain", asking
        if rules.withdraws == "any" or here.has_marked:
            without = write_mark(asking, i, peer, is_set=False, rules=rules)
            yield f"{name} asks again: not certain, and takes its mark back", without


def _answered(world: World, i: int) -> World:
    """Return the world after DRBD has accepted the handler's exit code, or ignored it."""
    here = world.replicas[i]
    after = here._replace(handler=NO_HANDLER, is_late=False, has_marked=False)
    if here.is_late or here.is_linked:
        # "Ignoring fence-peer exit code"; a link that is lost again has the handler called again.
        if here.is_frozen and here.has_data:
            after = after._replace(handler=ASKS, for_primary=True)
        return with_replica(world, i, after)
    if here.role == "-":
        return with_replica(world, i, after)
    after = after._replace(sees_behind=True)
    if here.role == "P":
        return continue_alone(with_replica(world, i, after), i)
    if here.for_primary:
        return with_replica(world, i, after)
    return continue_alone(
        with_replica(world, i, after._replace(role="P", disk="U", is_ordered=False)), i
    )


# The device agent.


def _agent(world: World, i: int, rules: Rules) -> Iterator[Event]:
    here = world.replicas[i]
    if here.role == "-":
        return
    # Where demote waits for the lock that a handler holds while it marks.
    is_marking = rules.guards_marking and here.holds_lock
    if here.role == "P" and not here.is_pending and not is_marking:
        demoted = with_replica(world, i, here._replace(role="S"))
        yield f"{NAMES[i]} is demoted", record_role(demoted, i, is_primary=False)
    if here.is_frozen and not world.is_quorate(i):
        yield f"{NAMES[i]} ends its freeze by rebooting", power_off(world, i)
    if here.is_frozen and here.handler == KILLED:
        asking = here._replace(handler=ASKS, for_primary=True)
        yield (
            f"the monitor of {NAMES[i]} has the handler called again",
            with_replica(world, i, asking),
        )
    # DRBD neither answers nor sends a disconnect while the resync handler runs.
    is_deaf = here.marks_target or (is_connected(world) and world.replicas[1 - i].marks_target)
    if here.role == "S" and not here.is_ordered and not is_deaf and not is_served_from(world, i):
        stopped = record_role(stop_replica(world, i, rules), i, is_primary=False, is_active=False)
        yield f"the replica on {NAMES[i]} stops", stopped
    yield from _marks(world, i, rules)
    if here.is_clearing and here.role == "S":
        yield from _unmark(world, i, rules)
    elif here.is_clearing:
        cleared = write_mark(world, i, 1 - i, is_set=False, rules=rules)
        after = cleared.replicas[i]._replace(is_clearing=False)
        yield f"{NAMES[i]} clears the mark of {NAMES[1 - i]}", with_replica(cleared, i, after)
        yield (
            f"{NAMES[i]} does not get to clearing",
            with_replica(world, i, here._replace(is_clearing=False)),
        )
    elif world.nodes[i].marks >> (1 - i) & 1 and not (rules.locks and here.holds_lock):
        is_allowed = not rules.clears_with_quorum or may_clear_beside(world, i, rules)
        if is_allowed and rules.may_clear(drbd_state(here)):
            clearing = here._replace(is_clearing=True)
            yield f"{NAMES[i]} sees that it is in sync", with_replica(world, i, clearing)
        if rules.unmarks and may_clear_beside(world, i, rules) and _are_all_marked(world, i):
            clearing = here._replace(is_clearing=True)
            yield f"{NAMES[i]} sees that both are marked", with_replica(world, i, clearing)
    if rules.clears_own and here.role == "S" and here.is_linked and here.disk == "U":
        yield f"{NAMES[i]} clears its own mark", write_mark(world, i, i, is_set=False, rules=rules)


def _marks(world: World, i: int, rules: Rules) -> Iterator[Event]:
    """Yield how a monitor marks: what a Primary goes on without, the target of a resync.

    That is a peer without a disk, or its own replica, and a peer that is filled from here without
    having been marked.
    """
    here, name = world.replicas[i], NAMES[i]
    if here.agent_marks:
        j = i if here.agent_marks == "own" else 1 - i
        done = here._replace(agent_marks="")
        marked = write_mark(world, i, j, is_set=True, rules=rules, raises=here.raises)
        why = "a target" if here.agent_marks == "target" else "which has no disk"
        yield f"{name} marks {NAMES[j]}{as_what(here)}, {why}", with_replica(marked, i, done)
        yield f"{name} does not get to marking", with_replica(world, i, done)
        return
    if rules.locks and here.holds_lock:
        return
    state, marks = drbd_state(here), world.nodes[i].marks
    raises = raises_cib(peer_membership(world, i, rules), rules)
    if (
        rules.marks_diskless
        and fence_rules.may_mark_without_disk(state, NAMES[1 - i], others=NAMES[1 - i])
        and is_peer_certain(world, i, rules)
        and not marks >> (1 - i) & 1
    ):
        marking = here._replace(agent_marks="peer", raises=raises)
        yield f"{name} sees that its peer has no disk", with_replica(world, i, marking)
    if (
        rules.marks_later
        and here.resync == FILLS
        and fence_rules.is_sync_target(state, NAMES[1 - i])
        and is_peer_certain(world, i, rules)
        and not marks >> (1 - i) & 1
    ):
        marking = here._replace(agent_marks="target", raises=raises)
        yield f"{name} sees that its target is not marked", with_replica(world, i, marking)
    if rules.marks_own and fence_rules.may_mark_own(
        state,
        is_quorate=world.is_quorate(i),
        here=NAMES[i],
        others=NAMES[1 - i],
        marked=[NAMES[j] for j in REPLICAS if marks >> j & 1],
    ):
        marking = here._replace(agent_marks="own")
        yield f"{name} sees that it has no disk", with_replica(world, i, marking)


def _are_all_marked(world: World, i: int) -> bool:
    marks = world.nodes[i].marks
    peer = fence_rules.peer_to_unmark(
        here=NAMES[i],
        others=NAMES[1 - i],
        marked=[NAMES[j] for j in REPLICAS if marks >> j & 1],
    )
    return peer is not None and fence_rules.is_idle_in_sync(drbd_state(world.replicas[i]), peers=1)


def _unmark(world: World, i: int, rules: Rules) -> Iterator[Event]:
    """Yield how a Secondary removes a mark: from a CIB in which both still are, or not at all."""
    idle = world.replicas[i]._replace(is_clearing=False)
    yield f"{NAMES[i]} does not get to unmarking", with_replica(world, i, idle)
    j = 1 - i if rules.unmarks_peer else i
    # The mark that is there is written again: the partition forms, and its CIB is everybody's.
    formed = write_mark(world, i, i, is_set=bool(world.nodes[i].marks >> i & 1), rules=rules)
    if formed.nodes[i].marks & 0b11 == 0b11:
        unmarked = write_mark(formed, i, j, is_set=False, rules=rules)
        yield f"{NAMES[i]} removes the mark of {NAMES[j]}", with_replica(unmarked, i, idle)
