# SPDX-License-Identifier: GPL-2.0-or-later
"""Corosync and Pacemaker in the safety model: partitions, votes, fencing, promotion, marks."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.plan.failover import fence_rules
from sanctl.safety.rules import MembershipFacts, Rules
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
            yield f"corosync forms {_names(reach)}", formed
        elsewhere = _form(world, i, rules, is_new_coordinator=True)
        if elsewhere != formed:
            yield f"corosync forms {_names(reach)} with a new coordinator", elsewhere
    if world.unreached is not None:
        yield from _device_votes(world, i, rules)
    if not world.is_quorate(i):
        return
    if node.view == reach:
        for j in range(len(world.nodes)):
            if j in REPLICAS and not (node.view >> j & 1 or node.takes_for_fenced(j)):
                after = power_off(world, j) if rules.confirms else world
                after = _record_fencing(after, reach, j)
                yield f"{_names(reach)} fences {NAMES[j]}", after


def order_events(world: World, i: int, rules: Rules) -> Iterator[Event]:
    """Yield what Pacemaker may do next with the replica of a node."""
    node, reach = world.nodes[i], world.reach(i)
    if not world.is_quorate(i):
        return
    replica, j = world.replicas[i], 1 - i
    if replica.role == "-":
        # Pacemaker Explained, `requires` (fencing by default) and `startup-fencing`: a node that
        # is no member, and was not fenced since this one started, is fenced before any start.
        if rules.fences_before_start and not (node.view >> j & 1 or node.takes_for_fenced(j)):
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
            (node.takes_for_fenced(j) and not node.view >> j & 1)
            or not rules.demotes_first
            or (
                bool(rules.promotes_unfenced)
                and not node.view >> j & 1
                and (rules.promotes_unfenced == "any" or not peer.serves)
            )
            or (
                bool((node.view & reach) >> j & 1)
                and world.nodes[j].view == node.view
                and peer.role != "P"
                and not peer.is_ordered
            )
        )
        is_marked = rules.heeds_marks and node.marks >> i & 1
        if is_safe and not is_marked and rules.score(drbd_state(replica)) is not None:
            ordered = with_replica(world, i, replica._replace(is_ordered=True))
            ordered = record_role(ordered, i, is_primary=True)
            yield f"the cluster orders the promotion of {NAMES[i]}", ordered
    elif replica.is_frozen and replica.is_pending and (reach & node.view).bit_count() > 1:
        yield (
            f"{NAMES[i]} cannot be stopped and is fenced",
            _record_fencing(power_off(world, i), reach & ~(1 << i), i),
        )


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


def power_off(world: World, i: int) -> World:
    """Return the world with a node off: what was in its memory is gone, its disks are not.

    The CIB is on its disk without the status: what it knew of nodes and of their actions.
    """
    off_node = world.nodes[i]._replace(
        is_up=False, view=0, down=0, active=0, primary=0, waits=False, has_vote=False
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


def _form(world: World, i: int, rules: Rules, *, is_new_coordinator: bool = False) -> World:
    """Return the world in which corosync has formed this node's partition, with one CIB.

    Each node writes its own history of actions into it. What it says of others is what the newest
    CIB said; but what `node_state` says of those that are no members the coordinator writes, from
    what it remembers: where any member knows a node for down, it may be that one
    (`populate_cib_nodes` of Pacemaker's controller). A new one takes every node for down that is
    lost just then and that it was no coordinator of (`join_make_offer`): that is fenced for its
    history's sake alone.
    """
    reach = world.reach(i)
    members = [j for j in range(len(world.nodes)) if reach >> j & 1]
    down = own_active = own_primary = 0
    for j in members:
        there = world.nodes[j]
        # Of two members the one that is lost was the coordinator, or the other stays it.
        is_taken_over = is_new_coordinator and there.view.bit_count() > 2
        down |= there.down | (there.view if is_taken_over else 0)
        own_active |= there.active & 1 << j
        own_primary |= there.primary & 1 << j
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
    everybody = reach.bit_count() == len(world.nodes)
    for j in members:
        node = world.nodes[j]
        joined = Node(
            is_up=True,
            view=reach,
            epoch=source.epoch,
            marks=source.marks,
            down=down & ~reach & 0b11,
            active=active & ~reach | own_active,
            primary=primary & ~reach | own_primary,
            is_new=node.is_new and reach == 1 << j,
            waits=node.waits and not everybody,
            # The device votes anew for each membership; both nodes together do not need it.
            has_vote=node.has_vote and node.view == reach,
        )
        world = with_node(world, j, joined)
    return world


def _record_fencing(world: World, members: int, gone: int) -> World:
    """Return the world in which these nodes know that one was fenced: its history is deleted."""
    bit = 1 << gone
    for j in range(len(world.nodes)):
        if members >> j & 1 and j != gone:
            node = world.nodes[j]
            known = node._replace(
                down=node.down | bit, active=node.active & ~bit, primary=node.primary & ~bit
            )
            world = with_node(world, j, known)
    return world


def record_role(world: World, i: int, *, is_primary: bool) -> World:
    """Return the world in which the CIB of a node's partition has the result of an action on it."""
    bit, here = 1 << i, world.nodes[i]
    reach = world.reach(i)
    for j, node in enumerate(world.nodes):
        if j != i and not (reach >> j & 1 and node.view == here.view):
            continue
        known = node._replace(
            active=node.active | bit,
            primary=node.primary | bit if is_primary else node.primary & ~bit,
        )
        world = with_node(world, j, known)
    return world


def write_mark(world: World, i: int, replica: int, *, is_set: bool, rules: Rules) -> World:
    """Return the world after a node has had a mark set or cleared.

    An answer means that the partition agreed (extended virtual synchrony): what corosync had not
    noticed when the request was sent, it has when the answer comes.
    """
    world = _form(world, i, rules)
    members, node = world.reach(i), world.nodes[i]
    marks = node.marks | 1 << replica if is_set else node.marks & ~(1 << replica)
    epoch = node.epoch + (marks != node.marks)
    # The agents decide that when they ask before marking, and start over if the answer after it
    # differs.
    is_fenced = rules.is_known_fenced(node, replica) and not node.view >> replica & 1
    if is_set and rules.outranks and is_fenced:
        epoch = max(there.epoch for there in world.nodes) + 1
    for j in range(len(world.nodes)):
        if members >> j & 1:
            changed = world.nodes[j]._replace(epoch=epoch, marks=marks)
            world = with_node(world, j, changed)
    return world


def is_peer_certain(world: World, i: int, rules: Rules) -> bool:
    """Whether the fence rules say that this node's peer cannot be promoted once it is marked."""
    return rules.is_certain(peer_membership(world, i, rules))


def peer_membership(world: World, i: int, rules: Rules) -> str:
    """Return what the fence rules say that this node knows of its peer."""
    node, peer = world.nodes[i], 1 - i
    seen = MembershipFacts(
        is_quorate=world.is_quorate(i),
        is_member=bool(node.view >> peer & 1),
        is_fenced=rules.is_known_fenced(node, peer),
    )
    membership = rules.peer_membership(seen)
    if rules.checks_overlap and i in REPLICAS:
        membership = fence_rules.apply_quorum_overlap(
            membership,
            # Here a partition and its CIB are formed at once.
            has_joined=lambda: True,
            # DRBD 8.4 calls a replica Consistent that was started and has connected to no peer.
            is_never_connected=lambda: world.replicas[i].disk == "C",
            quorums_intersect=len(world.nodes) > 2,
        )
    return membership


def keeps_mark(world: World, i: int, rules: Rules) -> bool:
    """Whether the source of a resync finds its peer marked, and changes nothing."""
    node, peer = world.nodes[i], 1 - i
    return rules.keeps_marks and bool(node.marks & node.view & 1 << peer)


def is_mark_confirmed(world: World, i: int, rules: Rules) -> bool:
    """Whether a handler that has marked its peer finds the mark in force."""
    is_certain = not rules.asks_after or is_peer_certain(world, i, rules)
    return is_certain and (not rules.reads_back or bool(world.nodes[i].marks >> (1 - i) & 1))


def _names(mask: int) -> str:
    return "+".join(name for i, name in enumerate(NAMES) if mask >> i & 1)
