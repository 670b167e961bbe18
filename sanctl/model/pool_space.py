# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool's space: the reserve that is promised to no device, and bounds on a file and its map."""

from __future__ import annotations

_MIB = 1 << 20
_GIB = 1 << 30

#: Percent of a pool in use at which `sanctl status` warns, and warns once more.
FILLING_PERCENT, NEARLY_FULL_PERCENT = 80, 95


def reserve_bytes(total_bytes: int) -> int:
    """Return how much of a pool is kept for the filesystem itself and for sanctl's notes.

    One percent, between 64 MiB and 16 GiB, and never more than a sixteenth. XFS keeps nothing for
    root as ext4 does, and both need free blocks for the extents of files that are full already.
    """
    return min(max(total_bytes // 100, 64 * _MIB), total_bytes // 16, 16 * _GIB)


def extent_map_bytes(size_bytes: int) -> int:
    """Return a bound on the filesystem's own blocks for the extents of a file.

    An extent takes 12 bytes (ext4) or 16 (XFS), and in the worst case each block of 4 KiB is one.
    """
    return size_bytes // 256


def largest_file_bytes(fs_type: str, block_bytes: int) -> int | None:
    """Return the largest file of a filesystem; None where no device comes near it.

    ext4 counts the blocks of a file with 32 bits (fs/ext4/super.c, ext4_max_size): 16 TiB less a
    block of 4 KiB. XFS and btrfs end at 8 EiB.
    """
    return ((1 << 32) - 1) * block_bytes if fs_type == "ext4" else None
