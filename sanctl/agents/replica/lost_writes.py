# SPDX-License-Identifier: GPL-2.0-or-later
"""Which replicas have lost what was in RAM: the marker that says so, and trusting one again.

`NAME.UUID.ram` lies beside the data while acknowledged writes may be in RAM alone, and holds the
kernel's boot id. Found by another boot, or after a flush that failed, it makes the replica suspect:
DRBD would take it for good, and it is not. See docs/adr/0027.
"""

from __future__ import annotations

import contextlib
import os
import re

from sanctl.drivers import loop
from sanctl.system import state_files
from sanctl.system.files import exists, fsync_folder, read_text, read_text_or, write_atomically

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_SUFFIX = ".data"
_MARKER = ".ram"
# In place of a boot id, of which it is none.
_DISTRUSTED = "shut-down"


def data_file(name: str) -> str | None:
    """Return the path of a device's attached data file; DRBD's handlers know only its name."""
    wanted = re.compile(rf"/{re.escape(name)}\.[0-9a-f]{{32}}\{_SUFFIX}")
    return next((path for path in loop.backing_files() if wanted.search(path)), None)


def marker_path(path: str) -> str:
    """Return where the marker of a data file lies."""
    return path.removesuffix(_SUFFIX) + _MARKER


def set_marker(path: str) -> None:
    """Note on stable storage that from now on acknowledged writes may be in RAM alone."""
    marker, boot = marker_path(path), read_text(_BOOT_ID)
    if read_text_or(marker, "") != boot:
        write_atomically(marker, boot, mode=0o600)


def set_shutdown_marker(path: str) -> None:
    """Note on stable storage that a copy has lost acknowledged writes with its filesystem."""
    write_atomically(marker_path(path), _DISTRUSTED, mode=0o600)


def clear_shutdown_marker(path: str) -> None:
    """Trust an only copy again that `distrust` is about: there is none to fill it from.

    As after a power cut, hosts find what they had flushed.
    """
    if read_text_or(marker_path(path), "") == _DISTRUSTED:
        os.unlink(marker_path(path))
        fsync_folder(os.path.dirname(path))


def clear_marker(name: str, path: str) -> None:
    """Note on stable storage that nothing is in RAM alone, or that what was is made up for."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(marker_path(path))
    fsync_folder(os.path.dirname(path))
    _failed(name).remove()


def record_failed_flush(name: str) -> None:
    """Remember that a flush failed: no later one tells it again."""
    _failed(name).write()


def is_suspect(name: str, path: str | None) -> bool:
    """Whether a replica has lost writes that it had acknowledged, or may have.

    One whose marker cannot be read does not serve, and is not connected. To throw it away takes
    more: `is_known_suspect`.

    Args:
        name: the device.
        path: its data file, as `data_file` finds it; None: not attached, so nothing is known.
    """
    try:
        return is_known_suspect(name, path)
    except OSError:
        return True  # not known to be whole: the disk does not answer


def is_known_suspect(name: str, path: str | None) -> bool:
    """Whether it is known that a replica has lost writes that it had acknowledged.

    Raises:
        OSError: the marker, or the note of a flush that failed, cannot be read.
    """
    if _failed(name).exists():
        return True
    if path is None:
        return False
    marker = read_text_or(marker_path(path), "")
    return bool(marker) and marker != read_text(_BOOT_ID)


def has_marker(path: str) -> bool:
    """Whether a marker lies beside the data, of this boot or another.

    Raises:
        OSError: it is not known.
    """
    return exists(marker_path(path))


def _failed(name: str) -> state_files.StateFile:
    # Of the node, not of the device: what was lost stays lost when the device is stopped.
    return state_files.of_node(f"flush-failed.{name}")
