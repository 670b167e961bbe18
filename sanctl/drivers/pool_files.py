# SPDX-License-Identifier: GPL-2.0-or-later
"""Pools on this node: directories on mounted filesystems that hold device files.

A pool proves that it is there by its marker file, which holds the pool's UUID. Without it the
filesystem is not mounted, or is another one: never an empty pool.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.system.files import read_text, sync_folder

MARKER = ".sanctl-pool"
_MIB = 1 << 20


class DeviceFiles(NamedTuple):
    """Where one device's replica lies in a pool: paths of its data and its DRBD metadata."""

    data: str
    metadata: str


def check(path: str, uuid: str) -> None:
    """Make sure that the pool at `path` is the one with this UUID.

    Raises:
        CommandError: the marker is missing, cannot be read, or is another pool's.
    """
    marker = f"{path}/{MARKER}"
    try:
        found = read_text(marker).strip()
    except OSError as error:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise CommandError(
                Problem(
                    "SAN-POOL-003",
                    f"{marker} cannot be read: {error.strerror}",
                    "the kernel's log ('journalctl -k') says what its disk has",
                )
            ) from error
        raise CommandError(
            Problem(
                "SAN-POOL-001",
                f"{marker}: {error.strerror}: the pool's filesystem is not there",
                f"mount it at {path}; never make the marker by hand",
            )
        ) from error
    if found != uuid:
        raise CommandError(
            Problem(
                "SAN-POOL-002",
                f"{marker} names pool {found or 'nothing'}, not {uuid}",
                "another filesystem is mounted there",
            )
        )


def files_of(path: str, name: str, uuid: str) -> DeviceFiles:
    """Return where a device's files lie in the pool at `path`."""
    stem = f"{path}/devices/{name}.{uuid}"
    return DeviceFiles(f"{stem}.data", f"{stem}.meta")


def metadata_bytes(size_bytes: int) -> int:
    """Return how large the metadata file of a device has to be.

    DRBD keeps one bit for 4 KiB and peer, plus the activity log and the superblock
    (drbd_int.h, BM_BLOCK_SIZE); counted here for three peers, rounded up to whole MiB.
    """
    bitmaps = 3 * (size_bytes // 4096 // 8 + 4096)
    return -(-(bitmaps + _MIB) // _MIB) * _MIB


def forget_metadata(files: DeviceFiles) -> None:
    """Remove metadata whose data is gone, durably: it would call an empty file a good replica."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(files.metadata)
    sync_folder(os.path.dirname(files.metadata))


def allocate(path: str, size_bytes: int, *, create: bool = True) -> bool:
    """Make a sparse file at least this large; return whether it was made or grown.

    Never shrinks: a file that is larger stays as it is.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    handle = os.open(path, flags, 0o600)
    try:
        if os.fstat(handle).st_size >= size_bytes:
            return False
        os.ftruncate(handle, size_bytes)
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_folder(os.path.dirname(path))
    return True


def size_bytes(path: str) -> int | None:
    """Return the length of a file, None where there is none."""
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except FileNotFoundError:
        return None


def rename(old: str, new: str) -> None:
    """Give a file its final name, durably."""
    os.rename(old, new)
    sync_folder(os.path.dirname(new))


def delete(files: DeviceFiles) -> None:
    """Remove a device's files, durably; those that are gone are fine."""
    stem = files.data.removesuffix(".data")
    notes = (f"{stem}.{kind}" for kind in ("apart", "sync", "verify", "ram"))
    for path in (files.data, files.metadata, f"{files.metadata}.new", *notes):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    sync_folder(os.path.dirname(files.data))


def allocated_bytes(path: str) -> int:
    """Return how much of the pool its device files occupy, in bytes; holes do not count."""
    try:
        with os.scandir(f"{path}/devices") as entries:
            return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in entries)
    except FileNotFoundError:
        return 0


def space_bytes(path: str) -> tuple[int, int]:
    """Return the size of the pool's filesystem and what is free in it for root, in bytes."""
    status = os.statvfs(path)
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
