# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes a file's dirty pages to its disk, in pieces, so that it can end before all are written.

sync_file_range(2) writes a range and waits for it. It flushes neither the disk's own cache nor the
file's metadata: what it has written is stable after an fsync alone.

It tells an error of writing back as fsync does, once for each open file, and calls the error seen
(fs/sync.c, file_fdatawait_range; mm/filemap.c, file_check_and_advance_wb_err; lib/errseq.c): a
flush through a file that is opened later does not tell it again. So an error here is a failed
flush.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

# linux/fs.h: SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE, _WAIT_AFTER
_ALL = 0x1 | 0x2 | 0x4
_CACHESTAT = 451
#: What is written at a time: in random blocks ten seconds of a slow disk, at the worst.
_PIECE_BYTES = 4 << 20
#: The longest range that is asked about at a time.
_MOST_BYTES = 4 << 30
#: Where the kernel does not tell what is dirty: the longest range that is written, after one that
#: was clean, as it took no time. A call for each few MiB of many TiB would take all the time there
#: is, and the next flush begins anew.
_MOST_UNTOLD_BYTES, _CLEAN_S = 64 << 20, 0.1


class CachedPages(NamedTuple):
    """The pages of a range of a file that are in RAM: all, and those not yet on the disk."""

    cached: int
    dirty: int


def write_out(handle: int) -> None:
    """Return when all pages of an open file that are dirty now are written.

    Raises:
        OSError: some could not be written, and are lost; no other flush may tell it.
    """
    _writer(handle)(0, 0)


def write_range(handle: int, begin: int, end: int) -> None:
    """Return when the pages of a range of an open file that are dirty now are written.

    Raises:
        OSError: as of `write_out`.
    """
    _writer(handle)(begin, end - begin)


def write_out_within(handle: int, within_s: float) -> bool:
    """As `write_out`, piece by piece until the time is over; return whether all are written.

    At least one piece is. For a file of which no more pages become dirty: it is gone through once.

    Raises:
        OSError: as of `write_out`.
    """
    end_s = time.monotonic() + within_s
    write, page_bytes = _writer(handle), os.sysconf("SC_PAGE_SIZE")
    at, size, length, has_written = 0, os.fstat(handle).st_size, _PIECE_BYTES, False
    tells = True
    while at < size:
        pages = cached_pages(handle, at, length) if tells else None
        tells = pages is not None
        if pages and pages.dirty * page_bytes > _PIECE_BYTES and length > _PIECE_BYTES:
            length //= 2
            continue
        begun_s = time.monotonic()
        if pages is None or pages.dirty:
            if has_written and begun_s >= end_s:
                return False
            write(at, length)
            has_written = True
        at += length
        # What is clean is passed over: a large file with little to write takes no time.
        if tells:
            length = min(2 * length, _MOST_BYTES)
        elif time.monotonic() - begun_s < _CLEAN_S:
            length = min(2 * length, _MOST_UNTOLD_BYTES)
        else:
            length = _PIECE_BYTES
    return True


def cached_pages(handle: int, at: int, length: int) -> CachedPages | None:
    """Return how much of a range of an open file is in RAM; a length of 0 is all to the end.

    None where the kernel does not tell (cachestat(2), Linux 6.5).
    """
    import ctypes  # noqa: PLC0415 - only for devices in write-back

    counted = ctypes.create_string_buffer(5 * 8)
    asked = struct.pack("QQ", at, length)
    if ctypes.CDLL(None).syscall(_CACHESTAT, handle, asked, counted, 0) != 0:
        return None
    cached, dirty, writeback, _, _ = struct.unpack("5Q", counted.raw)
    return CachedPages(cached, dirty + writeback)


def _writer(handle: int) -> Callable[[int, int], None]:
    """Return what writes a range of an open file: its begin, its length, or 0 for all behind."""
    import ctypes  # noqa: PLC0415 - only where something is dirty, or a copy is made

    call = ctypes.CDLL(None, use_errno=True).sync_file_range
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def write(at: int, length: int) -> None:
        if call(handle, at, length, _ALL) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return write
