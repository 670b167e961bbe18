# SPDX-License-Identifier: GPL-2.0-or-later
"""Reserves blocks for the device files of a pool, and keeps the history of the pool's use.

What the cluster promises to devices is there only if nothing else takes it: a backup beside them, a
log. So the pool's monitor reserves blocks for every hole of a device file, a part each time. A host
that unmaps makes holes again, and they are reserved again. A write to a reserved place cannot fail
because the pool is full (docs/adr/0047).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection

from sanctl.agents.points import known_blocks
from sanctl.drivers import (
    loop,
    point_files,
    pool_files,
    pool_mount,
    pool_notes,
    space_reservation,
)
from sanctl.errors import SanctlError
from sanctl.model.pool_space import largest_file_bytes, reserve_bytes
from sanctl.plan.pool.usage_history import (
    add_sample,
    daily_growth_bytes,
    format_samples,
    parse_samples,
)
from sanctl.system import journal
from sanctl.system.runner import Runner

_USAGE = "usage"
# For all pools of a node: the monitor has other things to do, and writes wait for each slice.
_LONGEST_S = 3.0
_KINDS = (".data", ".meta")


def daily_growth(pool: str, *, total_bytes: int, free_bytes: int) -> int | None:
    """Add a sample to a pool's history, where one is due, and return how fast the pool grows.

    Returns:
        Bytes a day; None where that is not known, or the history cannot be kept.
    """
    with contextlib.suppress(OSError):
        before = parse_samples(pool_notes.read(pool, _USAGE))
        samples = add_sample(before, now_s=int(time.time()), used_bytes=total_bytes - free_bytes)
        if samples != before:
            pool_notes.write(pool, _USAGE, format_samples(samples))
        return daily_growth_bytes(samples)
    return None


def largest_file_field(path: str) -> str:
    """Return the field that is published of the largest file a pool can have; empty: not known."""
    with contextlib.suppress(OSError):
        mount = pool_mount.mount_of(path)
        block_bytes = os.statvfs(path).f_bsize
        largest = None if mount is None else largest_file_bytes(mount.fs_type, block_bytes)
        return "" if largest is None else f" largest-file={largest}"
    return ""


def own_bytes(pool: str, path: str, uuids: Collection[str]) -> int:
    """Return the written and reserved bytes of devices' files in a pool that need no new block.

    0 where it is not known what restore points share: then all of each device counts as promised.

    `uuids` are those of the devices that are promised room here. Whatever else lies beside their
    files only takes room: those of a dropped replica that are kept, say. Counted as written of what
    was promised, they would leave room to promise to another device, which is not there.

    Raises:
        OSError: the pool cannot be read.
    """
    allocated = pool_files.allocated_bytes(path, uuids)
    try:
        return max(0, allocated - _shared_bytes(pool, path, uuids))
    except OSError as error:
        journal.write(
            f"pool {pool}: what restore points share: {error}",
            priority=journal.ERROR,
            action="restore-points",
        )
        return 0


def _shared_bytes(pool: str, path: str, uuids: Collection[str]) -> int:
    """Return how much of devices' files in a pool is shared: a write there needs a block.

    With restore points, also deleted ones that are exported still, and among devices of which one
    was made from a restore point.
    """
    points = f"{path}/{point_files.FOLDER}/"
    is_read = any(file.startswith(points) for file in loop.backing_files())
    if not (is_read or point_files.listed(path) or known_blocks.clones(path)):
        return 0
    files = [name for name in _device_files(path) if pool_files.is_of(name, uuids)]
    looks = known_blocks.looks(pool, path, files)
    return sum(look.shared for look in looks.values())


def reserve_device_files(
    runner: Runner, usable: dict[str, str], *, without: frozenset[str] = frozenset()
) -> None:
    """Reserve blocks for the device files of pools, as far as that goes in a few seconds.

    An error is logged: what is not reserved may still be written while the pool has room.

    `usable` has the paths of usable pools by name, `without` `NAME.UUID` of devices whose files are
    about to be removed.
    """
    deadline_s = time.monotonic() + _LONGEST_S
    for name, path in usable.items():
        try:
            _reserve(runner, path, without, deadline_s)
        except (SanctlError, OSError) as error:
            journal.write(
                f"pool {name}: blocks could not be reserved: {error}",
                priority=journal.WARNING,
                action="reserve-space",
            )


def _reserve(runner: Runner, path: str, without: frozenset[str], deadline_s: float) -> None:
    keep_free_bytes = 0
    for entry in _device_files(path):
        file = f"{path}/devices/{entry}"
        if os.path.splitext(entry)[0] in without or not space_reservation.unreserved_bytes(file):
            continue
        if not keep_free_bytes:
            status = os.statvfs(path)
            keep_free_bytes = reserve_bytes(status.f_blocks * status.f_frsize)
        # A file that is removed meanwhile needs nothing any more.
        with contextlib.suppress(FileNotFoundError):
            if not space_reservation.reserve(
                runner, file, keep_free_bytes=keep_free_bytes, deadline_s=deadline_s
            ):
                return


def _device_files(path: str) -> list[str]:
    # Metadata first: without its blocks DRBD drops the disk as well, and they are few.
    return sorted(known_blocks.names(path, *_KINDS), key=lambda one: (one.endswith(".data"), one))
