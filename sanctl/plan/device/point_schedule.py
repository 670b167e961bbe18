# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: when a schedule makes a restore point of a device, which ones it removes, when it is late.

All follows from what the CIB has, the schedule and the points with the slots that they were made
for, so that it goes on on whatever node serves the device, and no point is made twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cib_change import Change, RemoveSchedule, SetPoint, SetSchedule
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.point_hook import PointHook
from sanctl.model.point_schedule import NAME_PREFIX, PointSchedule, Rule, ScheduledSlot
from sanctl.model.restore_point import MAX_ALL_POINTS, MAX_POINTS, PointOrder, RestorePoint
from sanctl.plan.cluster.preconditions import existing_device, refuse_without_quorum
from sanctl.plan.device.restore_points import (
    plan_point_deletion,
    plan_point_order,
    refuse_larger,
)
from sanctl.plan.device.restore_refusals import unknown_content_problem

#: After a failure the schedule tries again when its shortest interval, or this, has passed.
_TRY_AGAIN_S = 3600
#: How long after its slot has begun a restore point may take to be made.
_MAKING_S = 60


class DuePoint(NamedTuple):
    """A restore point that a schedule is to make now.

    Attributes:
        device: the device.
        order: its name; the token and the moment of this attempt.
        slot: what it is made for.
    """

    device: DeviceSpec
    order: PointOrder
    slot: ScheduledSlot


def last_slot(rule: Rule, points: Iterable[RestorePoint], now_s: float) -> int | None:
    """Return when the latest slot of a rule began for which a restore point was made; None: none.

    A slot that lies ahead counts only if the clocks of two nodes can differ by that.
    """
    begins = [
        rule.slot_of(point.slot.begin_s)
        for point in points
        if point.slot is not None
        and rule.interval in point.slot.intervals
        and point.slot.begin_s < now_s + max(rule.every_s, _MAKING_S)
    ]
    return max(begins, default=None)


def due_rules(
    schedule: PointSchedule, points: Collection[RestorePoint], now_s: float
) -> tuple[Rule, ...]:
    """Return the rules for whose present slot there is no restore point yet.

    Slots that have passed while nothing served the device, or while each attempt failed, are not
    made up for: the next point is for the present slot.
    """
    return tuple(
        rule
        for rule in schedule.rules
        if (last := last_slot(rule, points, now_s)) is None or last < rule.slot_of(now_s)
    )


def attempt_of(schedule: PointSchedule, now_s: float) -> int:
    """Return when the time began in which one attempt is made, in seconds since 1970."""
    return Rule(min(schedule.rules[0].every_s, _TRY_AGAIN_S), 1).slot_of(now_s)


def point_name(slot: ScheduledSlot) -> str:
    """Return the name of the restore point for a slot: two nodes that make it give it the same."""
    return NAME_PREFIX + datetime.fromtimestamp(slot.begin_s, UTC).strftime("%Y%m%d-%H%M")


def due_point(cluster: Cluster, name: str, token: str, now_s: float) -> DuePoint | None:
    """Return the restore point that is due of a device; None without.

    Raises:
        Refused: it is due, and cannot be made now.
    """
    device, schedule = cluster.cib.device(name), cluster.cib.schedules.get(name)
    if device is None or schedule is None:
        return None
    rules = due_rules(schedule, cluster.cib.points_of(name), now_s)
    if not rules:
        return None
    slot = ScheduledSlot.of(rules, now_s)
    order = PointOrder(point_name(slot), token, int(now_s), schedule.hook)
    # For what it refuses.
    plan_point_order(cluster, device.name, order, now_s, by_schedule=True)
    return DuePoint(device, order, slot)


def plan_scheduled_point(cluster: Cluster, point: RestorePoint, now_s: float) -> tuple[Change, ...]:
    """Return the change that adds a restore point which a schedule has made.

    Raises:
        CommandError: the schedule or the device is not what it was, or there is such a point.
        Refused: it cannot be made now.
    """
    device, schedule = cluster.cib.device(point.device), cluster.cib.schedules.get(point.device)
    points = cluster.cib.points_of(point.device)
    known = {rule.interval: rule for rule in schedule.rules} if schedule else {}
    rules = [known.get(interval) for interval in point.slot.intervals] if point.slot else []
    if device is not None and device.uuid == point.uuid:
        refuse_larger(device, point)
    if (
        device is None
        or point.slot is None
        or device.uuid != point.uuid
        or device.is_stopping
        or device.is_half_restored
        or not set(point.nodes) <= {node.value for node in device.nodes}
        or any(
            rule is None
            or (last_slot(rule, points, now_s) or 0) >= rule.slot_of(point.slot.begin_s)
            for rule in rules
        )
    ):
        raise CommandError(
            Problem(
                "SAN-SCHED-004",
                f"restore point {point.name} is no longer due: the schedule has changed, or "
                "another node has made it",
            )
        )
    order = PointOrder(point.name, point.token, point.made_s)
    plan_point_order(cluster, device.name, order, now_s, by_schedule=True)
    return (SetPoint(point=point),)


