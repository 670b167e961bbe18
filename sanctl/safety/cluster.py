# SPDX-License-Identifier: GPL-2.0-or-later
"""Corosync and Pacemaker in the safety model: partitions, votes, fencing, promotion, marks."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.safety.membership import may_try_promotion
from sanctl.safety.rules import Rules
from sanctl.safety.same_worlds import DOUBTFUL, EPOCH_GAP
from sanctl.safety.world import (
    NAMES,
    REPLICAS,
    Event,
    Node,
    Replica,
    World,
    drbd_state,
    with_node,
    with_replica,
)


def cluster_events(world: World, i: int, rules: Rules) -> Iterator[Event]:
    """Yield what corosync and Pacemaker may do next with the nodes, as seen from one of them."""
    node, reach = world.nodes[i], world.reach(i)
    if reach & ((1 << i) - 1) == 0:  # once for each partition
        formed = _form(world, i, rules)
        if formed != world:
            how = "Pacemaker joins" if node.is_joining and is_formed(world) else "corosync forms"
            yield f"{how} {_names(reach)}", formed
        if len(world.nodes) == 2 and reach == 0b11 and not is_formed(world):
            yield f"corosync alone forms {_names(reach)}", _form_unjoined(world)
    if world.unreached is not None:
        yield from _device_votes(world, i, rules)
    if not world.is_quorate(i):
        return
    if node.view == reach:
        for j in range(len(world.nodes)):
            if j not in REPLICAS or node.view >> j & 1:
                continue
            name = f"{_names(reach)} fences {NAMES[j]}"
            if _is_settled(node, j, rules):
                if not has_history(world):
                    continue
                # If no coordinator has called it down.
                name += f", where nothing runs{DOUBTFUL}"
            after = power_off(world, j) if rules.confirms else world
            yield name, _record_fencing(after, reach, j)


def order_events(world: World, i: int, rules: Rules) -> Iterator[Event]:
    """Yield what Pacemaker may do next with the replica of a node."""
    node, reach = world.nodes[i], world.reach(i)
    if not world.is_quorate(i):
        return
    replica, j = world.replicas[i], 1 - i
    if replica.role == "-":
        # Pacemaker Explained, `requires` (fencing by default) and `startup-fencing`: a node that
        # is no member, and was not fenced since this one started, is fenced before any start.
        if rules.fences_before_start and not (node.view >> j & 1 or _is_settled(node, j, rules)):
            return
        disk = replica.disk
        if disk in "UC":
            disk = "U" if replica.sees_behind else "C"
        started = replica._replace(role="S", disk=disk)
        after = record_role(with_replica(world, i, started), i, is_primary=False)
        yield f"the replica on {NAMES[i]} starts", after
    elif replica.role == "S" and not replica.is_ordered:
        peer = world.replicas[j]
        is_safe = (
            _is_settled(node, j, rules)
            or not rules.demotes_first
            or (
                bool(rules.promotes_unfenced)
                and not node.view >> j & 1
                and (rules.promotes_unfenced == "any" or not peer.serves)
            )
            or (
                bool((node.view & reach) >> j & 1)
                and world.nodes[j].view == node.view
                and not node.is_joining
                and peer.role != "P"
                and not peer.is_ordered
            )
        )
        is_marked = rules.heeds_marks and node.marks >> i & 1
        is_safe = is_safe and is_start_noted(world, i) and may_try_promotion(world, i, rules)
        if is_safe and not is_marked and rules.score(drbd_state(replica)) is not None:
            ordered = with_replica(world, i, replica._replace(is_ordered=True))
            name = f"the cluster orders the promotion of {NAMES[i]}"
            yield name, record_role(ordered, i, is_primary=True)
            if not rules.notes_orders and has_history(world):
                unheard = record_role(ordered, i, is_primary=True, is_heard=False)
                yield f"{name}, which no other CIB says", unheard
    elif replica.is_frozen and replica.is_pending and (reach & node.view).bit_count() > 1:
        yield (
            f"{NAMES[i]} cannot be stopped and is fenced",
            _record_fencing(power_off(world, i), reach & ~(1 << i), i),
        )


def is_start_noted(world: World, i: int) -> bool:
    """Whether the members of a node's partition have heard that its replica was started.

    Pacemaker orders the next action once the CIB has the result of the one before, by a message
    that a node which is cut off does not get. So in such a moment one action may be carried out,
    and no second one. The coordinator itself may carry out two: but of a coordinator that is lost
    the others have a word, and do not call it down before it is fenced.
    """
    node = world.nodes[i]
    members = node.view & ~node.fenced & ~(1 << i)
    return not has_history(world) or all(
        bool(there.active >> i & 1)
        for j, there in enumerate(world.nodes)
        if members >> j & 1 and there.is_up
    )


def _is_settled(node: Node, j: int, rules: Rules) -> bool:
    """Whether the cluster goes on without fencing another node, or has fenced it."""
    if node.view >> j & 1 and not node.is_joining:
        return bool(node.fenced >> j & 1)
    is_active = rules.reads_history and bool(node.active >> j & 1)
    return is_called_down(node, j) and not is_active


def _device_votes(world: World, i: int, rules: Rules) -> Iterator[Event]:
    """Yield what becomes of the quorum device's vote on a node that is alone (`ffsplit`).

    Of two nodes that are alone and that the device hears it always votes for the same one. A node
    that it does not hear of any more counts the vote until it notices that; the other may have it
    already.
    """
    node, j = world.nodes[i], 1 - i
    there = world.nodes[j]
    is_reached = not world.unreached_by(i)
    is_other_heard = there.is_up and not world.unreached_by(j)
    if node.has_vote and (there.has_vote or not is_reached):
        without = with_node(world, i, node._replace(has_vote=False))
        yield f"{NAMES[i]} loses the vote of the quorum device", without
    # While both are heard and one still names the other as a member, the device waits.
    is_chosen = world.favored == i or not rules.is_device_steady
    is_stable = not is_other_heard or (there.view == 1 << j and is_chosen)
    if not node.has_vote and is_reached and node.view == 1 << i and is_stable:
        if is_other_heard:
            world = with_node(world, j, there._replace(has_vote=False))
        given = with_node(world, i, node._replace(has_vote=True))
        yield f"the quorum device votes for {NAMES[i]}", given


def is_called_down(node: Node, j: int) -> bool:
    """Whether the `node_state` of a node that is no member may say there that it is down.

    A new coordinator calls down what is lost at that moment, and what it has no word of
    (`join_make_offer`): of three members any may be such a one. Not so of one that it has not met
    since it booted: that one has no `node_state`.
    """
    return not node.not_down >> j & 1


def _expected(node: Node) -> int:
    """Return the members that a node has a word of, should they be lost.

    A coordinator has one of all members, and each member of its coordinator: of two members the
    lost one was the coordinator, or the other one is.
    """
    return node.view if node.view.bit_count() == 2 and not node.is_joining else 0


def power_off(world: World, i: int) -> World:
    """Return the world with a node off: what was in its memory is gone, its disks are not.

    The CIB is on its disk without the status: what it knew of nodes and of their actions.
    """
    off_node = world.nodes[i]._replace(
        is_up=False,
        view=0,
        active=0,
        primary=0,
        not_down=0,
        is_new=False,
        fenced=0,
        waits=False,
        has_vote=False,
        is_joining=False,
    )
    world = with_node(world, i, off_node)
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
    return with_replica(world, i, off)


def boot(world: World, i: int, *, waits: bool) -> World:
    """Return the world in which a node has booted, and has met no other.

    Its CIB has no status: no history of actions, and no word of any other node.
    """
    everybody = (1 << len(world.nodes)) - 1
    known = 0 if has_history(world) else 0b11
    started = world.nodes[i]._replace(
        is_up=True,
        view=1 << i,
        active=known,
        primary=known,
        not_down=everybody & ~(1 << i),
        is_new=True,
        waits=waits,
    )
    return with_node(world, i, started)


def has_history(world: World) -> bool:
    """Whether the history of actions is told apart: with three nodes alone.

    Of two nodes one is called down once it was fenced (`_expected`), and the fencing has deleted
    its history, too. Until then it counts as Primary here.
    """
    return len(world.nodes) > 2


def _form(world: World, i: int, rules: Rules) -> World:
    """Return the world in which corosync has formed this node's partition, with one CIB.

    Each node writes its own history of actions into it. What it says of others is what the newest
    CIB said.
    """
    reach = world.reach(i)
    members = [j for j in range(len(world.nodes)) if reach >> j & 1]
    everybody = (1 << len(world.nodes)) - 1
    own_active = own_primary = 0
    not_down = everybody & ~reach
    for j in members:
        there = world.nodes[j]
        own_active |= there.active & 1 << j
        own_primary |= there.primary & 1 << j
        not_down &= there.not_down | _expected(there)
    # The newest CIB wins. Of equally new ones that of a partition with quorum does, and then that
    # of a node that has gone on running: its status has changed (`num_updates`), and a node that
    # has just booted begins at zero. What several of those differ in is the last promotion, which
    # the one has that saw it.
    rank = {
        j: (
            world.nodes[j].epoch,
            world.is_quorate(j) == rules.ties_to_quorate,
            world.nodes[j].is_new != rules.ties_to_running,
        )
        for j in members
    }
    best = max(members, key=lambda j: (rank[j], world.nodes[j].view.bit_count(), -j))
    source = world.nodes[best]
    active = primary = 0
    for j in members:
        if rank[j] == rank[best]:
            active |= world.nodes[j].active
            primary |= world.nodes[j].primary
    for j in members:
        node = world.nodes[j]
        joined = Node(
            is_up=True,
            view=reach,
            epoch=source.epoch,
            marks=source.marks,
            active=active & ~reach | own_active,
            primary=primary & ~reach | own_primary,
            not_down=not_down,
            is_new=node.is_new and reach == 1 << j,
            waits=node.waits and reach != everybody,
            # The device votes anew for each membership; both nodes together do not need it.
            has_vote=node.has_vote and node.view == reach,
        )
        world = with_node(world, j, joined)
    return world


def is_formed(world: World) -> bool:
    """Whether each node that is up knows the members that it reaches."""
    return all(not node.is_up or node.view == world.reach(i) for i, node in enumerate(world.nodes))


def _form_unjoined(world: World) -> World:
    """Return the world in which two nodes are members of corosync, and not yet of Pacemaker.

    Each has its own CIB. One that has just booted has seen the other by that, so the other is no
    node any more that is fenced because nobody has seen it; it is expected to be up only once it
    has joined.
    """
    for j, node in enumerate(world.nodes):
        known = ~(1 << 1 - j) if node.is_new else 0b11
        seen = node._replace(
            view=0b11,
            active=node.active & known,
            primary=node.primary & known,
            not_down=node.not_down & known,
            fenced=0,
            waits=False,
            has_vote=False,
            is_joining=True,
        )
        world = with_node(world, j, seen)
    return world


def _record_fencing(world: World, members: int, gone: int) -> World:
    """Return the world in which these nodes know that one was fenced: its history is deleted."""
    others = ~(1 << gone)
    for j in range(len(world.nodes)):
        if members >> j & 1 and j != gone:
            node = world.nodes[j]
            known = node._replace(
                active=node.active & others,
                primary=node.primary & others,
                not_down=node.not_down & others,
                fenced=node.fenced | node.view & ~others,
            )
            world = with_node(world, j, known)
    return world


def record_role(
    world: World, i: int, *, is_primary: bool, is_heard: bool = True, is_active: bool = True
) -> World:
    """Return the world in which the CIB of a node's partition has the result of an action on it.

    With `is_active` unset that was a stop: nothing runs there any more.
    With `is_heard` unset that node's own CIB alone has it: the others hear no more of it.
    """
    if not has_history(world):
        return world
    bit, here = 1 << i, world.nodes[i]
    reach = world.reach(i)
    for j, node in enumerate(world.nodes):
        if j != i and not (is_heard and reach >> j & 1 and node.view == here.view):
            continue
        known = node._replace(
            active=node.active | bit if is_active else node.active & ~bit,
            primary=node.primary | bit if is_primary else node.primary & ~bit,
        )
        world = with_node(world, j, known)
    return world


def rejoin(world: World) -> World:
    """Return the world in which the heartbeats work again.

    Where corosync has not noticed that they did not, the membership is what it was, and in one
    membership each message is heard by all in the end: of the actions on each node, too.
    """
    after = world._replace(apart=0)
    if not has_history(world):
        return after
    for j, node in enumerate(world.nodes):
        said = node
        for i in REPLICAS:
            there, bit = world.nodes[i], 1 << i
            if i != j and node.view == there.view and node.view & bit:
                said = said._replace(
                    active=said.active & ~bit | there.active & bit,
                    primary=said.primary & ~bit | there.primary & bit,
                )
        if said is not node:
            after = with_node(after, j, said)
    return after


def write_mark(
    world: World, i: int, replica: int, *, is_set: bool, rules: Rules, raises: bool = False
) -> World:
    """Return the world after a node has had a mark set or cleared.

    An answer means that the partition agreed (extended virtual synchrony): what corosync had not
    noticed when the request was sent, it has when the answer comes.

    With `raises` the CIB is newer than any other one afterwards, and stays so when the node that
    was fenced has written once more.
    """
    if not (world.nodes[i].is_joining and is_formed(world)):
        world = _form(world, i, rules)
    node = world.nodes[i]
    members = 1 << i if node.is_joining else world.reach(i)
    marks = node.marks | 1 << replica if is_set else node.marks & ~(1 << replica)
    epoch = node.epoch + (marks != node.marks)
    if raises:
        epoch = max(there.epoch for there in world.nodes) + EPOCH_GAP
    for j in range(len(world.nodes)):
        if members >> j & 1:
            changed = world.nodes[j]._replace(epoch=epoch, marks=marks)
            world = with_node(world, j, changed)
    return world


def _names(mask: int) -> str:
    return "+".join(name for i, name in enumerate(NAMES) if mask >> i & 1)
