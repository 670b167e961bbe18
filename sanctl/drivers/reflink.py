# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies of a file that share its blocks (FICLONE), and what a file shares with others.

FICLONE takes time for each extent of the file. The kernel lets no write to the file begin
meanwhile, writes dirty pages of the page cache out first, and waits for direct I/O in flight
(fs/remap_range.c, generic_remap_file_range_prep; fs/xfs/xfs_reflink.c). Extents that are reserved
and were never written are holes in the copy, and stay the file's own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from typing import NamedTuple

# linux/fs.h: FICLONE, FICLONERANGE, FS_IOC_FSGETXATTR with struct fsxattr; linux/fiemap.h.
_FICLONE, _FSGETXATTR, _FIEMAP = 0x40049409, 0x801C581F, 0xC020660B
_FSXATTR = struct.Struct("=IIIII8x")
_REQUEST, _EXTENT = struct.Struct("=QQIIII"), struct.Struct("=QQQ16xI12x")
_EXTENTS = 4096
_LAST, _UNWRITTEN, _SHARED = 0x1, 0x800, 0x2000


class FileBlocks(NamedTuple):
    """The blocks of a file, in bytes.

    Attributes:
        own: written, and shared with no other file.
        shared: written, and shared with another file.
        reserved: never written.
    """

    own: int
    shared: int
    reserved: int


def is_supported(folder: str) -> bool:
    """Whether the filesystem of a folder can share blocks between files; tried with empty files.

    Raises:
        OSError: it could not be tried.
    """
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    origin = os.open(folder, flags, 0o600)
    try:
        copy = os.open(folder, flags, 0o600)
        try:
            fcntl.ioctl(copy, _FICLONE, origin)
        except OSError as error:
            if error.errno in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY}:
                return False
            raise
        finally:
            os.close(copy)
    finally:
        os.close(origin)
    return True


def clone(origin: int, copy: int) -> None:
    """Give the open file `copy` the content of the open file `origin`, at one moment.

    Raises:
        OSError: the filesystem refused, or has no room for the copy's extent map.
    """
    fcntl.ioctl(copy, _FICLONE, origin)


def extent_count(path: str) -> int:
    """Return how many extents a file has; the kernel keeps the number in memory (XFS).

    Raises:
        OSError: the file is gone.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = fcntl.ioctl(handle, _FSGETXATTR, bytes(_FSXATTR.size))
        return int(_FSXATTR.unpack(found)[2])
    finally:
        os.close(handle)


def blocks_of(path: str) -> FileBlocks:
    """Return the blocks of a file; the time grows with its extents.

    Raises:
        OSError: the file is gone, or its filesystem does not tell.
    """
    own = shared = reserved = at = 0
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size, is_last = os.fstat(handle).st_size, False
        while at < size and not is_last:
            request = bytearray(_REQUEST.size + _EXTENTS * _EXTENT.size)
            _REQUEST.pack_into(request, 0, at, size - at, 0, 0, _EXTENTS, 0)
            fcntl.ioctl(handle, _FIEMAP, request)
            mapped = _REQUEST.unpack_from(request)[3]
            for number in range(mapped):
                offset = _REQUEST.size + number * _EXTENT.size
                logical, _physical, length, flags = _EXTENT.unpack_from(request, offset)
                # Reserved blocks may end behind the file's end.
                inside = max(0, min(logical + length, size) - logical)
                if flags & _UNWRITTEN:
                    reserved += inside
                elif flags & _SHARED:
                    shared += inside
                else:
                    own += inside
                at, is_last = logical + length, bool(flags & _LAST)
            if mapped < _EXTENTS:
                break
    finally:
        os.close(handle)
    return FileBlocks(own, shared, reserved)
