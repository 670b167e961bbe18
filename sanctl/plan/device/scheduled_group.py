# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: restore points of several devices at one moment by a schedule that they have together.

Each device's process decides by itself, on the CIB, that the group is due and what its order is
(ADR 61): the same CIB, node and interval give the same order. Where they differ the processes do
not meet, and no point is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName
from sanctl.model.point_schedule import PointSchedule, Rule, ScheduledSlot
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.plan.device.point_group import plan_group_order
from sanctl.plan.device.point_schedule import (
    DuePoint,
    attempt_of,
    due_point,
    due_rules,
    plan_scheduled_point,
    point_name,
)
from sanctl.plan.device.restore_points import is_recorded


def rules_due_of_all(
    schedule: PointSchedule, points: Mapping[str, Sequence[RestorePoint]], now_s: float
) -> tuple[Rule, ...]:
    """Return the rules for whose present slot no device of a group has a restore point yet.

    One whose point was deleted gets none before the next slot: it would be of another moment.

    Args:
        schedule: the schedule that they have.
        points: the restore points of each device.
        now_s: the time.
    """
    due = [set(due_rules(schedule, each, now_s)) for each in points.values()]
    return tuple(rule for rule in schedule.rules if due and all(rule in each for each in due))


def due_points(
    cluster: Cluster, name: str, token: str, now_s: float, seed: str
) -> tuple[DuePoint, ...]:
    """Return what is due of a device, and of those that have their schedule together with it.

    The device's own is the first; none: nothing is due.

    Args:
        cluster: the cluster.
        name: the device.
        token: that of a point of this device alone.
        now_s: the time.
        seed: what is the same for all processes of this node since its boot, and of no other.

    Raises:
        Refused: it is due, and cannot be made now.
    """
    device, schedule = cluster.cib.device(name), cluster.cib.schedules.get(name)
    if device is None or schedule is None:
        return ()
    members = members_of(cluster, schedule)
    if name not in members or len(members) == 1:
        due = due_point(cluster, name, token, now_s)
        return (due,) if due else ()
    rules = rules_due_of_all(
        schedule, {each: cluster.cib.points_of(each) for each in members}, now_s
    )
    if not rules:
        return ()
    _refuse_different(cluster, schedule, members)
    slot = ScheduledSlot.of(rules, now_s)
    import hashlib  # noqa: PLC0415 - loads OpenSSL, and monitors do not need it

    text = f"{seed} {schedule.value} {slot} {attempt_of(schedule, now_s)} {' '.join(members)}"
    moment = hashlib.sha256(text.encode()).hexdigest()[:16]
    first = PointOrder(point_name(slot), moment, int(now_s), schedule.hook, members)
    orders = {DeviceName.parse(each): first.of_member(each) for each in members}
    # For what it refuses.
    plan_group_order(cluster, orders, now_s)
    others = [
        DuePoint(each, orders[each.name], slot)
        for member in members
        if member != name and (each := cluster.cib.device(member)) is not None
    ]
    return (DuePoint(device, orders[device.name], slot), *others)


def members_of(cluster: Cluster, schedule: PointSchedule) -> tuple[str, ...]:
    """Return the devices of a schedule's group; one that was deleted is none any more."""
    return tuple(each for each in schedule.group if cluster.cib.device(each) is not None)


def _refuse_different(cluster: Cluster, schedule: PointSchedule, members: Sequence[str]) -> None:
    other = [each for each in members if cluster.cib.schedules.get(each) != schedule]
    if other:
        raise Refused(
            Problem(
                "SAN-SCHED-006",
                f"devices {', '.join(members)} have their schedule together, and that of "
                f"{', '.join(other)} is another one",
                f"give it anew: 'sanctl snapshot schedule {' '.join(members)} "
                f'"{schedule}" --group' + (f" {schedule.hook.options}'" if schedule.hook else "'"),
            )
        )


def refuse_part_of_group(cluster: Cluster, names: Sequence[DeviceName]) -> None:
    """Raise Refused if a schedule would change for some of the devices that have it together."""
    for name in names:
        schedule = cluster.cib.schedules.get(name.value)
        members = members_of(cluster, schedule) if schedule else ()
        left = sorted(set(members) - {each.value for each in names})
        if name.value in members and left:
            raise Refused(
                Problem(
                    "SAN-SCHED-006",
                    f"device {name} has its schedule together with {', '.join(left)}",
                    f"name all: 'sanctl snapshot schedule {' '.join(members)} ... --group', with "
                    "rules or off",
                )
            )


def plan_scheduled_points(
    cluster: Cluster, points: Sequence[RestorePoint], now_s: float
) -> tuple[Change, ...]:
    """Return the change that adds what a schedule has made of its devices, all or none.

    None where the CIB has all of it, as where a change that was made is answered as one that was
    not.

    Raises:
        CommandError: the schedule or a device is not what it was, or there is such a point.
        Refused: one cannot be made now.
    """
    if all(is_recorded(cluster, point) for point in points):
        return ()
    names = sorted(point.device for point in points)
    schedules = [cluster.cib.schedules.get(name) for name in names]
    for name, schedule in zip(names, schedules, strict=True):
        members = members_of(cluster, schedule) if schedule else ()
        expected = list(members) if len(members) > 1 else [name]
        if schedule != schedules[0] or expected != names:
            raise CommandError(
                Problem(
                    "SAN-SCHED-004",
                    f"restore points of {', '.join(names)} are no longer due: their schedule has "
                    "changed",
                )
            )
    return tuple(
        change for point in points for change in plan_scheduled_point(cluster, point, now_s)
    )
