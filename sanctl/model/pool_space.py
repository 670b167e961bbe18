# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool's space: the reserve that is promised to no device, and a bound on a file's extent map."""

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
