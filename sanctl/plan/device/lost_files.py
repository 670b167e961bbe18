# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: restore points whose file is gone from a node that the CIB names, or is there again.

A pool was emptied by an older release, a filesystem was repaired, somebody removed a file. A node
that is named and has no file passes for one that has the restore point: the last real file may go
then without a word, and what reads the file there fails.
"""

from __future__ import annotations

from collections.abc import Collection

from sanctl.model.cib_change import Change, SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.restore_point import RestorePoint

#: The file of a younger one may still be on its way, with nodes' clocks apart.
_YOUNG_S = 600.0


def is_expected(point: RestorePoint, node: str, now_s: float) -> bool:
    """Whether a node has to have a file of a restore point at that time."""
    return node in point.nodes and not point.is_deleting and now_s - point.made_s > _YOUNG_S


def may_be_added(point: RestorePoint, node: str, now_s: float) -> bool:
    """Whether a node that is not named for a restore point is to be, if it has the file."""
    return node not in point.nodes and not point.is_deleting and now_s - point.made_s > _YOUNG_S


def plan_files_lost(
    cluster: Cluster, points: Collection[RestorePoint], node: str
) -> tuple[Change, ...]:
    """Return the change after files of restore points were found to be gone from a node.

    A restore point that no other node has stays as it is: it is forgotten only by an operator, who
    is told (`sanctl status`), and until then nothing else takes its name.
    """
    present = {each.id: each for each in cluster.cib.points}
    changes = []
    for point in points:
        now = present.get(point.id)
        if now is None or now.token != point.token or now.is_deleting:
            continue
        left = tuple(each for each in now.nodes if each != node)
        if left and left != now.nodes:
            changes.append(SetPoint(point=now._replace(nodes=left)))
    return tuple(changes)


def is_deleted(cluster: Cluster, device: str, uuid: str, token: str) -> bool:
    """Whether the restore point of a file, which the CIB has had once, was deleted since.

    Not where the CIB has not got the device, either: it may have lost both.
    """
    found = cluster.cib.device(device)
    order = found.point_order if found is not None else None
    return (
        found is not None
        and found.uuid == uuid
        and (order is None or order.token != token)
        and not any(point.token == token for point in cluster.cib.points)
    )


def plan_files_found(
    cluster: Cluster, points: Collection[RestorePoint], node: str
) -> tuple[Change, ...]:
    """Return the change after files were found of restore points that a node was taken off.

    A node whose replica was dropped is none of them: its files are about to go.
    """
    present = {each.id: each for each in cluster.cib.points}
    changes = []
    for point in points:
        now = present.get(point.id)
        if now is None or now.token != point.token or now.is_deleting or node in now.nodes:
            continue
        device = cluster.cib.device(now.device)
        if (
            device is not None
            and device.uuid == now.uuid
            and node in {each.value for each in device.nodes}
        ):
            changes.append(SetPoint(point=now._replace(nodes=tuple(sorted((*now.nodes, node))))))
    return tuple(changes)
