# SPDX-License-Identifier: GPL-2.0-or-later
"""Device files in a pool: paths, allocation, deletion, room; checks the pool's marker file.

The marker file holds the pool's UUID and proves that a filesystem of the pool is mounted. A
directory without the marker is not mounted, or is another filesystem: never an empty pool.

A pool has an id on each node, in a file of the filesystem and in a note on the node's own disk. A
filesystem that it had before has the same marker, and old replicas: it has no id, or another one,
and is not the pool any more. Pools that began with an earlier release have neither.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from typing import NamedTuple

from sanctl.drivers import point_files, pool_notes
from sanctl.errors import CommandError, Problem
from sanctl.system.files import (
    exists,
    fsync_folder,
    is_mount_point,
    read_text,
    read_text_or,
    write_atomically,
)

MARKER = ".sanctl-pool"
#: The id of a filesystem in which the pool began on this node.
FILESYSTEM_ID = ".sanctl-filesystem"
#: Behind the path of a data file that is being copied from a restore point.
CLONING = ".cloning"
#: The kind of the note beside the data file of a clone, which may share blocks with other devices.
CLONE_NOTE = "origin"
_MIB = 1 << 20


class GrowthRefused(OSError):
    """The filesystem refused a larger size, as one above its largest file; nothing has changed."""


class DeviceFiles(NamedTuple):
    """One device's files in a pool: paths of its data and its DRBD metadata."""

    data: str
    metadata: str


def check_marker(path: str, uuid: str) -> None:
    """Make sure that the pool at `path` is the one with this UUID, as this node has it.

    Raises:
        CommandError: the marker is missing, cannot be read, or is another pool's; the filesystem is
            not the one in which the pool began here, or that is not known.
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
    _check_filesystem(path, uuid)


def _check_filesystem(path: str, uuid: str) -> None:
    """Compare the filesystem's id with the node's note; also where one of both is missing.

    Raises:
        CommandError: they differ, or one cannot be read.
    """
    try:
        noted, found = pool_notes.read(uuid, pool_notes.FILESYSTEM).strip(), filesystem_id(path)
    except OSError as error:
        where = error.filename or f"{path}/{FILESYSTEM_ID}"
        raise CommandError(
            Problem(
                "SAN-POOL-003",
                f"{where} cannot be read: {error.strerror}",
                "the kernel's log ('journalctl -k') says what its disk has",
            )
        ) from error
    if found != noted:
        raise CommandError(
            Problem(
                "SAN-POOL-033",
                f"the filesystem at {path} has {_id_text(found)}, and this node's note of the pool "
                f"names {_id_text(noted)}: it is not the filesystem in which the pool began here, "
                "and its replicas may be old",
                "mount the right one. If that is lost, or is this one: docs/howto/night-page.md, "
                "SAN-POOL-033",
            )
        )


def filesystem_id(path: str) -> str:
    """Return the id that a pool's filesystem has; empty: the pool did not begin in it, or long ago.

    Raises:
        OSError: it cannot be read.
    """
    return read_text_or(f"{path}/{FILESYSTEM_ID}", "").strip()


def write_filesystem_id(path: str, identifier: str) -> None:
    """Give a pool's filesystem its id, durably: before its marker, and after the node's note.

    The note first: from then on the filesystem before is refused. The marker last: until then this
    one is no pool, and the same command, or the rollout, may be run again.
    """
    write_atomically(f"{path}/{FILESYSTEM_ID}", f"{identifier}\n")


def _id_text(identifier: str) -> str:
    return f"id {identifier}" if identifier else "no id"


def holds(pool: str, path: str) -> bool:
    """Whether something at `path`, which need not be there, would be lost with the pool.

    It is in the pool's folder, by whatever path, or elsewhere on the pool's own filesystem.
    """
    pool, path = os.path.realpath(pool), os.path.realpath(path)
    if path == pool or path.startswith(f"{pool}/"):
        return True
    while not exists(path):
        path = os.path.dirname(path)
    return is_mount_point(pool) and os.stat(path).st_dev == os.stat(pool).st_dev


def files_of(path: str, name: str, uuid: str) -> DeviceFiles:
    """Return the paths of a device's files in the pool at `path`."""
    stem = f"{path}/devices/{name}.{uuid}"
    return DeviceFiles(f"{stem}.data", f"{stem}.meta")


def metadata_bytes(size_bytes: int) -> int:
    """Return the size that the metadata file of a device needs.

    DRBD keeps one bit for 4 KiB and peer, plus the activity log and the superblock
    (drbd_int.h, BM_BLOCK_SIZE); counted here for three peers, rounded up to whole MiB.
    """
    bitmaps = 3 * (size_bytes // 4096 // 8 + 4096)
    return -(-(bitmaps + _MIB) // _MIB) * _MIB


def delete_metadata(files: DeviceFiles) -> None:
    """Remove metadata whose data is gone, durably: they would call an empty file UpToDate."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(files.metadata)
    fsync_folder(os.path.dirname(files.metadata))


def allocate(path: str, size_bytes: int, *, create: bool = True) -> bool:
    """Make a sparse file at least this large; return whether it was created or grown.

    Never shrinks: a larger file stays as it is.

    Raises:
        GrowthRefused: the filesystem refused the size; the file has the one that it had.
        OSError: the file cannot be opened, or is not known to be on stable storage.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    handle = os.open(path, flags, 0o600)
    try:
        if os.fstat(handle).st_size >= size_bytes:
            return False
        try:
            os.ftruncate(handle, size_bytes)
        except OSError as error:
            raise GrowthRefused(error.errno, error.strerror, path) from error
        os.fsync(handle)
    finally:
        os.close(handle)
    fsync_folder(os.path.dirname(path))
    return True


def size_bytes(path: str) -> int | None:
    """Return the length of a file, None where there is no file."""
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except FileNotFoundError:
        return None


def rename(old: str, new: str) -> None:
    """Give a file its final name, durably."""
    os.rename(old, new)
    fsync_folder(os.path.dirname(new))


def delete(files: DeviceFiles) -> None:
    """Remove a device's files and its restore points', durably; what is gone is fine."""
    stem = files.data.removesuffix(".data")
    kinds = (
        *("apart", "sync", "verify", "ram", "filling", "source", "reservations", "held"),
        CLONE_NOTE,
    )
    notes = (f"{stem}.{kind}" for kind in kinds)
    unfinished = (f"{files.metadata}.new", f"{files.data}{CLONING}")
    for path in (files.data, files.metadata, *unfinished, *notes):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    fsync_folder(os.path.dirname(files.data))
    name, uuid = os.path.basename(stem).split(".")
    point_files.remove_all(os.path.dirname(os.path.dirname(stem)), name, uuid)


def is_of(file_name: str, uuids: Collection[str]) -> bool:
    """Whether a file in a pool's `devices` is one of the devices with these UUIDs."""
    return file_name.partition(".")[2].partition(".")[0] in uuids


def allocated_bytes(path: str, uuids: Collection[str]) -> int:
    """Return the bytes that the files of these devices occupy in a pool; holes do not count."""
    allocated = 0
    try:
        with os.scandir(f"{path}/devices") as entries:
            for entry in entries:
                if is_of(entry.name, uuids):
                    # One that is removed meanwhile, such as a note, occupies nothing.
                    with contextlib.suppress(FileNotFoundError):
                        allocated += entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0
    return allocated


def space_bytes(path: str) -> tuple[int, int]:
    """Return the size of the pool's filesystem and its free space for root, in bytes."""
    status = os.statvfs(path)
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
