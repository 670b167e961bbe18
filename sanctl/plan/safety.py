"""The safety model: promotion, fencing and freeze as a state machine, to be explored in full.

A state is a World (sanctl/plan/safety_world.py, with the invariants in prose); this module says
which events can follow. The rules that sanctl decides by are not copied here but called:
`promotion_score` and sanctl/plan/fence_rules.py, which the agents call, too. The rest is the
behaviour of what sanctl stands on: DRBD 8.4 (states from drbd_state.c and drbd_nl.c), corosync
(membership, extended virtual synchrony), Pacemaker (one order at a time, demote or fence before
promote). `Rules` (sanctl/plan/safety_rules.py) names each of these promises, so that each can be
broken and be seen to matter.

Time is not in it: whatever can happen can happen next, or never. A fault costs one of a bounded
number; repair, the cluster's actions, the host's writes and every delay are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sanctl.plan import fence_rules
from sanctl.plan.safety_rules import Rules, Standing
from sanctl.plan.safety_world import (
    ASKS,
    ASKS_AGAIN,
    FILLS,
    KILLED,
    MARKS,
    NAMES,
    NO_HANDLER,
    NO_RESYNC,
    PREPARES,
    REPLICAS,
    Node,
    Replica,
    World,
    drbd_state,
)

Event = tuple[str, World]


def events(rules: Rules) -> Callable[[World], Iterator[Event]]:
    """Return the function that tells which events can happen next, and where they lead."""

    def possible(world: World) -> Iterator[Event]:
        for name, after in _all(world, rules):
            if after != world:
                yield name, after

    return possible


def _all(world: World, rules: Rules) -> Iterator[Event]:
    if world.faults:
        yield from _faults(world._replace(faults=world.faults - 1))
    yield from _repairs(world, rules)
    for i in range(len(world.nodes)):
        if world.nodes[i].is_up:
            yield from _cluster(world, i, rules)
    for i in REPLICAS:
        yield from _replica(world, i, rules)
        yield from _resync(world, i, rules)
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
                yield f"{NAMES[i]} loses all networks", lost
        if node.is_up:
            yield f"{NAMES[i]} loses power", power_off(world, i)
    for i in REPLICAS:
        replica = world.replicas[i]
        if replica.handler_runs:
            # DRBD: "helper broken"; a Primary stays frozen and nobody asks again.
            dead = KILLED if replica.for_primary and replica.role == "P" else NO_HANDLER
            killed = replica._replace(handler=dead, is_late=False, is_ordered=False)
            yield f"the handler of {NAMES[i]} is killed", put(world, i, killed)


def _repairs(world: World, rules: Rules) -> Iterator[Event]:
    if not world.is_synced:
        yield "the sync network is back", world._replace(is_synced=True)
    if world.apart:
        yield "the heartbeats are back", world._replace(apart=0)
    for i, node in enumerate(world.nodes):
        if not node.is_up:
            waits = len(world.nodes) == 2 and rules.waits_for_all
            started = node._replace(is_up=True, view=1 << i, gone=0, waits=waits)
            yield f"{NAMES[i]} boots", put_node(world, i, started)


def power_off(world: World, i: int) -> World:
    """Return the world with a node off: what was in its memory is gone, its disks are not."""
    world = put_node(world, i, world.nodes[i]._replace(is_up=False, view=0, gone=0, waits=False))
    if i not in REPLICAS:
        return world
    before = world.replicas[i]
    off = Replica(
        role="-",
        disk=before.disk,
        is_fresh=before.is_fresh,
        is_linked=False,
        sees_behind=before.sees_behind,
    )
    return put(world, i, off)


# Corosync and Pacemaker, as seen from one node.


def _cluster(world: World, i: int, rules: Rules) -> Iterator[Event]:
    node, reach = world.nodes[i], world.reach(i)
    if reach & ((1 << i) - 1) == 0:  # once for each partition
        formed = _form(world, i, rules)
        if formed != world:
            yield f"corosync forms {_names(reach)}", formed
    if not world.is_quorate(i):
        return
    if node.view == reach:
        for j in range(len(world.nodes)):
            if not (node.view | node.gone) >> j & 1 and j in REPLICAS:
                after = power_off(world, j) if rules.confirms else world
                after = _know_gone(after, reach, j)
                yield f"{_names(reach)} fences {NAMES[j]}", after
    if i not in REPLICAS:
        return
    replica, j = world.replicas[i], 1 - i
    if replica.role == "-":
        disk = replica.disk
        if disk in "UC":
            disk = "U" if replica.sees_behind else "C"
        started = replica._replace(role="S", disk=disk)
        yield f"the replica on {NAMES[i]} starts", put(world, i, started)
    elif replica.role == "S" and not replica.is_ordered:
        peer = world.replicas[j]
        is_safe = (
            bool(node.gone >> j & 1)
            or not rules.demotes_first
            or (
                bool((node.view & reach) >> j & 1)
                and world.nodes[j].view == node.view
                and peer.role != "P"
                and not peer.is_ordered
            )
        )
        is_marked = rules.heeds_marks and node.marks >> i & 1
        if is_safe and not is_marked and rules.score(drbd_state(replica)) is not None:
            ordered = put(world, i, replica._replace(is_ordered=True))
            yield f"the cluster orders the promotion of {NAMES[i]}", ordered
    elif replica.is_frozen and replica.is_pending and (reach & node.view).bit_count() > 1:
        yield (
            f"{NAMES[i]} cannot be stopped and is fenced",
            _know_gone(power_off(world, i), reach & ~(1 << i), i),
        )


def _form(world: World, i: int, rules: Rules) -> World:
    """Return the world in which this node's partition has noticed what it is, and agrees."""
    reach = world.reach(i)
    members = [j for j in range(len(world.nodes)) if reach >> j & 1]
    gone = 0
    for j in members:
        gone |= world.nodes[j].gone
    # The newest copy wins. Among equally new ones that of a partition with quorum does: its status
    # has gone on changing, and a node that has just booted begins at nought.
    best = max(
        members,
        key=lambda j: (
            world.nodes[j].epoch,
            world.is_quorate(j) == rules.ties_to_quorate,
            world.nodes[j].view.bit_count(),
            -j,
        ),
    )
    source = world.nodes[best]
    everybody = reach.bit_count() == len(world.nodes)
    for j in members:
        node = world.nodes[j]
        joined = Node(
            is_up=True,
            view=reach,
            epoch=source.epoch,
            marks=source.marks,
            gone=gone & ~reach,
            waits=node.waits and not everybody,
        )
        world = put_node(world, j, joined)
    return world


