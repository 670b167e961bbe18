# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on restore points: files that are gone from a node, data files of many extents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.restore_point import MAX_EXTENTS, RestorePoint
from sanctl.plan.device.data_extents import MANY_EXTENTS, extents_by_node

_NAMED = 8


def lost_point_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return the nodes that have lost files of restore points, and the points that are lost."""
    lost = cluster.cib.lost_points
    fewer: dict[str, list[RestorePoint]] = defaultdict(list)
    nowhere: dict[str, list[RestorePoint]] = defaultdict(list)
    for point in cluster.cib.points:
        gone_from = sorted(node for token, node in lost if token == point.token)
        if point.is_deleting or not gone_from:
            continue
        if all((point.token, node) in lost for node in point.nodes):
            nowhere[point.device].append(point)
            continue
        for node in gone_from:
            fewer[node].append(point)
    for device, points in nowhere.items():
        yield Finding(
            code="SAN-HLT-124",
            severity=Severity.CRITICAL,
            subject=f"device {device}",
            what=f"no node has the file of these restore points any more: {_names(points)}",
            why="there is nothing to go back to, although they are listed",
            do=f"delete them: 'sanctl snapshot delete {points[0].device}@{points[0].name}'; a new "
            f"one: 'sanctl snapshot create {device}'",
        )
    for node, points in sorted(fewer.items()):
        yield Finding(
            code="SAN-HLT-124",
            severity=Severity.WARNING,
            subject=f"node {node}",
            what=f"files of restore points are gone from it: {_names(points)}",
            why="these are on other nodes alone: 'sanctl snapshot list' names them",
            do=f"find out why: 'journalctl SANCTL_ACTION=restore-points' on {node}; a new restore "
            "point is on all replicas in sync. The finding ends when these are deleted, or the "
            "node boots",
        )


def extent_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return the devices whose data files come near the number of extents that is copied."""
    for device in cluster.cib.devices:
        counts = extents_by_node(cluster, device)
        many = {node: count for node, count in counts.items() if count >= MANY_EXTENTS}
        if not many:
            continue
        listed = ", ".join(f"{count} on {node}" for node, count in many.items())
        is_refused = max(many.values()) > MAX_EXTENTS
        yield Finding(
            code="SAN-HLT-126",
            severity=Severity.WARNING,
            subject=f"device {device.name}",
            what=f"its file has {listed} of the {MAX_EXTENTS} extents with which a restore point "
            "is made",
            why="no restore point of it is made any more, nor what needs one: schedules, backups, "
            "copies at a site (SAN-SNAP-002)"
            if is_refused
            else "each restore point lets hosts wait longer, and may miss its half second "
            "(SAN-SNAP-007); beyond the limit none is made, nor what needs one: schedules, "
            "backups, copies at a site (SAN-SNAP-002)",
            do="restore points at longer intervals add fewer; a replica that is dropped and "
            f"filled anew has few: 'sanctl device replicas {device.name} ...', as "
            "docs/howto/restore-points.md says under 'A file of many extents'",
        )


def _names(points: list[RestorePoint]) -> str:
    names = ", ".join(f"{point.device}@{point.name}" for point in points[:_NAMED])
    return names if len(points) <= _NAMED else f"{names} and {len(points) - _NAMED} more"
