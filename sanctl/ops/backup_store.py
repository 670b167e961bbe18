# SPDX-License-Identifier: GPL-2.0-or-later
"""Stores a restore point's file in a repository: the name of the backup, and what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from sanctl.drivers import backup_notes, point_files, pool_files
from sanctl.drivers.borg import Borg
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.backup import OWN_POINT, BackupName, is_own_point
from sanctl.model.backup_failure import BackupSuccess
from sanctl.model.names import PoolName
from sanctl.model.restore_point import RestorePoint
from sanctl.model.topology import Topology
from sanctl.ops.session import Session
from sanctl.parse.borg import Writer, number_of
from sanctl.plan.device.backups import device_uuids, left_over, open_archives
from sanctl.system import files

_SHOW_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOutcome:
    """A backup that was made.

    Attributes:
        name: its name.
        uuid: the device's UUID.
        size_bytes: the size of the device at the restore point.
        digest: the SHA-256 of what was read.
        stored_bytes: what it added to the repository, compressed; None: not known.
        duration_s: how long reading and storing took.
        succeeded_s: when it was done, in seconds since 1970.
        left: why something of it is still to be removed; empty: nothing is.
    """

    name: BackupName
    uuid: str
    size_bytes: int
    digest: str
    stored_bytes: int | None
    duration_s: float
    succeeded_s: int
    left: str = ""


def backup_name(point: RestorePoint) -> BackupName:
    """Return the name of the backup that a restore point becomes."""
    name = OWN_POINT if is_own_point(point.name) else point.name
    return BackupName(device=point.device, taken_s=point.made_s, point=name)


def store_point(
    session: Session,
    topology: Topology,
    borg: Borg,
    point: RestorePoint,
    *,
    here: str,
    every_s: int,
    before: Mapping[str, str],
) -> BackupOutcome:
    """Store a restore point's file in a repository, and note on this node's disk that it is there.

    Args:
        session: the cluster.
        topology: its nodes and pools.
        borg: the repository.
        point: the restore point.
        here: this node.
        every_s: the longest time between two runs of the timer that asks; 0: it does not say.
        before: the archives that were there before, with their comments.

    Raises:
        CommandError: it was not stored.
    """
    name, began_s = backup_name(point), session.clock.monotonic_s()
    shown = -_SHOW_BYTES

    def progress(done_bytes: int) -> None:
        nonlocal shown
        if done_bytes - shown >= _SHOW_BYTES:
            shown = done_bytes
            percent = 100.0 * done_bytes / point.size_bytes
            session.reporter.update(f"backup {name}: {percent:.0f} % read")

    path = _file_of(topology, point)
    try:
        # Of one device one is stored at a time, so those before it are all there.
        number = max(map(number_of, before.values()), default=0) + 1
        writer = Writer(here, int(session.clock.wall_s()), number)
        digest, stored = borg.store(
            name, path, point.size_bytes, progress, uuid=point.uuid, writer=writer
        )
    except OSError as error:
        raise CommandError(
            Problem("SAN-BKP-009", f"{path} cannot be read: {error.strerror or error}")
        ) from error
    borg.keep(name)
    success = BackupSuccess(
        point.device,
        borg.repository.name,
        point.uuid,
        int(session.clock.wall_s()),
        every_s,
    )
    with contextlib.suppress(OSError):
        backup_notes.succeed(success)
    with contextlib.suppress(SanctlError, OSError):
        # Only now: what they hold did not have to be sent once more.
        archives, now_s = borg.archives(), session.clock.wall_s()
        own = device_uuids(session.observe())
        still_open = open_archives(archives, point.device, here=here, now_s=now_s, own_uuids=own)
        borg.delete(left_over(archives, point.device, still_open))
    return BackupOutcome(
        name=name,
        uuid=point.uuid,
        size_bytes=point.size_bytes,
        digest=digest,
        stored_bytes=stored,
        duration_s=session.clock.monotonic_s() - began_s,
        succeeded_s=success.succeeded_s,
    )


def _file_of(topology: Topology, point: RestorePoint) -> str:
    pool = topology.pool(PoolName.parse(point.pool))
    if pool is None:
        raise CommandError(Problem("SAN-AGENT-004", f"cluster.toml has no pool {point.pool} here"))
    pool_files.check_marker(str(pool.path), pool.uuid)
    final = point_files.final_path(str(pool.path), point.device, point.uuid, point.token)
    # A copy that has not got its name yet is the restore point all the same: the CIB says so.
    return final if files.exists(final) else point_files.unnamed_path(final)
