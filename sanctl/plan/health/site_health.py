# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on copies at second sites: schedules that are not kept."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.plan.site.schedule import is_late


def site_findings(cluster: Cluster, *, now_s: float) -> Iterator[Finding]:
    """Return the devices whose newest copy at a site is older than its schedule allows."""
    for schedule in cluster.cib.copy_schedules:
        record = cluster.cib.copy(schedule.device, schedule.site)
        if cluster.cib.device(schedule.device) is None or not is_late(schedule, record, now_s):
            continue
        proven = record.proven if record else None
        age_s = int(now_s) - (proven.made_s if proven else schedule.set_s)
        yield Finding(
            code="SAN-HLT-112",
            severity=Severity.WARNING,
            subject=f"device {schedule.device}",
            what=(
                f"its newest copy at site {schedule.site} is {age_s // 60} minutes old"
                if proven
                else f"it has no copy at site {schedule.site} yet, after {age_s // 60} minutes"
            )
            + f", and one is due every {schedule.rule.interval}",
            why="if this cluster were lost, so would be what was written since",
            do=f"'journalctl SANCTL_DEVICE={schedule.device} SANCTL_ACTION=replicate' on its "
            "standby says why; a first copy takes as long as it takes",
        )
