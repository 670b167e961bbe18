# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on restore points: schedules that are not kept, and hooks that failed."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.plan.device.point_schedule import late_rules


def schedule_findings(cluster: Cluster, *, now_s: float) -> Iterator[Finding]:
    """Return the devices whose schedule is behind by more than two intervals."""
    for name, schedule in sorted(cluster.cib.schedules.items()):
        late = late_rules(schedule, cluster.cib.points_of(name), now_s)
        if cluster.cib.device(name) is None or not late:
            continue
        failures = [
            f"{node} says {failure.code}: {failure.text}"
            for (device, node), failure in sorted(cluster.cib.point_failures.items())
            if device == name
        ]
        yield Finding(
            code="SAN-HLT-098",
            severity=Severity.WARNING,
            subject=f"device {name}",
            what="its schedule of restore points is behind by more than two intervals: "
            + ", ".join(rule.interval for rule in late),
            why="; ".join(failures) or "there is less to go back to than was asked for",
            do=f"'journalctl SANCTL_DEVICE={name} SANCTL_ACTION=snapshot' on the node that serves "
            f"it says why; 'sanctl snapshot schedule {name}' shows the schedule",
        )


def hook_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return the devices whose newest restore point has a hook that failed."""
    for device in cluster.cib.devices:
        points = [each for each in cluster.cib.points_of(device.name) if not each.is_deleting]
        newest = max(points, key=lambda each: each.made_s, default=None)
        hook = newest.hook if newest else None
        if newest is None or hook is None or not (hook.before or hook.after):
            continue
        yield Finding(
            code="SAN-HLT-119",
            severity=Severity.WARNING,
            subject=f"device {device.name}",
            what=f"hook {hook.name} failed after its newest restore point, {newest.name} "
            f"({hook.after})"
            if hook.after
            else f"hook {hook.name} failed before its newest restore point, {newest.name} "
            f"({hook.before}), which is as after a power cut",
            why="the application may still be quiet, and not serve"
            if hook.after
            else "what was asked for is an application-consistent one",
            do="see to the application; 'journalctl -t sanctl-hook' on the node that served the "
            "device has what the hook said. The finding ends with the next restore point",
        )
