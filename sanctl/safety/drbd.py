# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD 8.4 in the safety model: connections, resyncs, roles, the before-resync-source handler.

From drbd_state.c, drbd_nl.c, drbd_receiver.c and drbd_worker.c of 8.4. While a resync has not begun
its source acknowledges writes alone, and its target is Outdated by its own word.
"""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.safety.cluster import write_mark
from sanctl.safety.membership import (
    is_mark_confirmed,
    keeps_mark,
    peer_membership,
    raises_cib,
)
from sanctl.safety.rules import Rules
from sanctl.safety.world import (
    ASKS,
    ASKS_AGAIN,
    FILLS,
    MARKS,
    NAMES,
    NO_HANDLER,
    NO_RESYNC,
    PREPARES,
    REPLICAS,
    Event,
    Replica,
    World,
    with_replica,
)


def drbd_events(world: World, i: int, rules: Rules) -> Iterator[Event]:
    """Yield what DRBD on a node may notice or do next."""
    here, there = world.replicas[i], world.replicas[1 - i]
    if here.role == "-":
        return
    works = is_connected(world)
    if here.is_linked and not works:
        after = _lost(world, i, rules)
        yield f"DRBD on {NAMES[i]} notices that the link is gone", after
    if i == 0 and world.is_synced and not here.is_linked and not there.is_linked:
        yield from _connect(world)
    if works and here.disk == "I" and there.resync == FILLS:
        filled = here._replace(disk="U", is_fresh=there.is_fresh)
        yield f"the resync ends on {NAMES[i]}", with_replica(world, i, filled)._replace(ahead="=")
    if works and here.sees_behind and there.disk == "U":
        told = with_replica(world, i, here._replace(sees_behind=False, resync=NO_RESYNC))
        yield f"{NAMES[i]} learns that its peer is UpToDate", told
    is_unreplicated = here.resync in {PREPARES, MARKS, ASKS_AGAIN}
    if here.role == "P" and (is_unreplicated or not works):
        if here.serves and (is_unreplicated or not here.is_linked):
            yield (
                f"a write is acknowledged by {NAMES[i]} alone",
                with_replica(world, 1 - i, there._replace(is_fresh=False)),
            )
        elif not here.is_pending:
            yield (
                f"a write waits on {NAMES[i]}",
                with_replica(world, i, here._replace(is_pending=True)),
            )
    if works and here.is_pending and not here.has_data:
        # The link was cut for so short that DRBD has not noticed. Without its peer it cannot go on.
        answered = here._replace(is_pending=False, is_fresh=here.is_fresh and here.has_disk)
        yield f"a write that waited on {NAMES[i]} is answered", with_replica(world, i, answered)
    if works and here.role == "P" and there.is_fresh and not there.has_disk:
        missed = with_replica(world, 1 - i, there._replace(is_fresh=False))
        yield f"a write of {NAMES[i]} misses the disk of {NAMES[1 - i]}", missed
    if works and not here.has_disk:
        if here.role == "P" and here.is_fresh:
            missed = with_replica(world, i, here._replace(is_fresh=False))
            yield f"a write of {NAMES[i]} misses its own disk", missed
        yield from _attach(world, i)
    if here.is_ordered and here.role == "S" and not here.handler_runs:
        yield from _promote(world, i, rules, is_reachable=works)


def is_connected(world: World) -> bool:
    """Whether what either replica sends reaches the other."""
    a, b = world.replicas
    return world.is_synced and a.is_linked and b.is_linked


def _lost(world: World, i: int, rules: Rules) -> World:
    """Return the world in which a node's DRBD has no connection any more."""
    here = world.replicas[i]
    # A before-resync-source handler runs on, and DRBD calls no other before that has ended.
    lost = here._replace(
        is_linked=False,
        sees_diskless=False,
        resync=here.resync if here.marks_target else NO_RESYNC,
    )
    if here.role == "P" and not rules.freezes:
        lost = lost._replace(sees_behind=True)
    # Without good data of its own it calls no handler: I/O is frozen until the peer is back.
    if here.role == "P" and not lost.sees_behind and not here.handler_runs and here.has_data:
        lost = lost._replace(handler=ASKS, for_primary=True)
    after = with_replica(world, i, lost)
    if here.role == "P" and lost.sees_behind:
        after = continue_alone(after, i)
    return after


