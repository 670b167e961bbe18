# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on copies at second sites: devices taken over there, schedules that are not kept."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
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
            do=f"keep its hosts off ('sanctl target deny {takeover.device}'); then bring home what "
            "was written there: docs/howto/site-lost.md"
            + (
                "; 'sanctl replicate takeover' of the device that goes on notes it at the site "
                f"again, 'sanctl replicate giveback {takeover.device} --at {takeover.site}' ends it"
                if takeover.is_lost
                else ""
            ),
        )
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
