# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on a device that goes back to a restore point: under way, or stuck."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import HELD
from sanctl.model.findings import Finding, Severity
from sanctl.plan.device.restore_progress import progress_text, stuck_problem


def restore_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return that no host is let in to a device, as it goes back to a restore point."""
    if not device.is_restoring:
        return
    subject = f"device {device.name}"
    source = device.restore.source if device.restore else "?"
    way = f"go back to another point: 'sanctl device restore {device.name} --to POINT'"
    if device.restore and device.restore.backup:
        way = f"delete it: 'sanctl device delete {device.name}'"
    elif device.restore and device.restore.copy:
        way = (
            f"take another copy: 'sanctl replicate failback {device.name} --from SITE --copy COPY'"
            + (f"; or {way}" if device.restore.kept_token else "")
        )
    if device.restore is not None and device.restore.state == HELD:
        yield _held_finding(subject, device, source)
        return
    problem = stuck_problem(cluster, device)
    if problem is None:
        yield Finding(
            code="SAN-HLT-110",
            severity=Severity.WARNING,
            subject=subject,
            what=f"it is being restored from {source}: {progress_text(cluster, device)}",
            why="no host is let in before it is what it was then",
            do="wait; it goes on by itself, on whichever node serves the device",
        )
        return
    yield Finding(
        code="SAN-HLT-111",
        severity=Severity.CRITICAL,
        subject=subject,
        what=f"its restore from {source} gets no further: {problem.text}",
        why="it may hold parts of two states, so no host is let in",
        do=problem.hint or f"mend that, and it goes on by itself; or {way}",
    )


def _held_finding(subject: str, device: DeviceSpec, source: str) -> Finding:
    return Finding(
        code="SAN-HLT-167",
        severity=Severity.WARNING,
        subject=subject,
        what=f"it is held as {source}: no host is let in",
        why="so the next copy comes as what has changed since this one",
        do=f"the next copy: 'sanctl replicate failback {device.name} --from SITE --copy COPY'; or "
        f"let hosts in to this one: 'sanctl replicate failback {device.name} --release'",
    )
