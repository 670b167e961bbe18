# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on copies at second sites: devices taken over there, schedules that are not kept."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.device_restore import HELD
from sanctl.model.findings import Finding, Severity
from sanctl.model.site import CopySchedule, ProvenCopy
from sanctl.model.site_takeover import Takeover
from sanctl.plan.site.copy_order import is_ahead
from sanctl.plan.site.group_record import is_group_late, present_devices
from sanctl.plan.site.schedule import is_late
from sanctl.plan.site.takeover import takeover_text


def site_findings(cluster: Cluster, *, now_s: float) -> Iterator[Finding]:
    """Return devices that go on elsewhere, and those whose copies are older than is allowed."""
    for takeover in cluster.cib.takeovers:
        if cluster.cib.takeover(takeover.device, takeover.site) is None:
            continue
        yield Finding(
            code="SAN-HLT-116",
            severity=Severity.CRITICAL,
            subject=f"device {takeover.device}",
            what=takeover_text(takeover.site, takeover.successor, is_lost=takeover.is_lost),
            why="what hosts write here is not there, and one of both is given up; no copy is made "
            "of it any more",
            do=(
                "it is held, so no host is let in: SAN-HLT-167 says how the roles turn"
                if _is_held(cluster, takeover)
                else f"keep its hosts off ('sanctl target deny {takeover.device} --all'); then "
                "bring home what was written there: docs/howto/site-lost.md"
            )
            + (
                "; 'sanctl replicate takeover' of the device that goes on notes it at the site "
                f"again, 'sanctl replicate giveback {takeover.device} --at {takeover.site}' ends it"
                if takeover.is_lost
                else ""
            ),
        )
    yield from _group_findings(cluster, now_s)
    for schedule in cluster.cib.copy_schedules:
        record = cluster.cib.copy(schedule.device, schedule.site)
        if (
            cluster.cib.device(schedule.device) is None
            or cluster.cib.takeover(schedule.device, schedule.site) is not None
            or not is_late(schedule, record, now_s)
        ):
            continue
        proven = record.proven if record else None
        age_s = int(now_s) - (proven.made_s if proven else schedule.set_s)
        took_s = _took_s(schedule, proven, now_s) if proven else 0
        age = f"is {age_s // 60} minutes old"
        if proven is not None and is_ahead(proven.made_s, now_s):
            age = "is of a moment that has not come yet, as a clock was ahead"
        yield Finding(
            code="SAN-HLT-112",
            severity=Severity.WARNING,
            subject=f"device {schedule.device}",
            what=(
                f"its newest copy at site {schedule.site} {age}"
                if proven
                else f"it has no copy at site {schedule.site} yet"
                + (f", after {age_s // 60} minutes" if age_s > 0 else "")
            )
            + f", and one is due every {schedule.rule.interval}",
            why="if this cluster were lost, so would be what was written since",
            do=f"copies are proven, and take longer than the schedule allows ({took_s // 60} "
            "minutes the newest): 'sanctl replicate schedule "
            f"{schedule.device} --to {schedule.site} --every ...' with a longer interval, or more "
            "of the line ('sanctl site list' shows a limit)"
            if proven and took_s
            else f"'journalctl SANCTL_DEVICE={schedule.device} SANCTL_ACTION=replicate' on its "
            "standby says why. A node makes one copy at a time ('sanctl replicate status' shows "
            "those under way), and a first copy takes as long as it takes",
        )


def _is_held(cluster: Cluster, takeover: Takeover) -> bool:
    """Whether the device that was taken over is held as a copy of the one that goes on."""
    device = cluster.cib.device(takeover.device)
    order = device.restore if device is not None else None
    copy = order.copy if order is not None and order.state == HELD else None
    return copy is not None and copy.uuid == takeover.successor.uuid


def _took_s(schedule: CopySchedule, proven: ProvenCopy, now_s: float) -> int:
    """Return how long the newest copy took, in seconds, if that is why it is late; else 0.

    It was proven not long ago: copies do get there.
    """
    since_s = now_s - proven.proven_s
    took_s = proven.proven_s - proven.made_s
    is_new = 0 <= since_s <= 3 * schedule.rule.every_s
    return took_s if is_new and took_s > schedule.rule.every_s else 0


def _group_findings(cluster: Cluster, now_s: float) -> Iterator[Finding]:
    """Return groups whose newest complete moment is older than is allowed, or cannot be made."""
    for group in cluster.cib.copy_groups:
        present = {each.name.value for each in present_devices(cluster, group)}
        gone = [name for name in group.devices if name not in present]
        taken = [
            name
            for name in group.devices
            if name in present and cluster.cib.takeover(name, group.site) is not None
        ]
        stay = [name for name in group.devices if name in present and name not in taken]
        if taken and not stay:
            continue  # SAN-HLT-116 of each says so.
        # No moment of it becomes complete any more.
        is_broken = bool(gone or taken) and group.schedule is not None
        if not (is_group_late(group, now_s) or is_broken):
            continue
        names = " ".join(group.devices)
        since = f"a run was begun {_minutes(now_s - group.begun_s)} ago" if group.begun_s else ""
        age = f"no moment is complete at site {group.site}"
        if group.complete:
            is_unknown = is_ahead(group.complete.made_s, now_s)
            age = f"the newest moment that is complete at site {group.site} " + (
                "has not come yet, as a clock was ahead"
                if is_unknown
                else f"is {_minutes(now_s - group.complete.made_s)} old"
            )
        due = f"one is due every {group.rule.interval}" if group.rule else ""
        lost = f"device {', '.join(gone)} that was copied is there no more" if gone else ""
        split = (
            f"device {', '.join(taken)} was taken over at site {group.site}, and no more "
            f"moments are made of {', '.join(stay)}, copied together with it"
            if taken
            else ""
        )
        off = f"'sanctl replicate schedule {names} --to {group.site} --group --every off'"
        yield Finding(
            code="SAN-HLT-122",
            severity=Severity.WARNING,
            subject=f"devices {', '.join(group.devices)}",
            what=", and ".join(part for part in (split, lost, age, due, since) if part),
            why="if this cluster were lost, so would be what was written since: newer copies of "
            "single devices do not belong together",
            do=(
                f"{off}; then 'sanctl replicate schedule DEVICE --to {group.site} --every "
                f"{group.rule.interval if group.rule else '15m'}' of each that goes on here: "
                f"{', '.join(stay)}"
                if taken
                else f"{off}, and a run of the others with --without"
                if gone
                else f"'sanctl replicate run {names} --to {group.site} --group' says why; a first "
                f"copy takes as long as it takes. If they are not copied together any more: {off}"
            ),
        )


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60} minutes"
