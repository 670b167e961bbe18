# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: how much room a pool has to have before a restore point shares a device's blocks."""

from __future__ import annotations

from collections.abc import Iterable
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


def needed_bytes(pool_bytes: int, wanted: DataFile, others: Iterable[DataFile]) -> int:
    """Return how much has to be free, so that each device of the pool can write every block.

    A write to a shared block needs a new one, and so does one to a hole. After the copy all that
    is written in the wanted file is shared. Blocks that restore points hold are in use already.

    Args:
        pool_bytes: the size of the pool's filesystem.
        wanted: the file that is to be copied.
        others: the data files of the pool's other devices.
    """
    return (
        reserve_bytes(pool_bytes)
        + (wanted.size - wanted.reserved)
        + extent_map_bytes(wanted.size)
        + sum(max(0, other.size - other.reserved - other.own) for other in others)
    )
