# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on schedules of restore points: those that are not kept."""

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
