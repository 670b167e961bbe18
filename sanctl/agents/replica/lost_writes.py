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

from sanctl.agents.replica.parts import RUNTIME
from sanctl.drivers import loop
from sanctl.system.files import exists, read_text, read_text_or, sync_folder, write_atomically

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_SUFFIX = ".data"
_MARKER = ".ram"
# In place of a boot id, of which it is none.
_DISTRUSTED = "shut-down"


def data_file(name: str) -> str | None:
    """Return the path of a device's attached data file; DRBD's handlers know only its name."""
    wanted = re.compile(rf"/{re.escape(name)}\.[0-9a-f]{{32}}\{_SUFFIX}")
    return next((path for path in loop.backing_files() if wanted.search(path)), None)


def marker_of(path: str) -> str:
    """Return where the marker of a data file lies."""
    return path.removesuffix(_SUFFIX) + _MARKER


def mark(path: str) -> None:
    """Note on stable storage that from now on acknowledged writes may be in RAM alone."""
    marker, boot = marker_of(path), read_text(_BOOT_ID)
    if read_text_or(marker, "") != boot:
        write_atomically(marker, boot, mode=0o600)


def distrust(path: str) -> None:
    """Note on stable storage that a copy has lost acknowledged writes with its filesystem."""
    write_atomically(marker_of(path), _DISTRUSTED, mode=0o600)


def forgive(path: str) -> None:
    """Trust an only copy again that `distrust` is about: there is none to fill it from.

    As after a power cut, hosts find what they had flushed.
    """
    if read_text_or(marker_of(path), "") == _DISTRUSTED:
        os.unlink(marker_of(path))
        sync_folder(os.path.dirname(path))


def clear(name: str, path: str) -> None:
    """Note on stable storage that nothing is in RAM alone, or that what was is made up for."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(marker_of(path))
    sync_folder(os.path.dirname(path))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_failed(name))


def note_failure(name: str) -> None:
    """Remember that a flush failed: no later one tells it again."""
    with open(_failed(name), "w", encoding="utf-8"):
        pass


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
    if exists(_failed(name)):
        return True
    if path is None:
        return False
    marker = read_text_or(marker_of(path), "")
    return bool(marker) and marker != read_text(_BOOT_ID)


def is_marked(path: str) -> bool:
    """Whether a marker lies beside the data, of this boot or another.

    Raises:
        OSError: it is not known.
    """
    return exists(marker_of(path))


def _failed(name: str) -> str:
    return f"{RUNTIME}/flush-failed-{name}"
