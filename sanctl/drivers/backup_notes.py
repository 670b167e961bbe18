# SPDX-License-Identifier: GPL-2.0-or-later
"""A node's durable notes of restore points that its backups have ordered for themselves.

Written before the order, removed after the restore point: what a backup leaves that is killed, or
whose node dies, the pool agent removes (sanctl/agents/points/upkeep.py). A backup that runs holds
the device's lock. A second note, DEVICE.into, is there from its begin until the cluster knows what
came of it.
"""

from __future__ import annotations

import contextlib
import os

from sanctl.system import state_files
from sanctl.system.files import fsync_folder, is_folder, read_text_or, write_atomically

_FOLDER = "/var/lib/sanctl/backups"
_INTO = ".into"


def write(device: str, token: str) -> None:
    """Note the token of an order; it is on the disk when this returns."""
    _make_folder()
    write_atomically(_path(device), token)


def read(device: str) -> str:
    """Return the token that was noted for a device; empty without a note."""
    return read_text_or(_path(device), "").strip()


def remove(device: str) -> None:
    """Remove the note of a device's order; one that is gone is fine."""
    _unlink(_path(device))


def begin(device: str, repository: str, node: str) -> None:
    """Note that a backup of a device begins, into which repository, on this node."""
    _make_folder()
    write_atomically(_path(device) + _INTO, f"{repository} {node}")


def begun(device: str) -> tuple[str, str] | None:
    """Return repository and node of a backup that has told no end; None: there is none."""
    words = read_text_or(_path(device) + _INTO, "").split()
    return (words[0], words[1]) if len(words) == 2 else None


def end(device: str) -> None:
    """Note that the cluster knows what came of a device's backup."""
    _unlink(_path(device) + _INTO)


def noted() -> tuple[str, ...]:
    """Return the devices that have a note of either kind."""
    try:
        names = os.listdir(_FOLDER)
    except FileNotFoundError:
        return ()
    # What `write_atomically` has not renamed yet has another dot, and no device's name has one.
    devices = {name.removesuffix(_INTO) for name in names}
    return tuple(sorted(name for name in devices if "." not in name))


def running(device: str, *, wait_s: float = 0.0) -> contextlib.AbstractContextManager[bool]:
    """Hold the lock of a device's backup; gives False where another process here holds it."""
    return state_files.locked(state_files.node_lock(f"backup-{device}"), wait_s=wait_s)


def turn(repository: str, *, wait_s: float) -> contextlib.AbstractContextManager[bool]:
    """Hold the lock of this node's backups into a repository; gives False after that wait.

    One at a time uses a repository. With a lock for the whole of a backup, and not only borg's for
    each of its commands, one that has made its restore point need not wait for others.
    """
    return state_files.locked(state_files.node_lock(f"backups-into-{repository}"), wait_s=wait_s)


def _make_folder() -> None:
    if not is_folder(_FOLDER):
        os.makedirs(_FOLDER, mode=0o700)
        fsync_folder(os.path.dirname(_FOLDER))


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        fsync_folder(_FOLDER)


def _path(device: str) -> str:
    return f"{_FOLDER}/{device}"