def _know_gone(world: World, members: int, gone: int) -> World:
    for j in range(len(world.nodes)):
        if members >> j & 1 and j != gone:
            node = world.nodes[j]
            world = put_node(world, j, node._replace(gone=node.gone | 1 << gone))
    return world


def _write_mark(world: World, i: int, replica: int, *, is_set: bool, rules: Rules) -> World:
    """Return the world after a node has had a mark set or cleared.

    An answer means that the partition agreed (extended virtual synchrony): what corosync had not
    noticed when the request was sent, it has when the answer comes.
    """
    world = _form(world, i, rules)
    members, node = world.reach(i), world.nodes[i]
    marks = node.marks | 1 << replica if is_set else node.marks & ~(1 << replica)
    epoch = node.epoch + (marks != node.marks)
    # The agents decide that when they ask before, and ask anew if it was otherwise afterwards.
    if is_set and rules.outranks and node.gone >> replica & 1:
        epoch = max(there.epoch for there in world.nodes) + 1
    for j in range(len(world.nodes)):
        if members >> j & 1:
            changed = world.nodes[j]._replace(epoch=epoch, marks=marks)
            world = put_node(world, j, changed)
    return world


# DRBD.


def _replica(world: World, i: int, rules: Rules) -> Iterator[Event]:
    here, there = world.replicas[i], world.replicas[1 - i]
    if here.role == "-":
        return
    works = _works(world)
    if here.is_linked and not works:
        after = _lost(world, i, rules)
        yield f"DRBD on {NAMES[i]} notices that the link is gone", after
    if i == 0 and world.is_synced and not here.is_linked and not there.is_linked:
        yield from _connect(world)
    if works and here.disk == "I" and there.resync == FILLS:
        filled = here._replace(disk="U", is_fresh=there.is_fresh)
        yield f"the resync ends on {NAMES[i]}", put(world, i, filled)._replace(ahead="=")
    if works and here.sees_behind and there.disk == "U":
        told = put(world, i, here._replace(sees_behind=False, resync=NO_RESYNC))
        yield f"{NAMES[i]} learns that its peer is UpToDate", told
    is_unreplicated = here.resync in {PREPARES, MARKS, ASKS_AGAIN}
    if here.role == "P" and (is_unreplicated or not works):
        if here.serves and (is_unreplicated or not here.is_linked):
            yield (
                f"a write is acknowledged by {NAMES[i]} alone",
                put(world, 1 - i, there._replace(is_fresh=False)),
            )
        elif not here.is_pending:
            yield f"a write waits on {NAMES[i]}", put(world, i, here._replace(is_pending=True))
    if here.is_ordered and here.role == "S" and not here.handler_runs:
        yield from _promote(world, i, rules, is_reachable=works)


