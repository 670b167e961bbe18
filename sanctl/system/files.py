"""Reads and writes files: whole, atomic and durable where it matters."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

_DM_IS_GONE = {errno.EINVAL, errno.EIO}


def read_text(path: str) -> str:
    """Return a file's text.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def read_text_or(path: str, default: str) -> str:
    """Return a file's text, or `default` when there is no such file.

    ENODEV is how sysfs says that a file went between open and read, and EINVAL or EIO how it does
    of a dm device that is being removed (dm_attr_show in drivers/md/dm-sysfs.c): another device's
    agent removed its own just then. (Devices stopped at once: the stop that met it failed, and its
    node was fenced. The first two were seen.)
    """
    try:
        return read_text(path)
    except (FileNotFoundError, NotADirectoryError):
        return default
    except OSError as error:
        is_dm = path.startswith("/sys/block/dm-") and "/dm/" in path
        if error.errno not in ({errno.ENODEV} | (_DM_IS_GONE if is_dm else set())):
            raise
        return default


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
    sync_folder(folder)


def write_whole(path: str, text: str) -> None:
    """Replace a file of tmpfs so that a reader sees the old text or the new one."""
    temporary = f"{path}.new.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(temporary, path)


def sync_folder(folder: str) -> None:
    """Make the entries of a folder (creations, renames, removals) durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def flocked(path: str, *, wait: bool = True, shared: bool = False) -> Iterator[bool]:
    """Hold a kernel lock on a file; without `wait` only if nobody else does: yields whether.

    One that is shared keeps out only who wants it alone. It ends with the process, whatever ends
    that.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, kind | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