def surplus(
    schedule: PointSchedule, points: Sequence[RestorePoint], nodes: Collection[str], now_s: float
) -> tuple[RestorePoint, ...]:
    """Return the restore points that a schedule no longer keeps, the oldest first.

    Of each rule the newest stay, and what another rule keeps stays. Never one that an operator
    made, nor one of a rule that the schedule does not have any more. If no point that stays is on
    all nodes of the device, the newest that is stays: while a replica is away, points are made on
    the other alone, and that node's disks may be the next to go. Points whose slot lies ahead, made
    by a node with a wrong clock, neither count nor go: they would push out all that follow.

    Args:
        schedule: the schedule.
        points: the restore points of the device.
        nodes: the nodes with its replicas.
        now_s: the time.
    """
    intervals = {rule.interval for rule in schedule.rules}
    own = [
        (point.slot.begin_s, point.made_s, point)
        for point in points
        if point.slot is not None
        and not point.is_deleting
        and point.slot.begin_s < now_s + max(schedule.rules[0].every_s, _MAKING_S)
    ]
    newest_first = [point for *_, point in sorted(own, key=lambda each: each[:2], reverse=True)]
    kept = {
        point.token
        for rule in schedule.rules
        for point in [
            each for each in newest_first if each.slot and rule.interval in each.slot.intervals
        ][: rule.keep]
    }
    whole = [point.token for point in newest_first if set(nodes) <= set(point.nodes)]
    if whole and not kept & set(whole):
        kept.add(whole[0])
    return tuple(
        point
        for point in reversed(newest_first)
        if point.token not in kept and point.slot and set(point.slot.intervals) <= intervals
    )


def plan_pruning(cluster: Cluster, name: DeviceName, now_s: float) -> tuple[Change, ...]:
    """Return the changes by which the restore points go that a device's schedule no longer keeps.

    A restore point that something else still needs stays for now.

    Raises:
        Refused: there is no such device, it has no schedule, or there is no quorum; or what is on
            the device is not known, and an older restore point may be the last good one.
    """
    refuse_without_quorum(cluster)
    device, schedule = existing_device(cluster, name), cluster.cib.schedules.get(name.value)
    if schedule is None:
        raise Refused(
            Problem(
                "SAN-SCHED-005",
                f"device {name} has no schedule of restore points, so nothing says which to keep",
                f"'sanctl snapshot delete {name}@POINT' removes one",
            )
        )
    problem = unknown_content_problem(cluster, device)
    if problem is not None:
        raise Refused(problem)
    changes: list[Change] = []
    nodes = [node.value for node in device.nodes]
    for point in surplus(schedule, cluster.cib.points_of(name), nodes, now_s):
        try:
            changes += plan_point_deletion(cluster, name, point.name)
        except Refused:
            continue
    return tuple(changes)


def plan_schedule(
    cluster: Cluster,
    names: Sequence[DeviceName],
    rules: tuple[Rule, ...],
    now_s: float,
    hook: PointHook | None = None,
) -> tuple[Change, ...]:
    """Return the change that gives devices a schedule; without rules, that takes it away.

    Several have it together: their restore points are of the same moments. Without a hook the
    points are made without one, also where there was one before.

    Raises:
        Refused: there is no such device, or more restore points would be kept than there may be.
    """
    for name in names:
        existing_device(cluster, name)
    before = {name: cluster.cib.schedules.get(name.value) for name in names}
    if not rules:
        return tuple(RemoveSchedule(name=name) for name, schedule in before.items() if schedule)
    group = tuple(sorted(name.value for name in names)) if len(names) > 1 else ()
    wanted = PointSchedule(int(now_s), rules, hook, group)
    known = {schedule._replace(set_s=0) if schedule else None for schedule in before.values()}
    if known == {wanted._replace(set_s=0)} and len(set(before.values())) == 1:
        return ()
    schedules = {**cluster.cib.schedules, **{name.value: wanted for name in names}}
    # One more: the oldest goes when the next has been made.
    here = {
        name.value: wanted.keeps + 1 + _unscheduled(cluster, name.value, wanted) for name in names
    }
    everywhere = sum(
        schedule.keeps + 1 + _unscheduled(cluster, device, schedule)
        for device, schedule in schedules.items()
    ) + sum(point.device not in schedules and not point.is_deleting for point in cluster.cib.points)
    most = max(here, key=lambda name: here[name])
    if here[most] > MAX_POINTS or everywhere > MAX_ALL_POINTS:
        raise Refused(
            Problem(
                "SAN-SCHED-003",
                f"with this schedule device {most} would have up to {here[most]} restore points, "
                f"and all devices {everywhere}: at most {MAX_POINTS} and {MAX_ALL_POINTS}",
                "keep fewer, or delete some that no schedule removes: 'sanctl snapshot list'",
            )
        )
    return tuple(SetSchedule(name=name, schedule=wanted) for name in names)


def _unscheduled(cluster: Cluster, device: str, schedule: PointSchedule) -> int:
    """Return how many restore points a device has that its schedule does not count or remove."""
    intervals = {rule.interval for rule in schedule.rules}
    return sum(
        point.slot is None or not set(point.slot.intervals) <= intervals
        for point in cluster.cib.points_of(device)
        if not point.is_deleting
    )


def late_rules(
    schedule: PointSchedule, points: Collection[RestorePoint], now_s: float
) -> tuple[Rule, ...]:
    """Return the rules that are behind by more than two intervals.

    A time of setting the schedule that lies ahead of the present, by a wrong clock, does not count.
    """
    set_s = schedule.set_s if schedule.set_s <= now_s + _MAKING_S else 0
    return tuple(
        rule
        for rule in schedule.rules
        if now_s - max(last_slot(rule, points, now_s) or 0, set_s) > 2 * rule.every_s + _MAKING_S
    )


def next_slot(schedule: PointSchedule, points: Collection[RestorePoint], now_s: float) -> int:
    """Return when the next restore point is due, in seconds since 1970: now, or later."""
    if due_rules(schedule, points, now_s):
        return int(now_s)
    return min(rule.slot_of(now_s) + rule.every_s for rule in schedule.rules)