def _works(world: World) -> bool:
    a, b = world.replicas
    return world.is_synced and a.is_linked and b.is_linked


def _lost(world: World, i: int, rules: Rules) -> World:
    """Return the world in which a node's DRBD has no connection any more."""
    here = world.replicas[i]
    # A before-resync-source handler runs on, and DRBD calls no other before that has ended.
    lost = here._replace(is_linked=False, resync=here.resync if here.marks_target else NO_RESYNC)
    if here.role == "P" and not rules.freezes:
        lost = lost._replace(sees_behind=True)
    if here.role == "P" and not lost.sees_behind and not here.handler_runs:
        lost = lost._replace(handler=ASKS, for_primary=True)
    after = put(world, i, lost)
    if here.role == "P" and lost.sees_behind:
        after = _alone(after, i)
    return after


def _connect(world: World) -> Iterator[Event]:
    a, b = world.replicas
    if "-" in (a.role, b.role) or a.role == b.role == "P" or world.ahead == "!":
        return
    if a.marks_target or b.marks_target:
        return
    before = world
    for i in REPLICAS:
        here, there = before.replicas[i], before.replicas[1 - i]
        is_behind, is_ahead = world.ahead == NAMES[1 - i], world.ahead == NAMES[i]
        if is_behind and here.role == "P":
            return
        disk = "U"
        if is_behind:
            # Outdated by its own word from here on; overwritten when the source begins.
            disk = "I" if here.disk == "I" else "O"
        joined = here._replace(
            is_linked=True,
            disk=disk,
            is_fresh=here.is_fresh and not (is_behind and there.is_pending),
            # The source does not hear what its peer takes itself for now, only what it was.
            sees_behind=is_ahead and there.disk in "OI",
            resync=PREPARES if is_ahead else NO_RESYNC,
            is_pending=False,
            handler=here.handler if here.handler_runs else NO_HANDLER,
            is_late=here.handler_runs,
        )
        world = put(world, i, joined)
    yield "DRBD connects", world


# The source of a resync, and its before-resync-source handler.


def _resync(world: World, i: int, rules: Rules) -> Iterator[Event]:
    here, peer, name = world.replicas[i], 1 - i, f"the resync handler of {NAMES[i]}"
    if here.resync == PREPARES:
        if not rules.marks_targets:
            yield f"the resync from {NAMES[i]} begins", _begun(world, i)
            return
        if not _is_certain(world, i, rules):
            yield f"{name} gives up: the connection is dropped", _lost(world, i, rules)
        elif not (rules.locks and here.holds_lock):
            yield f"{name} asks: certain", put(world, i, here._replace(resync=MARKS))
    elif here.resync == MARKS:
        marked = _write_mark(world, i, peer, is_set=True, rules=rules)
        yield f"{name} marks {NAMES[peer]}", put(marked, i, here._replace(resync=ASKS_AGAIN))
        tries = here._replace(resync=PREPARES if here.is_linked else NO_RESYNC)
        yield f"{name} marks {NAMES[peer]}, and hears no answer", put(marked, i, tries)
    elif here.resync == ASKS_AGAIN:
        if not here.is_linked:
            yield f"{name} ends", put(world, i, here._replace(resync=NO_RESYNC))
        elif _is_marked(world, i, rules):
            yield f"{name} asks again: certain, the resync begins", _begun(world, i)
        else:
            retries = put(world, i, here._replace(resync=PREPARES))
            yield f"{name} asks again: not certain", retries


