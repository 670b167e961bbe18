# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of a second site's program that works on files: locks, clones, notes as a whole."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import time

from sanctl.drivers.site_protocol import CHUNK_BYTES, STALLED_S, Line, SiteError, write_all

_LOCK_POLL_S = 0.1
_FICLONE = 0x40049409
_KEEP_SIZE_PUNCH_HOLE = 0x3


def clone(origin: int, copy: int) -> None:
    """Give the open file `copy` the blocks of the open file `origin`."""
    fcntl.ioctl(copy, _FICLONE, origin)


def punch(handle: int, begin: int, length: int) -> None:
    """Make a range of a file zeros, without blocks of its own where the filesystem can."""
    libc = ctypes.CDLL(None, use_errno=True)
    where = ctypes.c_int64(begin), ctypes.c_int64(length)
    if libc.fallocate(handle, _KEEP_SIZE_PUNCH_HOLE, *where) == 0:
        return
    number = ctypes.get_errno()
    if number != errno.EOPNOTSUPP:
        raise OSError(number, os.strerror(number))
    zeros = bytes(CHUNK_BYTES)
    for at in range(begin, begin + length, CHUNK_BYTES):
        write_all(handle, zeros[: begin + length - at], at)


class locked:  # noqa: N801 - used as a function
    """Keeps other connections out of a device's folder for a moment.

    A connection that waits gives signs of life, and ends where nobody listens any more: an order
    that was given up, and may have been given again or taken back since, is not carried out later.

    Raises:
        SiteError: another connection has kept it for so long that its disk is taken for dead.
        OSError: with EPIPE, nobody listens any more.
    """

    def __init__(self, folder: str, line: Line) -> None:
        self._folder, self._line = folder, line

    def __enter__(self) -> None:
        self._handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._take()
            self._line.require_other_end()
        except BaseException:
            os.close(self._handle)
            raise

    def _take(self) -> None:
        deadline = time.monotonic() + STALLED_S
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            if time.monotonic() > deadline:
                raise SiteError(
                    "SAN-SITE-014",
                    f"another connection has kept {self._folder} locked for {STALLED_S:g} s",
                )
            self._line.alive()
            time.sleep(_LOCK_POLL_S)

    def __exit__(self, *_error: object) -> None:
        os.close(self._handle)


def require_folder(path: str) -> None:
    """Raise SiteError (SAN-SITE-006) unless the folder can be listed."""
    try:
        os.listdir(path)
    except OSError as error:
        raise SiteError("SAN-SITE-006", f"{path}: {error.strerror}") from None


def is_read(path: str) -> bool:
    """Whether somebody reads a copy, and holds its lock."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def is_same_file(handle: int, path: str) -> bool:
    """Whether an open file still has that name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def write_file(path: str, data: bytes) -> None:
    """Write a small file so that there is the old one, or the new one as a whole."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(f"{path}.new", flags, 0o600)
    try:
        write_all(handle, data, 0)
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(f"{path}.new", path)
    sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    """Make the names in a folder outlive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unlink_if_there(path: str) -> None:
    """Remove a file, which may be gone."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
