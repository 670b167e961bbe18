# SPDX-License-Identifier: GPL-2.0-or-later
"""Existence checks that raise on I/O errors, atomic durable writes, fsync of folders, flock.

`os.path.exists` and similar functions answer False to any error. A disk that fails for a moment, or
a kernel without memory, would pass for a missing file, and a missing file is created again. So
these functions take two errors for absence, ENOENT and ENOTDIR, and raise every other error.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator

_ABSENT = (FileNotFoundError, NotADirectoryError)
_DM_IS_GONE = {errno.EINVAL, errno.EIO}
_LOCK_POLL_S = 0.05
_READ_BYTES = 1 << 16


def read_text(path: str) -> str:
    """Return a file's text.

    Raises:
        OSError: it cannot be read.
    """
    # Without a file object, which costs twice as much: a whole monitor reads 250 files.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.read(handle, _READ_BYTES)
        # The kernel's files may be given in pieces, and end with an empty one.
        while part := os.read(handle, _READ_BYTES) if found else b"":
            found += part
    except OSError as error:
        # read(2) knows no name, and who tells of the error would name another file.
        error.filename = path
        raise
    finally:
        os.close(handle)
    text = found.decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_bytes(path: str, count: int) -> bytes:
    """Return the first bytes of a file, fewer where it is shorter.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return file.read(count)


def read_text_or(path: str, default: str) -> str:
    """Return a file's text, or `default` when there is no such file.

    ENODEV is how sysfs says that a file went between open and read, and EINVAL or EIO how it does
    of a dm device that is being removed (dm_attr_show in drivers/md/dm-sysfs.c): another device's
    agent removed its own just then. (Devices stopped at once: the stop that met it failed, and its
    node was fenced. The first two were seen.)
    """
    try:
        return read_text(path)
    except _ABSENT:
        return default
    except OSError as error:
        is_dm = path.startswith("/sys/block/dm-") and "/dm/" in path
        is_gone = path.startswith("/sys/") and error.errno == errno.ENODEV
        if not is_gone and not (is_dm and error.errno in _DM_IS_GONE):
            raise
        return default


def exists(path: str | os.PathLike[str], *, follow_symlinks: bool = True) -> bool:
    """Whether there is something at a path; a symbolic link that leads nowhere is nothing.

    Without `follow_symlinks` such a link is something.

    Raises:
        OSError: it is not known.
    """
    return _status(path, follow_symlinks=follow_symlinks) is not None


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to a folder, also by symbolic links.

    Raises:
        OSError: it is not known.
    """
    found = _status(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_link(path: str | os.PathLike[str]) -> bool:
    """Whether there is a symbolic link at a path.

    Raises:
        OSError: it is not known.
    """
    found = _status(path, follow_symlinks=False)
    return found is not None and stat.S_ISLNK(found.st_mode)


def is_mount_point(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the root of what is mounted there, as mountpoint(1) sees it.

    Raises:
        OSError: it is not known: the root of a filesystem whose disk fails is mounted, too.
    """
    found = _status(path, follow_symlinks=False)
    if found is None or not stat.S_ISDIR(found.st_mode):
        return False
    above = os.stat(os.path.join(path, ".."), follow_symlinks=False)
    return found.st_dev != above.st_dev or found.st_ino == above.st_ino


def _status(path: str | os.PathLike[str], *, follow_symlinks: bool = True) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow_symlinks)
    except _ABSENT:
        return None


def write_atomically(path: str, text: str, *, mode: int = 0o644) -> None:
    """Replace a file so that a reader, or a power cut, sees the old text or the new one.

    Temporary file in the same folder, fsync, rename, fsync of the folder.

    Raises:
        OSError: the file system refused a step; the old file is untouched.
    """
    folder = os.path.dirname(path)
    temporary = f"{path}.new.{os.getpid()}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        try:
            os.fchmod(handle, mode)
            view = memoryview(text.encode())
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    fsync_folder(folder)


def replace_on_tmpfs(path: str, text: str) -> None:
    """Replace a file of tmpfs so that a reader sees the old text or the new one."""
    temporary = f"{path}.new.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(temporary, path)
    except OSError:
        # Mostly no room: the rest of it would take more of what is missing.
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def fsync_folder(folder: str) -> None:
    """Make changes of a folder's entries (creations, renames, removals) durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def file_lock(path: str, *, wait_s: float | None = None, shared: bool = False) -> Iterator[bool]:
    """Hold a kernel lock on a file, if it can be had in that time: yields whether.

    A shared lock keeps out only a process that wants it alone. A lock ends with its process,
    whatever ends that.

    A file that is not there is made. `wait_s` is 0 for not at all, None for as long as it takes;
    others may hold a `shared` lock, too, in the same way.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if wait_s is None:
            fcntl.flock(handle, kind)
            yield True
        else:
            yield _lock_within(handle, kind, wait_s)
    finally:
        os.close(handle)


def is_locked(path: str) -> bool:
    """Whether a process has the `file_lock` of a file for itself; False where there is no file.

    It needs no room. For the moment of the call no process can take that lock for itself: one that
    wants it waits a little.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _lock_within(handle, fcntl.LOCK_SH, 0.0)
    finally:
        os.close(handle)


@contextlib.contextmanager
def folder_lock(path: str, *, wait_s: float) -> Iterator[bool]:
    """Hold a kernel lock on a folder that is there, as `file_lock` does on a file.

    It needs no room: not even for one more file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _lock_within(handle, fcntl.LOCK_EX, wait_s)
    finally:
        os.close(handle)


def _lock_within(handle: int, kind: int, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_POLL_S)
        else:
            return True