def _begun(world: World, i: int) -> World:
    if _works(world):
        world = put(world, 1 - i, world.replicas[1 - i]._replace(disk="I"))
    return put(world, i, world.replicas[i]._replace(resync=FILLS, sees_behind=True))


def _alone(world: World, i: int) -> World:
    """Return the world in which a node's DRBD goes on without the peer: a new generation begins."""
    here, there = world.replicas[i], world.replicas[1 - i]
    if here.is_pending:
        world = put(world, i, here._replace(is_pending=False))
        world = put(world, 1 - i, there._replace(is_fresh=False))
    ahead = NAMES[i] if world.ahead in ("=", NAMES[i]) else "!"
    return world._replace(ahead=ahead)


def _promote(world: World, i: int, rules: Rules, *, is_reachable: bool) -> Iterator[Event]:
    here, there = world.replicas[i], world.replicas[1 - i]
    refused = f"DRBD refuses to promote {NAMES[i]}", put(world, i, here._replace(is_ordered=False))
    primary = here._replace(role="P", is_ordered=False)
    name = f"{NAMES[i]} becomes Primary"
    if here.is_linked:
        if is_reachable:
            is_good = here.disk == "U" and there.role != "P"
            yield (name, put(world, i, primary)) if is_good else refused
    elif here.disk == "U" and here.sees_behind:
        yield name, _alone(put(world, i, primary), i)
    elif here.disk in "UC" or not rules.drbd_refuses:
        asking = here._replace(handler=ASKS, for_primary=False)
        yield f"DRBD on {NAMES[i]} calls the handler", put(world, i, asking)
    else:
        yield refused


# The fence-peer handler, step by step.


def _handler(world: World, i: int, rules: Rules) -> Iterator[Event]:
    here = world.replicas[i]
    if not here.handler_runs:
        return
    peer, name = 1 - i, f"the handler of {NAMES[i]}"
    is_certain = _is_certain(world, i, rules)
    is_called_for = not rules.guards_marking or fence_rules.may_mark(
        drbd_state(here), is_promoting=here.is_ordered
    )
    if here.handler == ASKS:
        if rules.locks and here.holds_lock:
            return
        if (is_certain or not rules.asks_before) and is_called_for:
            yield f"{name} asks: certain", put(world, i, here._replace(handler=MARKS))
        if not here.for_primary:
            ended = here._replace(handler=NO_HANDLER, is_ordered=False, is_late=False)
            yield f"{name} gives up, the promotion fails", put(world, i, ended)
        elif here.role != "P" or here.is_linked:
            ended = here._replace(handler=NO_HANDLER, is_late=False)
            yield f"{name} ends", put(world, i, ended)
        elif not rules.stays_frozen:
            yield f"{name} gives up, I/O goes on", _answered(world, i)
    elif here.handler == MARKS:
        marked = _write_mark(world, i, peer, is_set=True, rules=rules)
        after = put(marked, i, here._replace(handler=ASKS_AGAIN))
        yield f"{name} marks {NAMES[peer]}", after
        after = put(marked, i, here._replace(handler=ASKS))
        yield f"{name} marks {NAMES[peer]}, and hears no answer", after
    elif _is_marked(world, i, rules):
        yield f"{name} asks again: certain, and returns", _answered(world, i)
    else:
        yield f"{name} asks again: not certain", put(world, i, here._replace(handler=ASKS))


def _is_certain(world: World, i: int, rules: Rules) -> bool:
    """Whether a node is told now that its peer cannot be promoted once it is marked."""
    node, peer = world.nodes[i], 1 - i
    seen = Standing(
        is_quorate=world.is_quorate(i),
        is_member=bool(node.view >> peer & 1),
        is_fenced=bool(node.gone >> peer & 1),
    )
    return rules.is_certain(rules.standing(seen))


def _is_marked(world: World, i: int, rules: Rules) -> bool:
    """Whether a handler that has marked its peer finds that this counts."""
    is_certain = not rules.asks_after or _is_certain(world, i, rules)
    return is_certain and (not rules.reads_back or bool(world.nodes[i].marks >> (1 - i) & 1))


