# SPDX-License-Identifier: GPL-2.0-or-later
"""The page cache over a device file: direct I/O, sync flag, dirty bytes and limit, flush.

What decides is read from the kernel each time: the loop device's direct I/O flag (sysfs) and the
file's synchronous flag (FS_SYNC_FL of ioctl_iflags(2), kept by the filesystem over a boot).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from sanctl.drivers import loop, write_out
from sanctl.errors import CommandError, Problem
from sanctl.model.cache_policy import CacheMode
from sanctl.system import state_files
from sanctl.system.files import read_text_or

_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS, _FS_SYNC_FL = 0x80086601, 0x40086602, 0x8
_LOOP_TIMEOUT_S = 60.0
_VM = "/proc/sys/vm"
_DIRTY_SETTINGS = ("dirty_bytes", "dirty_background_bytes", "dirty_ratio", "dirty_background_ratio")


class WriteState(NamedTuple):
    """How a device file is written.

    Attributes:
        is_buffered: its loop device writes through the page cache.
        is_synchronous: a write of the file ends when it is on stable storage.
    """

    is_buffered: bool
    is_synchronous: bool

    @property
    def mode(self) -> CacheMode:
        """The cache mode that the two flags amount to."""
        if self.is_synchronous:
            return CacheMode.WRITE_THROUGH
        return CacheMode.WRITE_BACK if self.is_buffered else CacheMode.NONE


class FlushUnfinished(CommandError):
    """Not all earlier writes of a file were written in the time; none has failed."""


class Usage(NamedTuple):
    """A file's pages in RAM, in bytes: all, and those not yet on the disk."""

    cached_bytes: int
    dirty_bytes: int


def observe(path: str) -> WriteState | None:
    """Return how an attached device file is written; None without a loop device over it."""
    buffered = is_buffered(path)
    return None if buffered is None else WriteState(buffered, is_synchronous(path))


def is_buffered(path: str) -> bool | None:
    """Whether a file's loop device writes through the page cache; None without a loop device.

    Asks nothing of the file's filesystem, which may hang.
    """
    device = loop.find(path)
    return None if device is None else not loop.uses_direct_io(device)


def is_written_back(path: str) -> bool:
    """Whether a file's writes end in the page cache.

    Asks nothing of the filesystem, which may hang, where the file is written past the page cache.

    Raises:
        OSError: the file cannot be opened.
    """
    return bool(is_buffered(path)) and not is_synchronous(path)


def is_synchronous(path: str) -> bool:
    """Whether a write of the file ends when it is on stable storage.

    Raises:
        OSError: the file cannot be opened.
    """
    return bool(_flags(path) & _FS_SYNC_FL)


def set_synchronous(path: str, *, on: bool) -> None:
    """Make writes of the file end when they are on stable storage, or remove that flag.

    In force from the next write on, also through a file that is open (IS_SYNC in fs.h).

    Raises:
        CommandError: the filesystem refused.
    """
    flags = _flags(path)
    wanted = flags | _FS_SYNC_FL if on else flags & ~_FS_SYNC_FL
    if wanted == flags:
        return
    with _opened(path) as handle:
        try:
            fcntl.ioctl(handle, _FS_IOC_SETFLAGS, struct.pack("l", wanted))
        except OSError as error:
            raise _refused(path, error) from error


def set_buffered(path: str, *, on: bool) -> bool:
    """Let the loop device write through the page cache, or past it; return which of them it does.

    The kernel may refuse direct I/O without an error, as where blocks do not align.
    """
    device = loop.find(path)
    if device is None:
        return False
    if loop.uses_direct_io(device) is on:
        loop.set_direct_io(device, on=not on, within_s=_LOOP_TIMEOUT_S)
    return not loop.uses_direct_io(device)


def flush(path: str, *, within_s: float | None = None) -> None:
    """Return when all earlier writes of the file are on stable storage.

    Args:
        path: the file.
        within_s: how long it may take, of a file whose writes are synchronous by now: what it has
            written until then need not be written again. None: as long as it takes.

    Raises:
        FlushUnfinished: it would take longer.
        CommandError: the disk failed; dirty data is lost, and no later flush reports that.
    """
    try:
        # One open file for all of it: an error is told to that, by a piece or by the end.
        with _opened(path) as handle:
            if within_s is not None and not write_out.write_out_within(handle, within_s):
                raise unfinished(f"{path} was not flushed within {within_s:.0f} s")
            os.fsync(handle)
    except OSError as error:
        raise CommandError(
            Problem("SAN-CACHE-001", f"{path} could not be flushed: {error.strerror}")
        ) from error


