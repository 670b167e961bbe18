# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a pool has room for what hosts may write once one more file shares blocks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

from sanctl.drivers import pool_files, reflink
from sanctl.errors import CommandError, Problem
from sanctl.model.names import format_bytes
from sanctl.plan.device.point_room import DataFile, needed_bytes


def of_file(path: str) -> DataFile:
    """Return the size and the blocks of a data file.

    Raises:
        OSError: the file is gone, or its filesystem does not tell.
    """
    blocks = reflink.blocks_of(path)
    return DataFile(pool_files.size_bytes(path) or 0, blocks.own, blocks.reserved)


def check(pool: str, pool_path: str, wanted: DataFile, *, without: Collection[str] = ()) -> None:
    """Check that each device of the pool can write every block it shares, and `wanted` as well.

    A write to a shared block needs a new one. Blocks that points hold alone are in use already.

    Args:
        pool: the pool's name.
        pool_path: its folder.
        wanted: the file whose blocks are to be shared.
        without: paths of data files that are not counted: `wanted` stands for them.

    Raises:
        CommandError: it has not.
        OSError: the pool cannot be read.
    """
    status = os.statvfs(pool_path)
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    folder = f"{pool_path}/devices"
    paths = [f"{folder}/{name}" for name in os.listdir(folder) if name.endswith(".data")]
    others = []
    for path in paths:
        # A file that is removed meanwhile needs nothing any more.
        with contextlib.suppress(FileNotFoundError):
            others += [of_file(path)] if path not in without else []
    needed = needed_bytes(total, wanted, others)
    if free < needed:
        raise CommandError(
            Problem(
                "SAN-SNAP-003",
                f"pool {pool} has {format_bytes(free)} free, and {format_bytes(needed)} "
                "would be needed: hosts may write each block anew that restore points or clones "
                "share",
                "delete restore points or devices, or make the pool larger",
            )
        )
