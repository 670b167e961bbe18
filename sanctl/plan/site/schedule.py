# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: when a device is copied to a site by itself, and by which node; when that is late.

All follows from the CIB, which has the newest proven copy: so whatever node is a standby goes on
where another one stopped. Slots are those of schedules of restore points (ADR 61).
"""

from __future__ import annotations

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import Change, RemoveCopySchedule, SetCopySchedule
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.point_schedule import Rule
from sanctl.model.site import CopyRecord, CopySchedule
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.site.copy_order import is_ahead
from sanctl.plan.site.definition import existing_site

#: After a failure the schedule tries again when its interval, or this, has passed.
_TRY_AGAIN_S = 3600
#: How long after its slot has begun a copy may take to be begun.
_BEGIN_S = 60


def is_due(schedule: CopySchedule, record: CopyRecord | None, now_s: float) -> bool:
    """Whether no copy is proven of a restore point that was made in the present slot.

    A moment ahead, by a node with a wrong clock, does not count.
    """
    proven = record.proven if record else None
    if proven is None or is_ahead(proven.made_s, now_s):
        return True
    return schedule.rule.slot_of(proven.made_s) < schedule.rule.slot_of(now_s)


def attempt_of(rule: Rule, now_s: float) -> int:
    """Return when the time began in which one attempt is made, in seconds since 1970."""
    return Rule(min(rule.every_s, _TRY_AGAIN_S), 1).slot_of(now_s)


def sender_of(cluster: Cluster, device: DeviceSpec) -> str | None:
    """Return the node that copies a device by itself: its first standby in sync; None: none is."""
    active = cluster.active_node(device.name)
    standbys = (
        node.value
        for node in device.nodes
        if node.value != active and cluster.is_in_sync(device, node)
    )
    return next(standbys, None) if active is not None else None


def plan_copy_schedule(
    cluster: Cluster, name: DeviceName, site: str, rule: Rule | None, now_s: float
) -> tuple[Change, ...]:
    """Return the change that has a device copied by itself; without a rule, that ends it.

    Raises:
        Refused: there is no such device or site, or the device has one replica alone.
    """
    device = existing_device(cluster, name)
    before = cluster.cib.copy_schedule(name.value, site)
    if rule is None:
        if before is None:
            existing_site(cluster, site)
            return ()
        return (RemoveCopySchedule(schedule=before),)
    existing_site(cluster, site)
    if before is not None and before.rule == rule:
        return ()
    if len(device.nodes) < 2:
        raise Refused(one_replica_problem(device))
    return (SetCopySchedule(schedule=CopySchedule(name.value, site, int(now_s), rule)),)


def one_replica_problem(device: DeviceSpec) -> Problem:
    """Return that a device without a standby is copied by command alone."""
    return Problem(
        "SAN-SITE-010",
        f"device {device.name} has one replica, and a schedule reads a standby",
        f"'sanctl device replicas {device.name} 2'; or 'sanctl replicate run --from-active' now "
        "and then",
    )


def is_late(schedule: CopySchedule, record: CopyRecord | None, now_s: float) -> bool:
    """Whether the newest proven copy is older than two intervals, and one to make it in.

    One that was made ahead of the present, by a wrong clock, does not count: its age is not known.
    Nor does it count that the schedule was set ahead of the present.
    """
    made_s = record.proven.made_s if record and record.proven else 0
    since_s = max(each for each in (0, made_s, schedule.set_s) if not is_ahead(each, now_s))
    return now_s - since_s > 3 * schedule.rule.every_s + _BEGIN_S