def unfinished(text: str) -> FlushUnfinished:
    """Return the error of a flush that has ended because its time was over."""
    return FlushUnfinished(
        Problem("SAN-CACHE-012", text, "what is left in RAM becomes less; the next monitor goes on")
    )


def drain(path: str) -> None:
    """Return when all writes of the file that its loop device had begun have ended.

    Direct I/O looks at the synchronous flag when a write begins (iomap_dio_rw in
    fs/iomap/direct-io.c), so one that began before the flag was set ends without being stable.

    Raises:
        CommandError: the loop device refused.
    """
    device = loop.find(path)
    if device is None:
        return
    try:
        loop.drain(device)
    except OSError as error:
        raise CommandError(
            Problem("SAN-CACHE-001", f"{device} could not be drained: {error.strerror}")
        ) from error


def usage(path: str) -> Usage | None:
    """Return how much of a file is in RAM (cachestat(2), Linux 6.5); None where not supported."""
    page = os.sysconf("SC_PAGE_SIZE")
    with _opened(path) as handle:
        pages = write_out.cached_pages(handle, 0, 0)
    return None if pages is None else Usage(pages.cached * page, pages.dirty * page)


def set_dirty_limit(limit_bytes: int | None, *, saved_in: state_files.StateFile) -> None:
    """Limit the dirty bytes of this node's whole page cache; None restores the former settings.

    This is the kernel's only limit that throttles writers in time. The limit of a single filesystem
    (`strict_limit` and `max_bytes` of sysfs-class-bdi) does not reach a loop device's writes: 125
    MiB were dirty under a limit of 4 MiB (Linux 7.2).

    Writing back begins at half of the limit. `saved_in` keeps the former settings.
    """
    if limit_bytes is None:
        before = saved_in.read().split()
        for name, value in zip(_DIRTY_SETTINGS, before, strict=False):
            # Of bytes and ratio one is 0: that one was not in force, and must not be written. A
            # newer release may have saved them otherwise: then they stay until the boot.
            if value != "0" and value.isdecimal():
                _write(f"{_VM}/{name}", value)
        saved_in.remove()
        return
    if not saved_in.exists():
        former = [read_text_or(f"{_VM}/{name}", "0").strip() for name in _DIRTY_SETTINGS]
        saved_in.write(" ".join(former))
    _write(f"{_VM}/dirty_background_bytes", str(limit_bytes // 2))
    _write(f"{_VM}/dirty_bytes", str(limit_bytes))


def dirty_limit_bytes() -> int:
    """Return the limit of dirty bytes that is in force; 0: there is a ratio instead.

    Raises:
        OSError: the kernel does not say.
    """
    text = read_text_or(f"{_VM}/dirty_bytes", "0").strip()
    return int(text) if text.isdecimal() else 0


def flush_rate_bytes_s(path: str) -> int | None:
    """Return the kernel's estimate of the file's disk, in bytes a second; None without one."""
    number = os.stat(path).st_dev
    stats = f"/sys/kernel/debug/bdi/{os.major(number)}:{os.minor(number)}/stats"
    for line in read_text_or(stats, "").splitlines():
        word, _, value = line.partition(":")
        if word == "BdiWriteBandwidth" and value.split()[:1]:
            rate = int(value.split()[0]) * 1024
            return rate or None
    return None


def _flags(path: str) -> int:
    with _opened(path) as handle:
        try:
            flags = fcntl.ioctl(handle, _FS_IOC_GETFLAGS, bytes(8))
        except OSError:
            return 0  # A filesystem without such flags has none set.
    return int(struct.unpack("l", flags)[0])


def _refused(path: str, error: OSError) -> CommandError:
    return CommandError(
        Problem(
            "SAN-CACHE-002",
            f"{path}: its filesystem has no synchronous files: {error.strerror}",
            "ext4 and XFS have; without them only the cache policy none is possible",
        )
    )


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
