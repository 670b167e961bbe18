# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on a pool's space: 80 and 95 percent in use, when it is full, promises not covered."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.device import PoolUsage
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import NodeName, PoolName, format_bytes
from sanctl.model.pool_space import FILLING_PERCENT, NEARLY_FULL_PERCENT
from sanctl.plan.device.placement import missing_bytes
from sanctl.plan.pool.usage_history import full_on


def space_findings(
    cluster: Cluster, pool: PoolName, node: NodeName, usage: PoolUsage, *, now_s: float
) -> Iterator[Finding]:
    """Return what is wrong with the space of a pool that can be used, or soon will be."""
    subject, make_room = f"pool {pool} on {node}", _make_room(cluster, pool, node)
    missing = missing_bytes(cluster, pool, node)
    if missing:
        yield Finding(
            code="SAN-HLT-063",
            severity=Severity.CRITICAL,
            subject=subject,
            what=f"its devices may still write {format_bytes(missing)} more than it has free",
            why="a write that finds no room takes the replica's disk away; where that happens to "
            "each replica, the device freezes",
            do=make_room,
        )
    used = usage.total_bytes - usage.free_bytes
    if not usage.total_bytes or used * 100 < usage.total_bytes * FILLING_PERCENT:
        return
    is_nearly_full = used * 100 >= usage.total_bytes * NEARLY_FULL_PERCENT
    day = full_on(free_bytes=usage.free_bytes, daily_growth=usage.daily_growth_bytes, now_s=now_s)
    foretold = f"; full on {day} at the rate of the last 24 hours" if day is not None else ""
    yield Finding(
        code="SAN-HLT-064" if is_nearly_full else "SAN-HLT-062",
        severity=Severity.WARNING,
        subject=subject,
        # Rounded down: 95 is said from 95 percent on.
        what=f"{used * 100 // usage.total_bytes} % are in use, {format_bytes(usage.free_bytes)} of "
        f"{format_bytes(usage.total_bytes)} are free{foretold}",
        why="what devices hold is reserved; new devices, the resize of one, and blocks that hosts "
        "have unmapped need room",
        do=make_room,
    )


def _make_room(cluster: Cluster, pool: PoolName, node: NodeName) -> str:
    """Say how a pool gets room: restore points first, where it has some."""
    has_points = any(
        each.pool == pool.value and node.value in each.nodes and not each.is_deleting
        for each in cluster.cib.points
    )
    first = (
        "delete restore points ('sanctl snapshot list' shows what each alone holds; 'sanctl "
        "snapshot delete DEVICE@POINT'), "
        if has_points
        else ""
    )
    return (
        f"{first}grow the filesystem, move replicas ('sanctl device replicas DEVICE COUNT --add "
        f"NODE --drop {node}') or delete devices, or remove what is none of sanctl's in it"
    )
