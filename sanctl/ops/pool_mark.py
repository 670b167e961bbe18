# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `pool prepare --anew` of a pool without flash: marks the filesystem on a new disk.

Nothing is formatted or removed. The replicas that the lost filesystem had are made anew, and filled
from their peers, once their node is online again. The node knows the new filesystem by its id: the
lost one is not the pool any more, should its disk answer one day, unless an operator accepts it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from sanctl.drivers import loop, pool_files, pool_notes
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.topology import Pool
from sanctl.plan.pool.marking import (
    DEVICES,
    MARKER,
    MountEvidence,
    accepting_problems,
    distrusting_problems,
    marking_problems,
)
from sanctl.system.files import fsync_folder, is_mount_point, read_text, write_atomically


def refuse_marking(pool: Pool, node: str) -> None:
    """Refuse to make what is mounted at a pool's path the pool, unless it is an empty filesystem.

    Raises:
        Refused: it is not.
        CommandError: it cannot be read.
    """
    with _reading(pool):
        problems = marking_problems(pool, node, _evidence(str(pool.path)))
    if problems:
        raise Refused(*problems)


@contextlib.contextmanager
def _reading(pool: Pool) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(
            Problem(
                "SAN-POOL-003",
                f"pool {pool.name}: {error.filename or pool.path}: {error.strerror}",
                "the kernel's log ('journalctl -k') says what its disk has",
            )
        ) from error


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


def mark_pool(
    pool: Pool, node: str, give_up: Callable[[], object], identifier: str
) -> tuple[str, ...]:
    """Make the empty filesystem at a pool's path the pool; return what was done.

    After an interruption the command goes on.

    Args:
        pool: a pool without flash.
        node: this node.
        give_up: refuses while a replica that the node had may be needed, of the cluster as it is
            now; and has no restore point count on this node's files
            (sanctl/ops/pool_reformat.py, give_up_points). Before the marker, with which devices
            and restore points are made here again.
        identifier: what the filesystem is known by from now on; no other one has it.

    Raises:
        Refused: another filesystem is mounted there, or none, or a replica may be needed.
        CommandError: what there is cannot be read.
        OSError: the filesystem takes no writes, or the note cannot be written.
    """
    refuse_marking(pool, node)
    give_up()
    path = str(pool.path)
    # The note first: from now on the lost filesystem is not the pool any more.
    pool_notes.write(pool.uuid, pool_notes.FILESYSTEM, identifier)
    pool_files.write_filesystem_id(path, identifier)
    # The marker first: a folder of devices without a marker is never the pool's.
    write_atomically(f"{path}/{MARKER}", f"{pool.uuid}\n")
    os.makedirs(f"{path}/{DEVICES}", mode=0o700, exist_ok=True)
    fsync_folder(path)
    # It was about the filesystem that is lost.
    pool_notes.clear(pool.name, pool_notes.SHUT_DOWN)
    return ("the pool's marker was written",)


def is_another_filesystem(pool: Pool, node: str) -> bool:
    """Whether what is mounted at a pool's path is of the pool, and would have to be accepted.

    Raises:
        Refused: it is not marked as the pool, or replicas in it are started.
        CommandError: what there is cannot be read.
    """
    path = str(pool.path)
    with _reading(pool):
        is_used = any(each.startswith(f"{path}/") for each in loop.backing_files())
        problems = accepting_problems(pool, node, _evidence(path), is_used=is_used)
        if problems:
            raise Refused(*problems)
        found = pool_files.filesystem_id(path)
        return found != pool_notes.read(pool.uuid, pool_notes.FILESYSTEM).strip()


def accept_filesystem(pool: Pool, node: str) -> tuple[str, ...]:
    """Take the filesystem that is mounted at a pool's path for the pool's; return what was done.

    Of what it holds nobody knows how old it is: each replica counts as one that may lack
    acknowledged writes. It is filled whole from the one that serves; where none does an operator
    chooses (`sanctl device heal`).

    Raises:
        Refused: it is not marked as the pool, or replicas in it are started.
        CommandError: what there is cannot be read.
        OSError: a note cannot be written.
    """
    path = str(pool.path)
    if not is_another_filesystem(pool, node):
        return ()
    with _reading(pool):
        found = pool_files.filesystem_id(path)
    # First: where the process dies in between the filesystem is still refused. The agents mark the
    # replicas by it before they start one (sanctl/agents/recovery/pool_remount.py).
    pool_notes.write(pool.name, pool_notes.SHUT_DOWN)
    if found:
        pool_notes.write(pool.uuid, pool_notes.FILESYSTEM, found)
    else:
        pool_notes.clear(pool.uuid, pool_notes.FILESYSTEM)
    return ("the filesystem is the pool's from now on, and its replicas count as suspect",)


def distrust_pool(pool: Pool, node: str, *, is_standby: bool) -> tuple[str, ...]:
    """Have each replica in a pool on this node count as suspect; return what was done.

    For a filesystem that fsck has repaired: it takes away blocks of files, or files, and nothing
    says of which replica. DRBD's metadata still calls them up to date, and a connection sends what
    its bitmap says alone. The agents mark the replicas by the note before they start one
    (sanctl/agents/recovery/pool_remount.py).

    Args:
        pool: the pool, mounted or not.
        node: this node.
        is_standby: Pacemaker has put the node into standby.

    Raises:
        Refused: replicas in it are started, or may be.
        OSError: what is in use cannot be read, or the note cannot be written.
    """
    is_used = any(each.startswith(f"{pool.path}/") for each in loop.backing_files())
    problems = distrusting_problems(pool, node, is_standby=is_standby, is_used=is_used)
    if problems:
        raise Refused(*problems)
    pool_notes.write(pool.name, pool_notes.SHUT_DOWN)
    return ("its replicas count as suspect",)
