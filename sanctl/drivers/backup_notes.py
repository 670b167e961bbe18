# SPDX-License-Identifier: GPL-2.0-or-later
"""A node's durable notes of restore points that its backups have ordered for themselves.

Written before the order, removed after the restore point: what a backup leaves that is killed, or
whose node dies, the pool agent removes (sanctl/agents/points/upkeep.py). A backup that runs holds
the device's lock.
"""

from __future__ import annotations

import contextlib
import os

from sanctl.system import state_files
from sanctl.system.files import fsync_folder, is_folder, read_text_or, write_atomically

_FOLDER = "/var/lib/sanctl/backups"


def write(device: str, token: str) -> None:
    """Note the token of an order; it is on the disk when this returns."""
    if not is_folder(_FOLDER):
        os.makedirs(_FOLDER, mode=0o700)
        fsync_folder(os.path.dirname(_FOLDER))
    write_atomically(_path(device), token)


def read(device: str) -> str:
    """Return the token that was noted for a device; empty without a note."""
    return read_text_or(_path(device), "").strip()


def remove(device: str) -> None:
    """Remove a device's note; one that is gone is fine."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_path(device))
        fsync_folder(_FOLDER)


def noted() -> tuple[str, ...]:
    """Return the devices that have a note."""
    try:
        names = os.listdir(_FOLDER)
    except FileNotFoundError:
        return ()
    # What `write_atomically` has not renamed yet has a dot, which no device's name has.
    return tuple(sorted(name for name in names if "." not in name))


def running(device: str, *, wait_s: float = 0.0) -> contextlib.AbstractContextManager[bool]:
    """Hold the lock of a device's backup; gives False where another process here holds it."""
    return state_files.locked(state_files.node_lock(f"backup-{device}"), wait_s=wait_s)


def turn(repository: str, *, wait_s: float) -> contextlib.AbstractContextManager[bool]:
    """Hold the lock of this node's backups into a repository; gives False after that wait.

    One at a time uses a repository. With a lock for the whole of a backup, and not only borg's for
    each of its commands, one that has made its restore point need not wait for others.
    """
    return state_files.locked(state_files.node_lock(f"backups-into-{repository}"), wait_s=wait_s)


def _path(device: str) -> str:
    return f"{_FOLDER}/{device}"
