# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on verifies: replicas that differ, and a schedule by which none comes to its end."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import format_bytes
from sanctl.model.verify_result import DIFFERS, INTERRUPTED, REPAIRING, VerifyResult
from sanctl.plan.drbd.verify_schedule import AHEAD_S

_DAY_S = 86400
#: Of a schedule's intervals: one verify may be interrupted, or have to wait for the next turn.
_INTERVALS = 2


def verify_findings(cluster: Cluster, device: DeviceSpec, *, now_s: float) -> Iterator[Finding]:
    """Return what the verifies of a device have found, and whether there are any.

    What a verify has found stays until a later one ends, or repairs it: one that runs, or is
    interrupted, says nothing of the replicas.
    """
    known = _results(cluster, device)
    # One that lies ahead is of a wrong clock, and may be older than the others.
    results = [each for each in known if each.order <= now_s + AHEAD_S] or known
    # The standby's result of the same order is that of its repair.
    newest = max((each.order for each in results), default=None)
    latest = [each for each in results if each.order == newest]
    if latest and all(each.result in {DIFFERS, INTERRUPTED} for each in latest):
        yield _difference(device, latest)
    yield from _schedule_findings(cluster, device, results, now_s)


def _results(cluster: Cluster, device: DeviceSpec) -> list[VerifyResult]:
    """Return all that say something of the replicas, or are repairing them."""
    found: list[VerifyResult] = []
    for node in device.nodes:
        key = (device.name.value, node.value)
        latest, record = cluster.cib.verifications.get(key), cluster.cib.verify_records.get(key)
        found += [each for each in (latest, record and record.ended) if each is not None]
    return [each for each in found if each.has_ended or each.result == REPAIRING]


def _difference(device: DeviceSpec, latest: list[VerifyResult]) -> Finding:
    found_kib = max(each.found_kib for each in latest)
    return Finding(
        code="SAN-HLT-039",
        severity=Severity.WARNING,
        subject=f"device {device.name}",
        what=f"a verify found {format_bytes(found_kib * 1024)} that differ between its replicas",
        why="a failover would show hosts other data",
        do="find out which replica is wrong (docs/howto/sync.md); if it is the one that serves, "
        f"'sanctl device move {device.name} --to NODE' first; then 'sanctl device verify "
        f"{device.name} --repair' sends the blocks again from the replica that serves",
    )


def _schedule_findings(
    cluster: Cluster, device: DeviceSpec, results: list[VerifyResult], now_s: float
) -> Iterator[Finding]:
    schedule = device.sync.verify
    if schedule is None or len(device.nodes) < 2:
        return
    keys = [(device.name.value, node.value) for node in device.nodes]
    # A node that is stopped takes back what it published: its verifies may be the newest.
    if any(cluster.replica(device.name, node).disk is None for node in device.nodes):
        return
    records = (cluster.cib.verify_records.get(key) for key in keys)
    since = [each.scheduled_s for each in records if each is not None and each.scheduled_s]
    since += [each.ended_s for each in results if each.has_ended]
    interval_s = _DAY_S if schedule.day is None else 7 * _DAY_S
    # Without any nothing is known: an older release of the agents tells no beginning.
    if not since or now_s - max(since) <= _INTERVALS * interval_s:
        return
    days = int((now_s - max(since)) // _DAY_S)
    yield Finding(
        code="SAN-HLT-136",
        severity=Severity.WARNING,
        subject=f"device {device.name}",
        what=f"its verify by schedule ({schedule}) has come to no end for {days} days",
        why="replicas that differ are not found, and a failover would show hosts other data",
        do=f"journalctl SANCTL_DEVICE={device.name} SANCTL_ACTION=verify on its nodes says why; "
        f"'sanctl device verify {device.name}' compares them now",
    )
