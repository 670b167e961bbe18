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
from collections.abc import Iterator
from typing import NamedTuple

from sanctl.model.extent import Extent

# linux/fs.h: FICLONE, FICLONERANGE, FS_IOC_FSGETXATTR with struct fsxattr; linux/fiemap.h.
_FICLONE, _FSGETXATTR, _FIEMAP = 0x40049409, 0x801C581F, 0xC020660B
_FSXATTR = struct.Struct("=IIIII8x")
_REQUEST, _EXTENT = struct.Struct("=QQIIII"), struct.Struct("=QQQ16xI12x")
_EXTENTS = 4096
_LAST, _UNWRITTEN, _SHARED = 0x1, 0x800, 0x2000
#: Not known, not allocated yet, encoded, encrypted, not in blocks of its own (inline, a tail).
_NOT_EXACT = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400
#: FIEMAP_FLAG_SYNC: flush the file first.
_SYNC = 0x1


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
    """Give `copy`, an open and empty file, the content of the open file `origin`, at one moment.

    Only a signal that kills the process ends it before (fs/xfs/xfs_reflink.c,
    xfs_reflink_remap_blocks): what is there then is no copy.

    Raises:
        OSError: the filesystem refused, or has no room for the copy's extent map.
    """
    size_bytes = os.fstat(origin).st_size
    fcntl.ioctl(copy, _FICLONE, origin)
    # Kernels before 6.13 call a copy that an error ended in the middle a success
    # (xfs_file_remap_range in fs/xfs/xfs_file.c).
    copied_bytes = os.fstat(copy).st_size
    if copied_bytes < size_bytes:
        raise OSError(errno.EIO, f"the copy ended at byte {copied_bytes} of {size_bytes}")


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
    own = shared = reserved = 0
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for begin, end, _physical, flags in _map(handle, 0):
            if flags & _UNWRITTEN:
                reserved += end - begin
            elif flags & _SHARED:
                shared += end - begin
            else:
                own += end - begin
    finally:
        os.close(handle)
    return FileBlocks(own, shared, reserved)


def extents_of(handle: int) -> list[Extent]:
    """Return the written extents of an open file, in order, after a flush of the file.

    Two files whose extents are at one place on the disk have the same content there, for as long as
    neither is written: a filesystem that shares blocks never writes one that is shared.

    Raises:
        OSError: the filesystem does not tell, or the file cannot be flushed.
    """
    return [
        Extent(begin, end, None if flags & _NOT_EXACT else physical, bool(flags & _SHARED))
        for begin, end, physical, flags in _map(handle, _SYNC)
        if not flags & _UNWRITTEN
    ]


def _map(handle: int, request_flags: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield begin, end, place on the disk and flags of each extent (linux/fiemap.h)."""
    at, size, is_last = 0, os.fstat(handle).st_size, False
    while at < size and not is_last:
        request = bytearray(_REQUEST.size + _EXTENTS * _EXTENT.size)
        _REQUEST.pack_into(request, 0, at, size - at, request_flags, 0, _EXTENTS, 0)
        fcntl.ioctl(handle, _FIEMAP, request)
        mapped = _REQUEST.unpack_from(request)[3]
        for number in range(mapped):
            offset = _REQUEST.size + number * _EXTENT.size
            begin, physical, length, flags = _EXTENT.unpack_from(request, offset)
            # Reserved blocks may end behind the file's end.
            yield begin, max(begin, min(begin + length, size)), physical, flags
            at, is_last = begin + length, bool(flags & _LAST)
        if mapped < _EXTENTS:
            break
