# SPDX-License-Identifier: GPL-2.0-or-later
"""Adds this node again to restore points that it was taken off although it has their file.

An older copy of the filesystem was mounted for a moment; a `pool prepare --anew` was killed, or its
change of the CIB was applied after it had given up. Nothing else would name the node again: its
file would be used by nothing, and be removed by nothing.

Only what the notes of this node say that it was taken off: the CIB has named it once, so its copy
is of the moment of the others. A copy of an attempt that another node began anew has the same token
and is of another moment. Once the CIB names the node again the notes say so no more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from sanctl.agents import cluster_toml
from sanctl.drivers import point_files, pool_files, pool_notes
from sanctl.model.cib_change import Change, SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.restore_point import RestorePoint
from sanctl.ops.session import Session
from sanctl.plan.device.lost_files import may_be_added, plan_files_found
from sanctl.system import journal
from sanctl.system.files import exists


def add_again(session: Session, usable: dict[str, str], points: Collection[RestorePoint]) -> None:
    """Add this node to the restore points whose file is here again, in one change.

    Call with quorum.

    Args:
        session: the cluster.
        usable: the paths of the pools that are usable, by name.
        points: all restore points, as the CIB has them.

    Raises:
        SanctlError, OSError: a note or a pool cannot be read, or the CIB not changed: the next
            monitor tries again.
    """
    here, now_s = os.uname().nodename, time.time()
    off = {
        pool: pool_notes.taken_off(pool)
        for pool in {point.pool for point in points} & usable.keys()
    }
    wanted = [
        point
        for point in points
        if point.token in off.get(point.pool, ()) and may_be_added(point, here, now_s)
    ]
    if not _there(usable, wanted):
        return

    def decide(seen: Cluster) -> tuple[Change, ...]:
        # Again, after the CIB was read: --anew takes the node off when the pool is unmounted. A
        # change that was planned before that is refused, as the CIB has changed.
        return plan_files_found(seen, _there(usable, wanted), here)

    for change in session.change(decide, reads_replicas=False):
        if isinstance(change, SetPoint):
            point = change.point
            journal.write(
                f"{point.device}: the file of restore point {point.name} is in pool {point.pool} "
                f"on {here}, which was taken off it: the restore point is on {here} again",
                priority=journal.WARNING,
                device=point.device,
                action="restore-points",
            )


def forget(usable: dict[str, str], points: Collection[RestorePoint]) -> None:
    """Forget that this node was taken off restore points, once the CIB names it for them again.

    A CIB that is put back from a backup later may lack the restore point: by the note it would
    count as deleted, and the files go from all nodes that were off once (`deleted_points`). Only
    where the file is there: a node that is about to be taken off is still named.

    Args:
        usable: the paths of the pools that are usable, by name.
        points: all restore points, as the CIB has them.

    Raises:
        CommandError, OSError: a note or a pool cannot be read: the next monitor tries again.
    """
    here = os.uname().nodename
    for pool in sorted({point.pool for point in points} & usable.keys()):
        off = pool_notes.taken_off(pool)
        named = [
            point
            for point in points
            if point.pool == pool and point.token in off and here in point.nodes
        ]
        if tokens := {point.token for point in _there(usable, named)}:
            pool_notes.forget_taken_off(pool, tokens)


def _there(usable: dict[str, str], points: Collection[RestorePoint]) -> list[RestorePoint]:
    """Return those of the restore points whose file is in its pool, under its final name.

    Raises:
        CommandError: what is at a path is not the pool.
        OSError: it cannot be read.
    """
    found: list[RestorePoint] = []
    for pool in sorted({point.pool for point in points}):
        known = cluster_toml.load_topology().pool(pool)
        if known is None or pool_notes.is_of(pool, pool_notes.MAKING, known.uuid):
            continue  # The pool begins anew.
        handle = os.open(usable[pool], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # All is asked of the filesystem that has the marker.
            path = f"/proc/self/fd/{handle}"
            pool_files.check_marker(path, known.uuid)
            found += [
                each
                for each in points
                if each.pool == pool
                and exists(
                    point_files.final_path(path, each.device, each.uuid, each.token),
                    follow_symlinks=False,
                )
            ]
        finally:
            os.close(handle)
    return found