def _connect(world: World) -> Iterator[Event]:
    a, b = world.replicas
    if "-" in (a.role, b.role) or a.role == b.role == "P" or world.ahead == "!":
        return
    if a.marks_target or b.marks_target or not (a.has_disk and b.has_disk):
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
        world = with_replica(world, i, joined)
    yield "DRBD connects", world


def resync_events(world: World, i: int, rules: Rules) -> Iterator[Event]:
    """Yield what the source of a resync, and its handler, may do next."""
    here, peer, name = world.replicas[i], 1 - i, f"the resync handler of {NAMES[i]}"
    if here.resync == PREPARES:
        if not rules.marks_targets:
            yield f"the resync from {NAMES[i]} begins", _begun(world, i)
            return
        membership = peer_membership(world, i, rules)
        if not (rules.is_certain(membership) and rules.may_begin_resync(membership)):
            yield f"{name} gives up: the connection is dropped", _lost(world, i, rules)
        # A fenced peer, too, is marked before its membership is looked at.
        if rules.is_certain(membership) and not (rules.locks and here.holds_lock):
            marking = here._replace(resync=MARKS, raises=raises_cib(membership, rules))
            yield f"{name} asks: certain", with_replica(world, i, marking)
    elif here.resync == MARKS:
        if keeps_mark(world, i, rules):
            yield (
                f"{name} finds {NAMES[peer]} marked",
                with_replica(world, i, here._replace(resync=ASKS_AGAIN)),
            )
            return
        marked = write_mark(world, i, peer, is_set=True, rules=rules, raises=here.raises)
        how = as_what(here)
        yield (
            f"{name} marks {NAMES[peer]}{how}",
            with_replica(marked, i, here._replace(resync=ASKS_AGAIN)),
        )
        tries = here._replace(resync=PREPARES if here.is_linked else NO_RESYNC)
        unheard = with_replica(marked, i, tries)
        yield f"{name} marks {NAMES[peer]}{how}, and hears no answer", unheard
    elif here.resync == ASKS_AGAIN:
        if not here.is_linked:
            yield f"{name} ends", with_replica(world, i, here._replace(resync=NO_RESYNC))
        elif is_mark_confirmed(world, i, rules) and rules.may_begin_resync(
            peer_membership(world, i, rules)
        ):
            yield f"{name} asks again: certain, the resync begins", _begun(world, i)
        else:
            retries = with_replica(world, i, here._replace(resync=PREPARES))
            yield f"{name} asks again: not certain", retries


def as_what(here: Replica) -> str:
    """Return how a mark is set, for the name of the event that sets it."""
    return " as fenced" if here.raises else ""


def begin_unmarked(world: World, i: int) -> World:
    """Return the world in which a resync has begun whose handler was never started.

    DRBD 8.4 takes a `drbdadm` that was killed for a handler that agrees (drbd_worker.c).
    """
    assert world.replicas[i].resync == PREPARES
    return _begun(world, i)


def _begun(world: World, i: int) -> World:
    if is_connected(world):
        world = with_replica(world, 1 - i, world.replicas[1 - i]._replace(disk="I"))
    return with_replica(world, i, world.replicas[i]._replace(resync=FILLS, sees_behind=True))


def continue_alone(world: World, i: int) -> World:
    """Return the world in which a node's DRBD goes on without the peer: a new generation begins."""
    here, there = world.replicas[i], world.replicas[1 - i]
    if here.is_pending:
        world = with_replica(world, i, here._replace(is_pending=False))
        world = with_replica(world, 1 - i, there._replace(is_fresh=False))
    ahead = NAMES[i] if world.ahead in ("=", NAMES[i]) else "!"
    return world._replace(ahead=ahead)


