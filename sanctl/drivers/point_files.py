# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of restore points in a pool: paths, copies that are not a restore point yet, removal.

`points/NAME.UUID.TOKEN` is a restore point's file on this node; with `.taking` behind it one that
is none before the CIB says so.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import NamedTuple

from sanctl.system.files import exists, fsync_folder, is_folder

#: The folder of a pool that has them.
FOLDER = "points"
_TAKING = ".taking"
#: How often files are listed that are all to go. An order makes one, and none is given to a device
#: that is deleted.
_LISTINGS = 8


class PointFile(NamedTuple):
    """A file in a pool's folder of restore points.

    Attributes:
        path: its path.
        device: the name of its device.
        uuid: the UUID of its device.
        token: the token of the attempt that made it.
        is_taking: it may be no restore point yet.
    """

    path: str
    device: str
    uuid: str
    token: str
    is_taking: bool


def folder(pool_path: str) -> str:
    """Return the folder of a pool's restore points."""
    return f"{pool_path}/{FOLDER}"


def final_path(pool_path: str, device: str, uuid: str, token: str) -> str:
    """Return the path of a restore point's file."""
    return f"{folder(pool_path)}/{device}.{uuid}.{token}"


def taking_path(pool_path: str, device: str, uuid: str, token: str) -> str:
    """Return the path of a file that is to become a restore point's."""
    return unnamed_path(final_path(pool_path, device, uuid, token))


def unnamed_path(final: str) -> str:
    """Return the path that a restore point's file has until somebody gives it its name."""
    return final + _TAKING


def make_folder(pool_path: str) -> None:
    """Make the folder of a pool's restore points, durably."""
    if not is_folder(folder(pool_path)):
        os.makedirs(folder(pool_path), mode=0o700, exist_ok=True)
        fsync_folder(pool_path)


def open_file(final: str, flags: int = 0) -> int:
    """Open a restore point's file to be read, which may still have its first name.

    Raises:
        FileNotFoundError: there is none under either name.
        OSError: it cannot be opened.
    """
    flags |= os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    for path in (final, unnamed_path(final)):
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
    # It may have got its name between the two.
    return os.open(final, flags)


def open_whole(final: str, size_bytes: int, flags: int = 0) -> int:
    """Open a restore point's file as `open_file` does, of which nothing is missing at its end.

    What a filesystem's repair, or somebody, has cut off would read as zeros otherwise.

    Args:
        final: the path of its name.
        size_bytes: the size of the restore point; the file may be longer.
        flags: more flags to open it with.

    Raises:
        FileNotFoundError: there is none under either name.
        OSError: it cannot be opened, or is shorter.
    """
    handle = open_file(final, flags)
    try:
        found_bytes = os.fstat(handle).st_size
        if found_bytes < size_bytes:
            raise OSError(0, shorter_text(found_bytes, size_bytes), final)
    except BaseException:
        os.close(handle)
        raise
    return handle


def shorter_text(found_bytes: int, size_bytes: int) -> str:
    """Say of a restore point's file that its end is missing."""
    return f"its file ends at byte {found_bytes}, and the restore point has {size_bytes}"


def listed(pool_path: str) -> list[PointFile]:
    """Return the files of restore points in a pool.

    Raises:
        OSError: the folder cannot be read.
    """
    try:
        names = sorted(os.listdir(folder(pool_path)))
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        words = name.removesuffix(_TAKING).split(".")
        if len(words) == 3:
            device, uuid, token = words
            path = f"{folder(pool_path)}/{name}"
            found.append(PointFile(path, device, uuid, token, name.endswith(_TAKING)))
    return found


def keep(path: str) -> str:
    """Give a file its final name, durably, and return that; one that has it already is fine.

    Raises:
        FileNotFoundError: there is no such file.
    """
    final = path.removesuffix(_TAKING)
    try:
        os.rename(path, final)
    except FileNotFoundError:
        if not exists(final):
            raise
    fsync_folder(os.path.dirname(final))
    return final


def remove(path: str) -> None:
    """Remove a file, durably; one that is gone is fine."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        fsync_folder(os.path.dirname(path))


def remove_all(pool_path: str, device: str, uuid: str) -> None:
    """Remove the files of all restore points of a device.

    Also those that get their name meanwhile. A listing may miss one that does: two in a row have to
    show none.

    Raises:
        OSError: one cannot be removed, or there are new ones all the time.
    """
    empty = 0
    for _ in range(_LISTINGS):
        found = [each for each in listed(pool_path) if (each.device, each.uuid) == (device, uuid)]
        empty = 0 if found else empty + 1
        if empty == 2:
            return
        for each in found:
            final = each.path.removesuffix(_TAKING)
            # In the order in which the one becomes the other.
            remove(unnamed_path(final))
            remove(final)
    raise OSError(
        errno.EBUSY,
        f"files of restore points of {device} appear while they are removed",
        folder(pool_path),
    )
