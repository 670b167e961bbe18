# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes this node off restore points whose file is certainly gone here, and remembers which.

Certainly: the pool has its marker, its folder of restore points was listed without an error, and
neither of the names that the file may have is there. What cannot be read is not known to be gone.

The note is what `sanctl status` tells by: once the CIB names this node no more, nothing else does.
It lasts until the restore point is deleted, its file is there again, or the node boots. A note that
outlives a boot says which restore points the node was taken off (`found_files`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from sanctl.agents import cluster_toml
from sanctl.drivers import point_files, pool_files, pool_notes
from sanctl.errors import SanctlError
from sanctl.model.restore_point import RestorePoint
from sanctl.ops.session import Session
from sanctl.plan.device.lost_files import is_expected, plan_files_lost
from sanctl.system import journal, state_files
from sanctl.system.files import exists


def noted() -> frozenset[str]:
    """Return the tokens of the restore points whose file is gone here.

    Raises:
        OSError: the note cannot be read.
    """
    return frozenset(_note().read().split())


def _note() -> state_files.StateFile:
    return state_files.of_node("points-lost")


def take_off(session: Session, usable: dict[str, str], points: Collection[RestorePoint]) -> None:
    """Look for the files of the restore points that this node is to have; note what is gone.

    Call with quorum.

    Args:
        session: the cluster.
        usable: the paths of the pools that are usable, by name.
        points: all restore points, as the CIB has them.

    Raises:
        SanctlError, OSError: the note cannot be written, or the CIB not changed: the next monitor
            tries again.
    """
    here, before = os.uname().nodename, noted()
    gone: list[RestorePoint] = []
    kept: set[str] = set()
    for pool in {point.pool for point in points}:
        of_pool = [point for point in points if point.pool == pool and not point.is_deleting]
        known = {point.token for point in of_pool} & before
        wanted = [
            point
            for point in of_pool
            if point.token in known or is_expected(point, here, time.time())
        ]
        if pool not in usable:
            kept |= known
            continue
        try:
            gone += _certainly_gone(pool, usable[pool], wanted)
        except (SanctlError, OSError) as error:
            kept |= known
            _log(f"pool {pool}: files of restore points are not looked for: {error}")
    lost = frozenset({point.token for point in gone} | kept)
    if lost != before:
        # First: after the change of the CIB nothing else would tell of them.
        _note().write(" ".join(sorted(lost)))
    for point in gone:
        if point.token not in before:
            _log(
                f"{point.device}: the file of restore point {point.name} is gone from pool "
                f"{point.pool} on {here}",
                point.device,
            )
    named = [point for point in gone if here in point.nodes and len(point.nodes) > 1]
    if named:
        # Before the change: a node that is off without a note is never added again.
        _note_taken_off(named, points)
        session.change(lambda seen: plan_files_lost(seen, named, here), reads_replicas=False)


def _note_taken_off(named: list[RestorePoint], points: Collection[RestorePoint]) -> None:
    present = {point.token for point in points}
    for pool in sorted({point.pool for point in named}):
        tokens = {point.token for point in named if point.pool == pool}
        pool_notes.note_taken_off(pool, pool_notes.POINTS_LOST, tokens, present)


def _certainly_gone(pool: str, path: str, points: list[RestorePoint]) -> list[RestorePoint]:
    """Return those of a pool's restore points whose file is not there.

    Raises:
        CommandError: what is at the path is not the pool.
        OSError: it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # All is asked of the filesystem that has the marker, whatever is unmounted meanwhile.
        pool_path = f"/proc/self/fd/{handle}"
        there = {file.token for file in point_files.listed(pool_path)}
        missing = [point for point in points if point.token not in there]
        if missing:
            found = cluster_toml.load_topology().pool(pool)
            pool_files.check_marker(pool_path, found.uuid if found is not None else "")
        # A listing may miss a file that is being renamed.
        return [point for point in missing if not _has_file(pool_path, point)]
    finally:
        os.close(handle)


def _has_file(pool_path: str, point: RestorePoint) -> bool:
    final = point_files.final_path(pool_path, point.device, point.uuid, point.token)
    # In the order in which the one becomes the other.
    return any(
        exists(path, follow_symlinks=False) for path in (point_files.unnamed_path(final), final)
    )


def _log(text: str, device: str = "") -> None:
    journal.write(text, priority=journal.WARNING, device=device, action="restore-points")