def _answered(world: World, i: int) -> World:
    """Return the world after DRBD has taken the handler's word, or has not."""
    here = world.replicas[i]
    after = here._replace(handler=NO_HANDLER, is_late=False)
    if here.is_late or here.is_linked:
        # "Ignoring fence-peer exit code"; a link that is lost again has the handler called again.
        if here.is_frozen:
            after = after._replace(handler=ASKS, for_primary=True)
        return put(world, i, after)
    if here.role == "-":
        return put(world, i, after)
    after = after._replace(sees_behind=True)
    if here.role == "P":
        return _alone(put(world, i, after), i)
    if here.for_primary:
        return put(world, i, after)
    return _alone(put(world, i, after._replace(role="P", disk="U", is_ordered=False)), i)


# The device agent.


def _agent(world: World, i: int, rules: Rules) -> Iterator[Event]:
    here = world.replicas[i]
    if here.role == "-":
        return
    # Where demote waits for the lock that a handler holds while it marks.
    is_marking = rules.guards_marking and here.holds_lock
    if here.role == "P" and not here.is_pending and not is_marking:
        yield f"{NAMES[i]} is demoted", put(world, i, here._replace(role="S"))
    if here.is_frozen and not world.is_quorate(i):
        yield f"{NAMES[i]} ends its freeze by rebooting", power_off(world, i)
    # DRBD answers no goodbye, and says none, while the resync handler works.
    is_deaf = here.marks_target or (_works(world) and world.replicas[1 - i].marks_target)
    if here.role == "S" and not here.is_ordered and not is_deaf:
        yield f"the replica on {NAMES[i]} stops", _stopped(world, i)
    if here.is_clearing:
        cleared = _write_mark(world, i, 1 - i, is_set=False, rules=rules)
        after = cleared.replicas[i]._replace(is_clearing=False)
        yield f"{NAMES[i]} clears the mark of {NAMES[1 - i]}", put(cleared, i, after)
        yield (
            f"{NAMES[i]} does not get to clearing",
            put(world, i, here._replace(is_clearing=False)),
        )
    elif world.nodes[i].marks >> (1 - i) & 1 and not (rules.locks and here.holds_lock):
        is_allowed = not rules.clears_with_quorum or _is_certain(world, i, rules)
        if is_allowed and rules.may_clear(drbd_state(here)):
            clearing = here._replace(is_clearing=True)
            yield f"{NAMES[i]} sees that it is in sync", put(world, i, clearing)
    if rules.clears_own and here.role == "S" and here.is_linked and here.disk == "U":
        yield f"{NAMES[i]} clears its own mark", _write_mark(world, i, i, is_set=False, rules=rules)


def _stopped(world: World, i: int) -> World:
    here, there = world.replicas[i], world.replicas[1 - i]
    down = here._replace(role="-", is_linked=False, is_clearing=False, resync=NO_RESYNC)
    if not (world.is_synced and here.is_linked and there.is_linked):
        return put(world, i, down)
    # What was sent before the goodbye has arrived before it, on both sides.
    down = down._replace(sees_behind=here.sees_behind and there.disk != "U")
    if there.role != "P":
        told = there._replace(
            is_linked=False,
            sees_behind=there.sees_behind and here.disk != "U",
            resync=NO_RESYNC,
        )
        return put(put(world, i, down), 1 - i, told)
    # A graceful disconnect from a Primary: this replica writes down that it is behind.
    down = down._replace(disk="I" if here.disk == "I" else "O")
    alone = there._replace(is_linked=False, sees_behind=True, resync=NO_RESYNC)
    return _alone(put(put(world, i, down), 1 - i, alone), 1 - i)


def put(world: World, i: int, replica: Replica) -> World:
    """Return the world with another state of one replica."""
    a, b = world.replicas
    return world._replace(replicas=(replica, b) if i == 0 else (a, replica))


def put_node(world: World, i: int, node: Node) -> World:
    """Return the world with another state of one node."""
    nodes = world.nodes
    return world._replace(nodes=(*nodes[:i], node, *nodes[i + 1 :]))


def _names(mask: int) -> str:
    return "+".join(name for i, name in enumerate(NAMES) if mask >> i & 1)
