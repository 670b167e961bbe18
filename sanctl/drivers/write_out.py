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
import time

# linux/fs.h: SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE, _WAIT_AFTER
_ALL = 0x1 | 0x2 | 0x4
#: Random blocks of so much are written in some seconds by a slow disk.
_LEAST_BYTES = 8 << 20
#: A range that is clean takes microseconds. So a large file with little to write takes no time.
_MOST_BYTES = 256 << 20
_CLEAN_S = 0.002


def write_out(handle: int) -> None:
    """Return when all pages of an open file that are dirty now are written.

    Raises:
        OSError: some could not be written, and are lost; no other flush may tell it.
    """
    _write_range(handle, 0, 0)


def write_out_within(handle: int, within_s: float) -> bool:
    """As `write_out`, piece by piece until the time is over; return whether all are written.

    At least one piece is. For a file that makes no more pages dirty: those before would be missed.

    Raises:
        OSError: as of `write_out`.
    """
    end_s = time.monotonic() + within_s
    at, size, length = 0, os.fstat(handle).st_size, _LEAST_BYTES
    while at < size:
        begun_s = time.monotonic()
        if at and begun_s >= end_s:
            return False
        _write_range(handle, at, length)
        at += length
        is_clean = time.monotonic() - begun_s < _CLEAN_S
        length = min(2 * length, _MOST_BYTES) if is_clean else _LEAST_BYTES
    return True


def _write_range(handle: int, at: int, length: int) -> None:
    """Write a range; a length of 0 is all to the end."""
    import ctypes  # noqa: PLC0415 - only where something is dirty, or a copy is made

    call = ctypes.CDLL(None, use_errno=True).sync_file_range
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    if call(handle, at, length, _ALL) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
