# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: how much room a pool has to have before a restore point shares a device's blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sanctl.model.pool_space import extent_map_bytes, reserve_bytes


class DataFile(NamedTuple):
    """The data file of a replica, in bytes.

    Attributes:
        size: its size.
        own: blocks written and shared with no other file.
        reserved: blocks that were never written, and are the file's own.
    """

    size: int
    own: int
    reserved: int


class ClaimedFile(NamedTuple):
    """A data file of which a process makes a copy, or one that it makes as a copy, just now.

    Attributes:
        name: the name of the file.
        size: its size, in bytes.
    """

    name: str
    size: int


def with_claims(
    others: Iterable[tuple[str, DataFile]], claims: Collection[ClaimedFile]
) -> Iterator[DataFile]:
    """Yield the data files of a pool as they are once the copies that are under way are made.

    Args:
        others: the files that are there, by name.
        claims: what is being copied, or made; not the file that is asked for.
    """
    left = {claim.name: claim for claim in claims}
    for name, file in others:
        # All that is written in it will be shared.
        yield file._replace(own=0) if left.pop(name, None) else file
    for claim in left.values():
        yield DataFile(claim.size, 0, 0)


def needed_bytes(
    pool_bytes: int,
    wanted: DataFile,
    others: Iterable[DataFile],
    claims: Collection[ClaimedFile] = (),
) -> int:
    """Return how much has to be free, so that each device of the pool can write every block.

    A write to a shared block needs a new one, and so does one to a hole. After the copy all that
    is written in the wanted file is shared. Blocks that restore points hold are in use already.

    Args:
        pool_bytes: the size of the pool's filesystem.
        wanted: the file that is to be copied.
        others: the data files of the pool's other devices (`with_claims`).
        claims: of which copies are under way: each gets an extent map of its own.
    """
    return (
        reserve_bytes(pool_bytes)
        + (wanted.size - wanted.reserved)
        + extent_map_bytes(wanted.size)
        + sum(extent_map_bytes(claim.size) for claim in claims)
        + sum(max(0, other.size - other.reserved - other.own) for other in others)
    )
