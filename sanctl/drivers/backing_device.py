# SPDX-License-Identifier: GPL-2.0-or-later
"""The device between DRBD and the data file's loop device: `sanctl-NAME.disk`.

It is there for what it does not offer. A loop device takes a request to write zeros and makes a
change of the file's extents of it, which its filesystem commits some seconds later, also where
every write of the file is on stable storage when it ends (fs/ext4/extents.c, ext4_zero_range).
Device-mapper offers such requests only where all targets of a table do (drivers/md/dm-table.c,
dm_table_supports_write_zeroes). `delay` does not, and with a delay of nothing it passes everything
else on at once. So zeros reach the file as writes like any other. See docs/adr/0040.

The name has a dot, as no device's name does.
"""

from __future__ import annotations

import os

from sanctl.drivers import dm, loop
from sanctl.system.files import is_folder
from sanctl.system.runner import Runner

_MODULE = "/sys/module/dm_delay"


def path(name: str) -> str | None:
    """Return what DRBD attaches, None where there is no such device."""
    return dm.path(_of(name)) if exists(name) else None


def exists(name: str) -> bool:
    """Whether there is such a device."""
    return dm.below(_of(name)) is not None


def has_ordinary_zeros(name: str) -> bool:
    """Whether zeros that DRBD writes reach the file as ordinary writes; unknown is no.

    Without the target that sees to it they do so only for as long as a read cache is below.
    """
    return is_folder(_MODULE) and dm.limit(_of(name), "write_zeroes_max_bytes") == "0"


def leads_onto(name: str) -> str | None:
    """Return the name of the block device it leads onto (`loop3`, `dm-7`), None without one."""
    return dm.below(_of(name))


def stand(runner: Runner, name: str, *, over: str) -> None:
    """Make it over a loop device, where it is not there already. Nothing uses it yet.

    Args:
        runner: starts dmsetup.
        name: the device's name.
        over: `/dev/loopN` of the data file.

    Raises:
        CommandError: the kernel refused.
    """
    if leads_onto(name) == os.path.basename(over) and not dm.is_suspended(_of(name)):
        grow(runner, name, over=over)
        return
    dm.remove(runner, _of(name))
    if not is_folder(_MODULE):
        # Where the kernel has none, zeros go on as they did, and `has_ordinary_zeros` says so.
        runner.run(["modprobe", "dm-delay"], timeout_s=dm.TIMEOUT_S, ok=range(256))
    dm.create(runner, _of(name), _table(over, loop.size_bytes(over)))


def lead(
    runner: Runner,
    name: str,
    *,
    onto: str,
    size_bytes: int,
    within_s: float = dm.TIMEOUT_S,
) -> None:
    """Lead it onto another device of the same data; I/O goes on.

    What is in flight may take `within_s` seconds to end.

    Raises:
        CommandError: the kernel refused, or what is in flight below does not end.
    """
    dm.swap(runner, _of(name), _table(onto, size_bytes), timeout_s=within_s)


def drop_loaded(runner: Runner, name: str) -> None:
    """Forget a table that was loaded and never put in force."""
    dm.drop_loaded(runner, _of(name))


def grow(runner: Runner, name: str, *, over: str) -> None:
    """Make it as large as its loop device has become; I/O goes on.

    Raises:
        CommandError: the kernel refused, or what is in flight below does not end.
    """
    if is_too_small(name, over=over):
        lead(runner, name, onto=over, size_bytes=loop.size_bytes(over))
    release(runner, name)


def release(runner: Runner, name: str) -> None:
    """Let I/O through where an interrupted swap holds it back."""
    if dm.is_suspended(_of(name)):
        dm.resume(runner, _of(name))


def is_too_small(name: str, *, over: str) -> bool:
    """Whether its loop device has become larger than it."""
    present = dm.size_bytes(_of(name))
    return present is not None and present < loop.size_bytes(over)


def remove(runner: Runner, name: str) -> None:
    """Remove it, after DRBD has let go of it; one that is gone is fine.

    Raises:
        CommandError: something holds it open.
    """
    dm.remove(runner, _of(name))


def _of(name: str) -> str:
    return f"sanctl-{name}.disk"


def _table(below: str, size_bytes: int) -> str:
    sectors = size_bytes // dm.SECTOR_BYTES
    if is_folder(_MODULE):
        return f"0 {sectors} delay {below} 0 0"
    return f"0 {sectors} linear {below} 0"
