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
_FICLONE, _FICLONERANGE, _FSGETXATTR, _FIEMAP = 0x40049409, 0x4020940D, 0x801C581F, 0xC020660B
_FSXATTR, _CLONE_RANGE = struct.Struct("=IIIII8x"), struct.Struct("=qQQQ")
#: In fsx_xflags: the file is written synchronously.
_XFLAG_SYNC = 0x20
_REQUEST, _EXTENT = struct.Struct("=QQIIII"), struct.Struct("=QQQ16xI12x")
_EXTENTS = 4096
#: A record of an extent in numbers of 64 and of 32 bits, and where the flags are in the latter.
_EXTENT_FIELDS, _EXTENT_WORDS, _FLAGS_WORD = 7, 14, 10
_LAST, _UNWRITTEN, _SHARED = 0x1, 0x800, 0x2000
#: Not known, not allocated yet, encoded, encrypted, not in blocks of its own (inline, a tail).
_NOT_EXACT = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400
#: Of these: not allocated yet, as its pages are dirty.
_DIRTY = 0x2 | 0x4
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


def clone_range(origin: int, copy: int, begin: int, end: int) -> None:
    """Give `copy` a range of the open file `origin`, whole blocks or up to the end of both.

    Raises:
        OSError: the filesystem refused, has no room, or copied a part alone.
    """
    try:
        fcntl.ioctl(copy, _FICLONERANGE, _CLONE_RANGE.pack(origin, begin, end - begin, begin))
    except OSError as error:
        if error.errno == errno.EINVAL:
            # Also what kernels before 6.13 say where the room was not enough for all of it.
            raise OSError(
                errno.EIO, "a range was not copied, or not all; is the pool full?"
            ) from error
        raise


def is_synchronous(handle: int) -> bool:
    """Whether an open file has the flag that makes each write to it a synchronous one.

    Raises:
        OSError: the filesystem does not tell.
    """
    found = fcntl.ioctl(handle, _FSGETXATTR, bytes(_FSXATTR.size))
    return bool(_FSXATTR.unpack(found)[0] & _XFLAG_SYNC)


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


def written_blocks(handle: int, *, settled: bool) -> list[tuple[int, int, int]] | None:
    """Return where the written blocks of an open file are: begin, place on the disk, length.

    In order, and not cut off at the file's end. Without a name for each field: hosts wait for it.

    Args:
        handle: the open file.
        settled: no page of it is dirty. Else blocks of dirty pages are left out.

    Returns:
        None where the filesystem does not tell of some, or a page is dirty all the same.

    Raises:
        OSError: the filesystem tells nothing.
    """
    found: list[tuple[int, int, int]] = []
    wrong = _NOT_EXACT if settled else _NOT_EXACT & ~_DIRTY
    without = _UNWRITTEN | (0 if settled else _DIRTY)
    for records in _records(handle, 0):
        # All fields of a kind at once: hosts wait for this.
        fields, words = records.cast("Q"), records.cast("I")
        kinds = set(words[_FLAGS_WORD::_EXTENT_WORDS])
        if any(flags & wrong for flags in kinds):
            return None
        each_field = (fields[at::_EXTENT_FIELDS].tolist() for at in range(3))
        extents = list(zip(*each_field, strict=True))
        if any(flags & without for flags in kinds):
            flags_of = words[_FLAGS_WORD::_EXTENT_WORDS]
            extents = [
                each for each, flags in zip(extents, flags_of, strict=True) if not flags & without
            ]
        found += extents
    return found


def _map(handle: int, request_flags: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield begin, end, place on the disk and flags of each extent (linux/fiemap.h)."""
    size = os.fstat(handle).st_size
    for records in _records(handle, request_flags):
        for begin, physical, length, flags in _EXTENT.iter_unpack(records):
            # Reserved blocks may end behind the file's end.
            yield begin, max(begin, min(begin + length, size)), physical, flags


def _records(handle: int, request_flags: int) -> Iterator[memoryview]:
    """Yield the kernel's records of a file's extents, many at a time (linux/fiemap.h)."""
    at, size, is_last = 0, os.fstat(handle).st_size, False
    while at < size and not is_last:
        request = bytearray(_REQUEST.size + _EXTENTS * _EXTENT.size)
        _REQUEST.pack_into(request, 0, at, size - at, request_flags, 0, _EXTENTS, 0)
        fcntl.ioctl(handle, _FIEMAP, request)
        mapped = _REQUEST.unpack_from(request)[3]
        end = _REQUEST.size + mapped * _EXTENT.size
        yield memoryview(request)[_REQUEST.size : end]
        if mapped < _EXTENTS:
            break
        begin, _physical, length, flags = _EXTENT.unpack_from(request, end - _EXTENT.size)
        at, is_last = begin + length, bool(flags & _LAST)
