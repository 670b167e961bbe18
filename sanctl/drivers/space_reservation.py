# SPDX-License-Identifier: GPL-2.0-or-later
"""Reserves blocks of a pool for the holes of a device file, by fallocate(1) and FS_IOC_FIEMAP.

A write to a reserved place needs no free block, so that it cannot fail because the pool is full.
Reserved blocks read as zeros. What they held before is not shown (unwritten extents).

fallocate(1) and not posix_fallocate(3): where a filesystem cannot reserve, the latter writes to the
file, and would race with the writes of hosts.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from typing import NamedTuple

from sanctl.system.runner import Runner

_TIMEOUT_S = 5.0
#: While a slice is reserved no write to the file is answered, so it is small.
_SLICE_BYTES = 256 << 20
# linux/fiemap.h: struct fiemap, struct fiemap_extent, FS_IOC_FIEMAP.
_REQUEST, _EXTENT, _FIEMAP = struct.Struct("=QQIIII"), struct.Struct("=QQQ16xI12x"), 0xC020660B
_EXTENTS = 512
_LAST = 0x1


class Hole(NamedTuple):
    """A range of a file without blocks, in bytes."""

    at: int
    length: int


def unreserved_bytes(path: str) -> int:
    """Return how much of a file has no blocks yet, approximately; 0 for a file that is gone.

    The blocks of the file's extent map count as its own, so a small rest may be called nothing.
    """
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return 0
    return max(0, found.st_size - found.st_blocks * 512)


def next_hole(path: str, start: int) -> Hole | None:
    """Return the first hole of a file at or after a position, None where there is none.

    Raises:
        OSError: the file is gone, or its filesystem does not tell.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size, at = os.fstat(handle).st_size, start
        while at < size:
            request = bytearray(_REQUEST.size + _EXTENTS * _EXTENT.size)
            _REQUEST.pack_into(request, 0, at, size - at, 0, 0, _EXTENTS, 0)
            fcntl.ioctl(handle, _FIEMAP, request)
            mapped, is_last = _REQUEST.unpack_from(request)[3], False
            for number in range(mapped):
                offset = _REQUEST.size + number * _EXTENT.size
                logical, _physical, length, flags = _EXTENT.unpack_from(request, offset)
                if logical > at:
                    return Hole(at, min(logical, size) - at)
                at, is_last = max(at, logical + length), bool(flags & _LAST)
            if mapped < _EXTENTS or is_last:
                break
        return Hole(at, size - at) if at < size else None
    finally:
        os.close(handle)


def reserve(runner: Runner, path: str, *, keep_free_bytes: int, deadline_s: float) -> bool:
    """Reserve blocks for the holes of a file, as far as the time and the pool's room allow.

    The file's size stays. `deadline_s` is on the monotonic clock.

    Returns:
        Whether no hole is left.

    Raises:
        CommandError: the filesystem refused, or did not answer.
        OSError: the file is gone.
    """
    at = 0
    while (hole := next_hole(path, at)) is not None:
        status = os.statvfs(path)
        room = (status.f_bavail - keep_free_bytes // status.f_frsize) * status.f_frsize
        # One call for many small holes. What has blocks in between keeps them.
        length = min(os.stat(path).st_size - hole.at, _SLICE_BYTES, room)
        if time.monotonic() > deadline_s or length <= 0:
            return False
        runner.run(
            ["fallocate", "--keep-size", "--offset", str(hole.at), "--length", str(length), path],
            timeout_s=_TIMEOUT_S,
        )
        at = hole.at + length
    return True
