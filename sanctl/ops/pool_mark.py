# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `pool prepare --anew` of a pool without flash: marks the filesystem on a new disk.

Nothing is formatted or removed. The replicas that the lost filesystem had are made anew, and filled
from their peers, once their node is online again.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from sanctl.drivers import pool_notes
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.topology import Pool
from sanctl.plan.pool.marking import DEVICES, MARKER, MountEvidence, marking_problems
from sanctl.system.files import fsync_folder, is_mount_point, read_text, write_atomically


def refuse_marking(pool: Pool, node: str) -> None:
    """Refuse to make what is mounted at a pool's path the pool, unless it is an empty filesystem.

    Raises:
        Refused: it is not.
        CommandError: it cannot be read.
    """
    try:
        problems = marking_problems(pool, node, _evidence(str(pool.path)))
    except OSError as error:
        raise CommandError(
            Problem(
                "SAN-POOL-003",
                f"pool {pool.name}: {error.filename or pool.path}: {error.strerror}",
                "the kernel's log ('journalctl -k') says what its disk has",
            )
        ) from error
    if problems:
        raise Refused(*problems)


def _evidence(path: str) -> MountEvidence:
    real, is_mounted = os.path.realpath(path), is_mount_point(path)
    if not is_mounted:
        return MountEvidence(False, real, (), None, False)
    entries = os.listdir(path)
    return MountEvidence(
        is_mounted=True,
        real_path=real,
        entries=entries,
        marker=read_text(f"{path}/{MARKER}").strip() if MARKER in entries else None,
        holds_devices=DEVICES in entries and bool(os.listdir(f"{path}/{DEVICES}")),
    )


def mark_pool(pool: Pool, node: str, give_up: Callable[[], object]) -> tuple[str, ...]:
    """Make the empty filesystem at a pool's path the pool; return what was done.

    After an interruption the command goes on.

    Args:
        pool: a pool without flash.
        node: this node.
        give_up: refuses while a replica that the node had may be needed, of the cluster as it is
            now; and has no restore point count on this node's files
            (sanctl/ops/pool_reformat.py, give_up_points). Before the marker, with which devices
            and restore points are made here again.

    Raises:
        Refused: another filesystem is mounted there, or none, or a replica may be needed.
        CommandError: what there is cannot be read.
        OSError: the filesystem takes no writes.
    """
    refuse_marking(pool, node)
    give_up()
    path = str(pool.path)
    # The marker first: a folder of devices without a marker is never the pool's.
    write_atomically(f"{path}/{MARKER}", f"{pool.uuid}\n")
    os.makedirs(f"{path}/{DEVICES}", mode=0o700, exist_ok=True)
    fsync_folder(path)
    # It was about the filesystem that is lost.
    pool_notes.clear(pool.name, pool_notes.SHUT_DOWN)
    return ("the pool's marker was written",)
