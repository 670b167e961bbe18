# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a pool has room for what hosts may write once one more file shares blocks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator

from sanctl.agents.points import known_blocks, room_claims
from sanctl.agents.points.room_claims import Claim
from sanctl.drivers import pool_files, reflink
from sanctl.errors import CommandError, Problem
from sanctl.model.names import format_bytes
from sanctl.plan.device.known_blocks import at_least
from sanctl.plan.device.point_room import ClaimedFile, DataFile, needed_bytes, with_claims


def of_file(path: str) -> DataFile:
    """Return the size and the blocks of a data file.

    Raises:
        OSError: the file is gone, or its filesystem does not tell.
    """
    blocks = reflink.blocks_of(path)
    return DataFile(pool_files.size_bytes(path) or 0, blocks.own, blocks.reserved)


def claim(pool: str, pool_path: str, path: str, wanted: DataFile, token: str) -> Claim:
    """Check as `check` that there is room for a copy, and have others count it from now on.

    The claim is to be ended when the copy is made, or is not made.

    Args:
        pool: the pool's name.
        pool_path: its folder.
        path: the data file that is copied, or made as a copy.
        wanted: that file.
        token: what no other copy of this process has.

    Raises:
        CommandError: there is no room, or it is not known what others were granted.
        OSError: the pool cannot be read.
    """
    with room_claims.locked(pool):
        claims = room_claims.present(pool)
        check(pool, pool_path, wanted, without=(path,), claims=claims)
        return room_claims.note(pool, os.path.basename(path), wanted.size, token)


def check(
    pool: str,
    pool_path: str,
    wanted: DataFile,
    *,
    without: Collection[str] = (),
    claims: Collection[ClaimedFile] = (),
) -> None:
    """Check that each device of the pool can write every block it shares, and `wanted` as well.

    A write to a shared block needs a new one. Blocks that points hold alone are in use already.

    Args:
        pool: the pool's name.
        pool_path: its folder.
        wanted: the file whose blocks are to be shared.
        without: paths of data files that are not counted: `wanted` stands for them.
        claims: of what copies are under way.

    Raises:
        CommandError: it has not.
        OSError: the pool cannot be read.
    """
    status = os.statvfs(pool_path)
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    others = [one for one in claims if f"{pool_path}/devices/{one.name}" not in without]
    known = with_claims(_known(pool, pool_path, without), others)
    if needed_bytes(total, wanted, known, claims) <= free:
        return
    # What is known may be more than is needed: by that nothing is refused.
    needed = needed_bytes(total, wanted, with_claims(_exact(pool_path, without), others), claims)
    if free < needed:
        raise CommandError(
            Problem(
                "SAN-SNAP-003",
                f"pool {pool} has {format_bytes(free)} free, and {format_bytes(needed)} "
                "would be needed: hosts may write each block anew that restore points or clones "
                "share" + (", those that are being made now among them" if claims else ""),
                "delete restore points or devices, or make the pool larger",
            )
        )


def _known(pool: str, pool_path: str, without: Collection[str]) -> Iterator[tuple[str, DataFile]]:
    """Yield data files by what is known of each: they need as much room as the files, or more."""
    looks = known_blocks.looks(pool, pool_path, _others(pool_path, without))
    for name, look in looks.items():
        path = f"{pool_path}/devices/{name}"
        # A file that is removed meanwhile needs nothing any more.
        with contextlib.suppress(FileNotFoundError):
            allocated = known_blocks.allocated_bytes(path)
            size = pool_files.size_bytes(path) or 0
            yield name, at_least(look, size=size, allocated=allocated)


def _exact(pool_path: str, without: Collection[str]) -> Iterator[tuple[str, DataFile]]:
    for name in _others(pool_path, without):
        with contextlib.suppress(FileNotFoundError):
            yield name, of_file(f"{pool_path}/devices/{name}")


def _others(pool_path: str, without: Collection[str]) -> list[str]:
    names = known_blocks.names(pool_path, ".data")
    return [name for name in names if f"{pool_path}/devices/{name}" not in without]
