# SPDX-License-Identifier: GPL-2.0-or-later
"""Notes about a pool that outlive a boot, and are not on the pool: `/var/lib/sanctl/pools`."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from sanctl.system import files
from sanctl.system.files import is_folder, read_text_or, sync_folder, write_atomically

if TYPE_CHECKING:
    from sanctl.model.names import PoolName

_FOLDER = "/var/lib/sanctl/pools"

WRITE_BACK = "write-back"
"""What is on the pool's flash is right, and needed (sanctl/plan/pool/flash_assembly.py)."""
STOPPED = "stopped"
"""The pool was unmounted in order, with this cache set."""
SHUT_DOWN = "shut-down"
"""Its filesystem has shut itself down: what it held may lack acknowledged writes."""
MAKING = "making"
"""Its filesystem is being made, and holds nothing yet (sanctl/plan/pool/preparation.py)."""
MADE = "made"
"""It has been made on this node, and is made anew only where an operator says so."""


def write(pool: PoolName | str, kind: str, text: str = "") -> None:
    """Write a note; it is on the disk when this returns."""
    if not is_folder(_FOLDER):
        os.makedirs(_FOLDER, mode=0o700)
        sync_folder(os.path.dirname(_FOLDER))
    write_atomically(_path(pool, kind), text)


def clear(pool: PoolName | str, kind: str) -> None:
    """Remove a note; one that is gone is fine."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_path(pool, kind))
        sync_folder(_FOLDER)


def exists(pool: PoolName | str, kind: str) -> bool:
    """Whether there is such a note.

    Raises:
        OSError: it is not known; what the note forbids stays forbidden.
    """
    return files.exists(_path(pool, kind))


def is_of(pool: PoolName | str, kind: str, uuid: str) -> bool:
    """Whether there is such a note of the pool with this uuid; another's says nothing of it.

    Raises:
        OSError: it is not known.
    """
    return read(pool, kind).strip() == uuid


def read(pool: PoolName | str, kind: str) -> str:
    """Return what a note says; empty without one."""
    return read_text_or(_path(pool, kind), "")


def age_s(pool: PoolName | str, kind: str) -> float:
    """Return how old a note is; 0 without one, or where the clock was put back since."""
    try:
        return max(time.time() - os.stat(_path(pool, kind)).st_mtime, 0.0)
    except FileNotFoundError:
        return 0.0


def _path(pool: PoolName | str, kind: str) -> str:
    return f"{_FOLDER}/{pool}.{kind}"
