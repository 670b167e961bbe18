# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds JSON data and text of a device's schedule of restore points."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sanctl.cli.views.point_hook import hook_data, hook_text
from sanctl.model.cluster import Cluster
from sanctl.model.point_schedule import interval_text
from sanctl.plan.device.point_schedule import last_slot, late_rules, next_slot

if TYPE_CHECKING:
    from sanctl.cli.documents import snapshot as snapshot_documents


def schedule_data(
    cluster: Cluster, device: str, now_s: float
) -> snapshot_documents.Schedule | None:
    """Return a device's schedule for the JSON output; None: it has none."""
    schedule = cluster.cib.schedules.get(device)
    if schedule is None:
        return None
    points = cluster.cib.points_of(device)
    late = late_rules(schedule, points, now_s)
    made = [point.made_s for point in points if point.slot is not None]
    return {
        "text": str(schedule),
        "hook": hook_data(schedule.hook),
        "group": list(schedule.group),
        "since": _iso(schedule.set_s),
        "next": _iso(next_slot(schedule, points, now_s)),
        "last": _iso(max(made)) if made else None,
        "rules": [
            {
                "every": rule.interval,
                "every_s": rule.every_s,
                "keep": rule.keep,
                "last_slot": None
                if (slot := last_slot(rule, points, now_s)) is None
                else _iso(slot),
                "late": rule in late,
            }
            for rule in schedule.rules
        ],
    }


def schedule_text(cluster: Cluster, device: str, now_s: float) -> str:
    """Return a device's schedule in one line, with the last restore point and the next."""
    data = schedule_data(cluster, device, now_s)
    if data is None:
        return "none"
    hook, group = cluster.cib.schedules[device].hook, cluster.cib.schedules[device].group
    late = [interval_text(rule["every_s"]) for rule in data["rules"] if rule["late"]]
    with_hook = f", {hook_text(hook)}" if hook else ""
    others = [each for each in group if each != device]
    with_hook += f", at the same moments as {', '.join(others)}" if others else ""
    return (
        f"{data['text']}{with_hook}; last {_short(data['last'])}, next {_short(data['next'])} UTC"
        + (f"; LATE: {', '.join(late)}" if late else "")
    )


def _iso(moment_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment_s))


def _short(moment: str | None) -> str:
    return "never" if moment is None else moment.rstrip("Z").replace("T", " ")
