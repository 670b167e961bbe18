# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a pool has room for what hosts may write once one more file shares blocks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator

from sanctl.agents.points import known_blocks
from sanctl.drivers import pool_files, reflink
from sanctl.errors import CommandError, Problem
from sanctl.model.names import format_bytes
from sanctl.plan.device.known_blocks import at_least
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
    if needed_bytes(total, wanted, _known(pool, pool_path, without)) <= free:
        return
    # What is known may be more than is needed: by that nothing is refused.
    needed = needed_bytes(total, wanted, _exact(pool_path, without))
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


def _known(pool: str, pool_path: str, without: Collection[str]) -> Iterator[DataFile]:
    """Yield data files by what is known of each: they need as much room as the files, or more."""
    looks = known_blocks.looks(pool, pool_path, _others(pool_path, without))
    for name, look in looks.items():
        path = f"{pool_path}/devices/{name}"
        # A file that is removed meanwhile needs nothing any more.
        with contextlib.suppress(FileNotFoundError):
            allocated = known_blocks.allocated_bytes(path)
            yield at_least(look, size=pool_files.size_bytes(path) or 0, allocated=allocated)


def _exact(pool_path: str, without: Collection[str]) -> Iterator[DataFile]:
    for name in _others(pool_path, without):
        with contextlib.suppress(FileNotFoundError):
            yield of_file(f"{pool_path}/devices/{name}")


def _others(pool_path: str, without: Collection[str]) -> list[str]:
    names = known_blocks.names(pool_path, ".data")
    return [name for name in names if f"{pool_path}/devices/{name}" not in without]
