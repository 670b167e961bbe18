# SPDX-License-Identifier: GPL-2.0-or-later
"""The marker NAME.UUID.ram: whether a replica has lost acknowledged writes that were in RAM alone.

The marker lies beside the data while acknowledged writes may be in RAM alone, and holds the
kernel's boot id. After another boot, or after a flush that failed, the marker makes the replica
suspect: DRBD would take its data for good, and they are not. See docs/adr/0027. The same is so of a
replica that lost its power while it was filled (resync_note.py).
"""

from __future__ import annotations

import contextlib
import os
import re

from sanctl.agents.replica import resync_note
from sanctl.drivers import loop
from sanctl.system import state_files
from sanctl.system.files import exists, fsync_folder, read_text, read_text_or, write_atomically

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_SUFFIX = ".data"
#: The device's name is no part of the pattern, which each action's process would compile.
_DATA_FILE = re.compile(r".*/([^/]+)\.[0-9a-f]{32}\.data", re.DOTALL)
_MARKER = ".ram"
# In place of a boot id: the filesystem has shut down, and with it went acknowledged writes.
_SHUTDOWN = "shut-down"


def data_file(name: str) -> str | None:
    """Return the path of a device's attached data file; DRBD's handlers know only its name."""

    def is_wanted(path: str) -> bool:
        found = _DATA_FILE.fullmatch(path)
        return found is not None and found[1] == name

    return loop.find_file(is_wanted)


def marker_path(path: str) -> str:
    """Return where the marker of a data file lies."""
    return path.removesuffix(_SUFFIX) + _MARKER


def set_marker(path: str) -> None:
    """Note on stable storage that from now on acknowledged writes may be in RAM alone."""
    marker, boot = marker_path(path), read_text(_BOOT_ID)
    if read_text_or(marker, "") != boot:
        write_atomically(marker, boot, mode=0o600)


def set_shutdown_marker(path: str) -> None:
    """Note on stable storage that a filesystem shutdown lost acknowledged writes of the replica."""
    write_atomically(marker_path(path), _SHUTDOWN, mode=0o600)


def clear_shutdown_marker(path: str) -> None:
    """Remove the marker of `set_shutdown_marker` from an only replica: no other could fill it.

    As after a power cut, hosts find what they had flushed.
    """
    if read_text_or(marker_path(path), "") == _SHUTDOWN:
        os.unlink(marker_path(path))
        fsync_folder(os.path.dirname(path))


def clear_marker(name: str, path: str) -> None:
    """Note on stable storage that no write is in RAM alone, or that a resync has restored them."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(marker_path(path))
    fsync_folder(os.path.dirname(path))
    resync_note.forget(path)
    _failed_flush_note(name).remove()


def has_flush_failed(name: str) -> bool:
    """Whether a flush has failed since the boot: no later one brings back what it lost.

    Raises:
        OSError: it is not known.
    """
    return _failed_flush_note(name).exists()


def record_failed_flush(name: str) -> None:
    """Note that a flush failed: no later flush reports that again."""
    _failed_flush_note(name).write()


def is_suspect(name: str, path: str | None) -> bool:
    """Whether a replica has lost writes that it had acknowledged, or may have.

    A replica whose marker cannot be read does not serve, and is not connected. To discard its data
    takes more: `is_known_suspect`.

    Args:
        name: the device.
        path: its data file, as `data_file` finds it; None: not attached, so nothing is known.
    """
    try:
        return is_known_suspect(name, path)
    except OSError:
        return True  # Not known to be complete: the disk does not answer.


def is_known_suspect(name: str, path: str | None) -> bool:
    """Whether it is known that a replica has lost writes that it had acknowledged.

    Raises:
        OSError: the marker, or the note of a flush that failed, cannot be read.
    """
    if has_flush_failed(name):
        return True
    if path is None:
        return False
    if resync_note.is_of_another_boot(path):
        return True
    marker = read_text_or(marker_path(path), "")
    return bool(marker) and marker != read_text(_BOOT_ID)


def causes(path: str) -> list[str]:
    """Return why a suspect replica is suspect: `resync`, `cache`, or both.

    Raises:
        OSError: it is not known.
    """
    found = ["resync"] if resync_note.is_set(path) else []
    return [*found, "cache"] if has_marker(path) or not found else found


def has_marker(path: str) -> bool:
    """Whether a marker lies beside the data, of this boot or another.

    Raises:
        OSError: it is not known.
    """
    return exists(marker_path(path))


def _failed_flush_note(name: str) -> state_files.StateFile:
    # A file of the node, not of the device: lost writes stay lost when the device is stopped.
    return state_files.of_node(f"flush-failed.{name}")
