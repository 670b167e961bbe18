# SPDX-License-Identifier: GPL-2.0-or-later
"""What the device files of a pool share with others: each is looked at once a minute at most.

But for those that may share more since (sanctl/plan/device/known_blocks.py). Otherwise fifty
devices whose restore points are made at one hour would have each file looked at fifty times, and by
each monitor of the pool meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from sanctl.drivers import point_files, pool_files, reflink
from sanctl.plan.device.known_blocks import Look, SharingFile, is_known, sharers
from sanctl.system import state_files

_SECTOR_BYTES = 512


def names(pool_path: str, *kinds: str) -> list[str]:
    """Return the names of a pool's device files of some kinds.

    Raises:
        OSError: the pool cannot be read.
    """
    try:
        return [name for name in os.listdir(f"{pool_path}/devices") if name.endswith(kinds)]
    except FileNotFoundError:
        return []


def clones(pool_path: str) -> list[str]:
    """Return the notes of clones: they share blocks also when the restore point is deleted."""
    return sorted(names(pool_path, f".{pool_files.CLONE_NOTE}"))


def looks(pool: str, pool_path: str, files: Iterable[str]) -> dict[str, Look]:
    """Return what is known of device files by name, and look at those of which it is not.

    A file that is removed meanwhile is left out.

    Raises:
        OSError: a file or the pool cannot be read.
    """
    note = state_files.of_pool(pool, "known-blocks")
    known = _read(note)
    between = sharers(_points(pool_path), clones(pool_path), names(pool_path, ".data", ".meta"))
    found, is_new = {}, False
    for name in set(files) & set(between):
        look = known.get(name)
        if look is None or not is_known(look, between[name], time.monotonic()):
            with contextlib.suppress(FileNotFoundError):
                found[name], is_new = _look(f"{pool_path}/devices/{name}", between[name]), True
        else:
            found[name] = look
    if is_new:
        # Without room for the note the next one looks again.
        with contextlib.suppress(OSError):
            note.write("\n".join(look.line(name) for name, look in (known | found).items()))
    return found


def allocated_bytes(path: str) -> int:
    """Return all blocks of a file, in bytes.

    Raises:
        OSError: the file is gone.
    """
    return os.stat(path, follow_symlinks=False).st_blocks * _SECTOR_BYTES


def _look(path: str, between: str) -> Look:
    before, seen_s = allocated_bytes(path), time.monotonic()
    blocks = reflink.blocks_of(path)
    # The larger one: what hosts write or unmap during the look counts as missing, if at all.
    allocated = max(before, allocated_bytes(path))
    return Look(blocks.own, blocks.shared, blocks.reserved, allocated, seen_s, between)


def _points(pool_path: str) -> list[SharingFile]:
    found = []
    for file in point_files.listed(pool_path):
        # Also one that is gone by now: the next look has another word for it. One that is being
        # made may share more in each moment (copied_ahead.py): each look has a word of its own.
        state = time.monotonic_ns() if file.is_taking else 0
        with contextlib.suppress(FileNotFoundError):
            state = state or os.stat(file.path, follow_symlinks=False).st_size
        found.append(SharingFile(f"{file.device}.{file.uuid}", file.token, state))
    return found


def _read(note: state_files.StateFile) -> dict[str, Look]:
    try:
        lines = note.read().splitlines()
    except OSError:
        return {}
    now_s = time.monotonic()
    read = (Look.parse(line) for line in lines)
    return {
        each[0]: each[1]
        for each in read
        if each is not None and is_known(each[1], each[1].between, now_s)
    }
