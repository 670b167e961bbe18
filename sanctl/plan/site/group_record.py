# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what the cluster notes of the moments of groups at sites, and when one is due or too old.

The site decides what is complete. What is noted is what was seen last: for `replicate status`, the
schedule and the findings, which do not ask the site.
"""

from __future__ import annotations

from collections.abc import Sequence

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import Change, RemoveGroupRecord, SetGroupRecord
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.point_schedule import PointSchedule, Rule
from sanctl.model.site_group import CompleteMoment, GroupRecord
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.site.copy_order import is_ahead
from sanctl.plan.site.definition import existing_site
from sanctl.plan.site.schedule import one_replica_problem

#: How long runs may have begun, and no moment be complete, before that is a finding.
_RUN_S = 3600
#: How long after its slot has begun a moment may take to be made.
_BEGIN_S = 60


def group_record(cluster: Cluster, devices: Sequence[str], site: str) -> GroupRecord | None:
    """Return what is known of a group at a site; None: nothing is of just these devices."""
    names = tuple(sorted(devices))
    found = (each for each in cluster.cib.copy_groups if (each.devices, each.site) == (names, site))
    return next(found, None)


def present_devices(cluster: Cluster, record: GroupRecord) -> list[DeviceSpec]:
    """Return the devices of a group that there are; not one that was made anew under the name."""
    found = (cluster.cib.device(name) for name in record.devices)
    return [each for each in found if each and record.has(each.name.value, each.uuid)]


def _new(devices: Sequence[DeviceSpec], site: str) -> GroupRecord:
    return GroupRecord.of(((each.name.value, each.uuid) for each in devices), site)


def plan_group_begun(
    cluster: Cluster, devices: Sequence[DeviceSpec], site: str, now_s: int
) -> tuple[Change, ...]:
    """Return the changes as a run of a group begins: it takes the place of groups it overlaps.

    Raises:
        Refused: another group with one of the devices is copied by a schedule.
    """
    new = _new(devices, site)
    record = group_record(cluster, new.devices, site) or new
    if record.members != new.members:
        record = new._replace(schedule=record.schedule)
    return _replacing(cluster, record._replace(begun_s=record.begun_s or now_s))


def plan_group_complete(
    cluster: Cluster, devices: Sequence[DeviceSpec], site: str, moment: CompleteMoment
) -> tuple[Change, ...]:
    """Return the change as a moment is complete; none if the group is another one by now."""
    new = _new(devices, site)
    known = group_record(cluster, new.devices, site)
    if known is None or known.members != new.members:
        return ()
    return (SetGroupRecord(record=known._replace(begun_s=0, complete=moment)),)


def plan_group_schedule(
    cluster: Cluster, devices: Sequence[str], site: str, rule: Rule | None, now_s: float
) -> tuple[Change, ...]:
    """Return the change that has a group copied by itself; without a rule that ends.

    Then nothing is known of the group any more; what the site has stays.

    Raises:
        Refused: there is no such device or site, a device has one replica alone, or another group
            with one of them is copied by a schedule.
    """
    known = group_record(cluster, devices, site)
    if rule is None:
        if known is None:
            existing_site(cluster, site)
        return (RemoveGroupRecord(record=known),) if known else ()
    existing_site(cluster, site)
    found = [existing_device(cluster, DeviceName.parse(name)) for name in devices]
    problems = [one_replica_problem(device) for device in found if len(device.nodes) < 2]
    if problems:
        raise Refused(*problems)
    record = _new(found, site)
    if known is not None and known.members == record.members:
        if known.rule == rule:
            return ()
        record = known
    return _replacing(cluster, record._replace(schedule=PointSchedule(int(now_s), (rule,))))


def _replacing(cluster: Cluster, record: GroupRecord) -> tuple[Change, ...]:
    """Return the changes by which a group takes the place of others with one of its devices."""
    gone = [
        each
        for each in cluster.cib.copy_groups
        if each.site == record.site
        and each.devices != record.devices
        and not set(each.devices).isdisjoint(record.devices)
    ]
    problems = [_scheduled(each) for each in gone if each.schedule is not None]
    if problems:
        raise Refused(*problems)
    # Of one with the same first device the property is written anew.
    others = (RemoveGroupRecord(record=each) for each in gone if each.id != record.id)
    return (*others, SetGroupRecord(record=record))


def _scheduled(record: GroupRecord) -> Problem:
    names = " ".join(record.devices)
    return Problem(
        "SAN-SITE-031",
        f"devices {', '.join(record.devices)} are copied to site {record.site} together, by a "
        "schedule",
        f"first: 'sanctl replicate schedule {names} --to {record.site} --group --every off'",
    )


def is_group_due(record: GroupRecord, now_s: float) -> bool:
    """Whether no moment is complete that was made in the present slot.

    One that was made ahead of it, by a node with a wrong clock, does not count.
    """
    rule = record.rule
    return rule is not None and rule.slot_of(_made_s(record, now_s)) < rule.slot_of(now_s)


def sender_of_group(cluster: Cluster, group: GroupRecord) -> str | None:
    """Return the node that copies a group by itself; None: none can.

    The first node that is a standby in sync of all devices; one node has to serve all of them.
    """
    devices = present_devices(cluster, group)
    active = {cluster.active_node(device.name) for device in devices}
    if len(devices) < len(group.devices) or len(active) != 1 or None in active:
        return None
    return next(
        (
            node.value
            for node in devices[0].nodes
            if node.value not in active
            and all(node in device.nodes and cluster.is_in_sync(device, node) for device in devices)
        ),
        None,
    )


def is_group_late(record: GroupRecord, now_s: float) -> bool:
    """Whether the newest complete moment is older than its schedule or its runs allow.

    By a schedule than two intervals, and one to make it in; else whether runs were begun a while
    ago, and none has made its moment complete.
    """
    if record.schedule is not None:
        set_s = record.schedule.set_s
        # Of a clock that was ahead nothing would be late before it is reached.
        since_s = max(_made_s(record, now_s), 0 if is_ahead(set_s, now_s) else set_s)
        return now_s - since_s > 3 * record.schedule.rules[0].every_s + _BEGIN_S
    return record.begun_s > 0 and abs(now_s - record.begun_s) > _RUN_S


def _made_s(record: GroupRecord, now_s: float) -> int:
    """Return when the newest complete moment was made; 0: none was, or ahead of the present."""
    made_s = record.complete.made_s if record.complete else 0
    return 0 if is_ahead(made_s, now_s) else made_s