def _promote(world: World, i: int, rules: Rules, *, is_reachable: bool) -> Iterator[Event]:
    here, there = world.replicas[i], world.replicas[1 - i]
    refused = (
        f"DRBD refuses to promote {NAMES[i]}",
        with_replica(world, i, here._replace(is_ordered=False)),
    )
    primary = here._replace(role="P", is_ordered=False)
    name = f"{NAMES[i]} becomes Primary"
    if here.is_linked:
        if is_reachable:
            # Also without a disk, where the peer has one.
            is_good = here.disk == "U" and there.role != "P"
            after = with_replica(world, i, primary)
            for j in REPLICAS:
                if not world.replicas[1 - j].has_disk:
                    after = continue_alone(after, j)
            yield (name, after) if is_good else refused
    elif not here.has_disk:
        yield refused
    elif here.disk == "U" and here.sees_behind:
        yield name, continue_alone(with_replica(world, i, primary), i)
    elif here.disk in "UC" or not rules.drbd_refuses:
        asking = here._replace(handler=ASKS, for_primary=False)
        yield f"DRBD on {NAMES[i]} calls the handler", with_replica(world, i, asking)
    else:
        yield refused


def lose_disk(world: World, i: int) -> World:
    """Return a whole cluster after DRBD has dropped the disk of one replica, at an I/O error.

    Nothing more is written to that disk, not even that it is behind. The other DRBD begins a new
    generation, and calls no handler.
    """
    here, there = world.replicas[i], world.replicas[1 - i]
    world = with_replica(world, i, here._replace(has_disk=False))
    world = with_replica(world, 1 - i, there._replace(sees_diskless=True))
    return continue_alone(world, 1 - i)


def _attach(world: World, i: int) -> Iterator[Event]:
    """Yield how a disk that was dropped is attached again, beside the peer's.

    Beside a peer out of contact it is attached by the replica's next start alone.
    """
    here, there = world.replicas[i], world.replicas[1 - i]
    attached = here._replace(has_disk=True)
    source = there._replace(sees_diskless=False)
    if world.ahead == NAMES[1 - i]:
        attached = attached._replace(disk="O")
        source = source._replace(resync=PREPARES)
    after = with_replica(with_replica(world, i, attached), 1 - i, source)
    yield f"the disk of {NAMES[i]} is attached again", after


def is_served_from(world: World, i: int) -> bool:
    """Whether a Primary without good data of its own serves from this replica: it cannot stop."""
    there = world.replicas[1 - i]
    return is_connected(world) and there.role == "P" and not there.has_data


def stop_replica(world: World, i: int, rules: Rules) -> World:
    """Return the world in which a node has taken its replica down in an orderly way."""
    here, there = world.replicas[i], world.replicas[1 - i]
    down = here._replace(
        role="-",
        is_linked=False,
        is_clearing=False,
        resync=NO_RESYNC,
        has_disk=True,
        sees_diskless=False,
        agent_marks="",
    )
    if not (world.is_synced and here.is_linked and there.is_linked):
        return with_replica(world, i, down)
    if not here.has_disk:
        # It cannot record itself as Outdated, and disconnects by force (conn_try_disconnect).
        return _lost(with_replica(world, i, down), 1 - i, rules)
    # What was sent before the disconnect has arrived before it, on both sides.
    down = down._replace(sees_behind=here.sees_behind and there.disk != "U")
    if there.role != "P":
        told = there._replace(
            is_linked=False,
            sees_behind=there.sees_behind and here.disk != "U",
            resync=NO_RESYNC,
        )
        return with_replica(with_replica(world, i, down), 1 - i, told)
    # A graceful disconnect from a Primary: this replica records itself as Outdated.
    down = down._replace(disk="I" if here.disk == "I" else "O")
    alone = there._replace(is_linked=False, sees_behind=True, resync=NO_RESYNC)
    return continue_alone(with_replica(with_replica(world, i, down), 1 - i, alone), 1 - i)
