# SPDX-License-Identifier: GPL-2.0-or-later
"""The dm-cache device of a device's read cache in RAM, between its loop device and DRBD's disk.

`sanctl-NAME.ram` is a dm-cache in write-through over the data file's loop device, with its blocks
and its map in two files of a ramfs: RAM that is never swapped, of no more than the files' size, and
gone with the node. A write is on the data file before it ends, and a flush reaches the data file
(drivers/md/dm-cache-target.c, remap_to_origin_and_cache, num_flush_bios), so the cache weakens no
guarantee of a write or a flush. The cache begins cold.

dm-cache keeps the cached data of a block that is discarded. So it offers no discards here: DRBD
then writes zeros instead (drbd_receiver.c, drbd_issue_discard_or_zero_out), and reads return what
was written. See docs/adr/0041.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from sanctl.drivers import backing_device, dm, loop
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files
from sanctl.system.files import exists, is_mount_point, read_text_or
from sanctl.system.runner import Runner

_FOLDER = state_files.ram_folder()
# The smallest block that dm-cache accepts: a miss reads a whole block to fill the cache.
_BLOCK_BYTES = 32 << 10
# Documentation/admin-guide/device-mapper/cache.rst: 4 MiB, and 16 bytes for each block; the policy
# keeps a hint of 4 bytes beside it.
_MAP_LEAST_BYTES = 4 << 20
_MAP_BLOCK_BYTES = 32


class Usage(NamedTuple):
    """How much a read cache holds, and its hits.

    Attributes:
        held_bytes: the data of the device that is in the cache.
        reads: reads since the cache exists.
        hits: how many of them the cache answered.
    """

    held_bytes: int
    reads: int
    hits: int


def size_bytes(name: str) -> int:
    """Return the size of the read cache that a device's reads go through; 0 without one.

    -1 where the size is not known: the cache's files are gone.
    """
    below = backing_device.lower_device(name)
    if not below or not below.startswith("dm-"):
        return 0
    try:
        return os.stat(_blocks(name)).st_size
    except FileNotFoundError:
        return -1


def exists_any(name: str) -> bool:
    """Whether any part of a device's read cache exists."""
    return any(exists(path) for path in (dm.path(_of(name)), *_files(name)))


def ram_bytes(name: str) -> int:
    """Return how much RAM a device's read cache occupies now."""
    taken = 0
    for path in _files(name):
        with contextlib.suppress(FileNotFoundError):
            taken += os.stat(path).st_blocks * 512
    return taken


def reserved_bytes() -> int:
    """Return how much more RAM all read caches of this node may still come to occupy."""
    left = 0
    for entry in _entries():
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(f"{_FOLDER}/{entry}")
            left += max(0, found.st_size - found.st_blocks * 512)
    return left


def locked(*, wait: bool = True) -> contextlib.AbstractContextManager[bool]:
    """Lock the node's read caches: between the check for free RAM and its use.

    Without `wait` only if no other process holds the lock; yields whether this one got it.
    """
    return state_files.locked(state_files.node_lock("ram"), wait_s=None if wait else 0.0)


def needed_bytes(size: int) -> int:
    """Return how much RAM a read cache of that size occupies when it is full."""
    return size + _map_bytes(size)


def insert(
    runner: Runner, name: str, *, over: str, size: int, within_s: float = dm.TIMEOUT_S
) -> None:
    """Have a device's reads go through a new read cache; I/O goes on.

    `over` is `/dev/loopN` of the data file, the device below DRBD's disk now; `within_s` is how
    long I/O in flight may take to end.

    Raises:
        CommandError: the kernel refused; reads go to the loop device as before.
    """
    remove_parts(name)
    _mount(runner)
    for path, length in zip(_files(name), (size, _map_bytes(size)), strict=True):
        with open(path, "wb") as file:
            file.truncate(length)
    blocks, index = (loop.attach(path, direct_io=False) for path in _files(name))
    origin_bytes = loop.size_bytes(over)
    dm.create(
        _of(name),
        f"0 {origin_bytes // dm.SECTOR_BYTES} cache {index} {blocks} {over}"
        f" {_BLOCK_BYTES // dm.SECTOR_BYTES} 1 writethrough default 0",
    )
    _offer_no_discards(name)
    backing_device.switch(name, onto=dm.path(_of(name)), size_bytes=origin_bytes, within_s=within_s)


def remove(name: str, *, over: str, within_s: float = dm.TIMEOUT_S) -> None:
    """Have a device's reads go to its data file again, and free the RAM; I/O goes on.

    I/O in flight may take `within_s` seconds to end.

    Raises:
        CommandError: I/O in flight does not end, or a part of the cache could not be removed.
    """
    if size_bytes(name):
        size = loop.size_bytes(over)
        backing_device.switch(name, onto=over, size_bytes=size, within_s=within_s)
    remove_parts(name)


def remove_parts(name: str) -> None:
    """Remove the parts of a read cache that no reads go through; parts that are gone are fine.

    Raises:
        CommandError: something holds a part open.
    """
    if exists_any(name):
        # A process that died in a swap has left an inactive table, which refers to the cache.
        backing_device.clear_inactive_table(name)
    dm.remove(_of(name))
    for path in _files(name):
        loop.detach(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def usage(runner: Runner, name: str) -> Usage | None:
    """Return dm-cache's own counters, None where the cache has failed (dmsetup(8), status).

    Raises:
        CommandError: there is no read cache.
    """
    done = runner.run(["dmsetup", "status", "--noflush", _of(name)], timeout_s=dm.TIMEOUT_S)
    return parse_status(done.stdout)


def parse_status(text: str) -> Usage | None:
    """Read the status line of a cache target that works (device-mapper/cache.rst)."""
    # start length "cache" map-block used/all block used/all hits misses write-hits …
    words = text.split()
    if len(words) < 9 or words[2] != "cache" or {"Fail", "ro", "needs_check"} & set(words):
        return None
    held, _, _ = words[6].partition("/")
    numbers = (words[5], held, words[7], words[8])
    if not all(word.isdecimal() for word in numbers):
        return None
    block, blocks, hits, misses = map(int, numbers)
    return Usage(block * dm.SECTOR_BYTES * blocks, hits + misses, hits)


def _of(name: str) -> str:
    return f"sanctl-{name}.ram"


def _blocks(name: str) -> str:
    return f"{_FOLDER}/{name}.blocks"


def _files(name: str) -> tuple[str, str]:
    return _blocks(name), f"{_FOLDER}/{name}.map"


def _entries() -> list[str]:
    try:
        return os.listdir(_FOLDER)
    except FileNotFoundError:
        return []


def _map_bytes(size: int) -> int:
    return _MAP_LEAST_BYTES + _MAP_BLOCK_BYTES * (size // _BLOCK_BYTES)


def _mount(runner: Runner) -> None:
    os.makedirs(_FOLDER, mode=0o700, exist_ok=True)
    if not is_mount_point(_FOLDER):
        runner.run(
            ["mount", "-t", "ramfs", "-o", "mode=0700", "sanctl-ram", _FOLDER],
            timeout_s=dm.TIMEOUT_S,
        )


def _offer_no_discards(name: str) -> None:
    """Set the cache's discard limit to 0, before the device above copies it with its table.

    Raises:
        CommandError: the kernel did not accept it.
    """
    path = f"/sys/block/{dm.kernel_name(_of(name))}/queue/discard_max_bytes"
    with open(path, "w", encoding="ascii") as file:
        file.write("0")
    if read_text_or(path, "").strip() != "0":
        raise CommandError(
            Problem("SAN-CACHE-010", f"{path} does not become 0: reads would not see discards")
        )
