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
    if world.unreached is not None:
        yield from _device_votes(world, i, rules)
    if not world.is_quorate(i):
        return
    if node.view == reach:
        for j in range(len(world.nodes)):
            if not (node.view | node.gone) >> j & 1 and j in REPLICAS:
                after = power_off(world, j) if rules.confirms else world
                after = _know_gone(after, reach, j)
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
        if rules.fences_before_start and not (node.view | node.gone) >> j & 1:
            return
        disk = replica.disk
        if disk in "UC":
            disk = "U" if replica.sees_behind else "C"
        started = replica._replace(role="S", disk=disk)
        yield f"the replica on {NAMES[i]} starts", with_replica(world, i, started)
    elif replica.role == "S" and not replica.is_ordered:
        peer = world.replicas[j]
        is_safe = (
            bool(node.gone >> j & 1)
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
            yield f"the cluster orders the promotion of {NAMES[i]}", ordered
    elif replica.is_frozen and replica.is_pending and (reach & node.view).bit_count() > 1:
        yield (
            f"{NAMES[i]} cannot be stopped and is fenced",
            _know_gone(power_off(world, i), reach & ~(1 << i), i),
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
    """Return the world with a node off: what was in its memory is gone, its disks are not."""
    off_node = world.nodes[i]._replace(is_up=False, view=0, gone=0, waits=False, has_vote=False)
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


def _form(world: World, i: int, rules: Rules) -> World:
    """Return the world in which corosync has formed this node's partition, with one CIB."""
    reach = world.reach(i)
    members = [j for j in range(len(world.nodes)) if reach >> j & 1]
    gone = 0
    for j in members:
        gone |= world.nodes[j].gone
    # The newest CIB wins. Among equally new ones that of a partition with quorum does: its status
    # has gone on changing, and a node that has just booted begins at zero.
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
            # The device votes anew for each membership; both nodes together do not need it.
            has_vote=node.has_vote and node.view == reach,
        )
        world = with_node(world, j, joined)
    return world


def _know_gone(world: World, members: int, gone: int) -> World:
    for j in range(len(world.nodes)):
        if members >> j & 1 and j != gone:
            node = world.nodes[j]
            world = with_node(world, j, node._replace(gone=node.gone | 1 << gone))
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
    if is_set and rules.outranks and node.gone >> replica & 1:
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
        is_fenced=bool(node.gone >> peer & 1),
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
