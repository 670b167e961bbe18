# SPDX-License-Identifier: GPL-2.0-or-later
"""The dm-delay device `sanctl-NAME.disk` that DRBD attaches as its disk, above the loop device.

The device keeps write-zeroes requests from the loop device. A loop device turns such a request into
a change of the file's extents, which its filesystem commits some seconds later, also where every
write of the file is on stable storage when it ends (fs/ext4/extents.c, ext4_zero_range).
Device-mapper offers write-zeroes only where all targets of a table do (drivers/md/dm-table.c,
dm_table_supports_write_zeroes). `delay` does not, and with a delay of 0 it passes everything else
on at once. So zeros reach the file as writes like any other. See docs/adr/0040.

The name has a dot, which no device's name has.
"""

from __future__ import annotations

import os

from sanctl.drivers import dm, loop
from sanctl.system.files import is_folder
from sanctl.system.runner import Runner

_MODULE = "/sys/module/dm_delay"


def path(name: str) -> str | None:
    """Return the path that DRBD attaches, None where there is no such device."""
    return dm.path(dm_name(name)) if exists(name) else None


def exists(name: str) -> bool:
    """Whether there is such a device."""
    return dm.lower_device(dm_name(name)) is not None


def refuses_write_zeroes(name: str) -> bool:
    """Whether zeros that DRBD writes reach the file as ordinary writes; unknown is no.

    On a kernel without dm-delay that holds only while a read cache is below.
    """
    return is_folder(_MODULE) and dm.queue_limit(dm_name(name), "write_zeroes_max_bytes") == "0"


def lower_device(name: str) -> str | None:
    """Return the name of the block device below (`loop3`, `dm-7`), None without such a device."""
    return dm.lower_device(dm_name(name))


def create(runner: Runner, name: str, *, over: str) -> None:
    """Create the device over a loop device, where it is not there already. Nothing uses it yet.

    `over` is `/dev/loopN` of the data file.

    Raises:
        CommandError: the kernel refused.
    """
    if lower_device(name) == os.path.basename(over) and not dm.is_suspended(dm_name(name)):
        grow(name, over=over)
        return
    dm.remove(dm_name(name))
    if not is_folder(_MODULE):
        # On a kernel without dm-delay, `refuses_write_zeroes` says that the device does not.
        runner.run(["modprobe", "dm-delay"], timeout_s=dm.TIMEOUT_S, ok=range(256))
    dm.create(dm_name(name), _table(over, loop.size_bytes(over)))


def switch(
    name: str,
    *,
    onto: str,
    size_bytes: int,
    within_s: float = dm.TIMEOUT_S,
) -> None:
    """Switch the device over to another lower device that holds the same data; I/O goes on.

    I/O in flight may take `within_s` seconds to end.

    Raises:
        CommandError: the kernel refused, or I/O in flight below does not end.
    """
    dm.swap_table(dm_name(name), _table(onto, size_bytes), timeout_s=within_s)


def clear_inactive_table(name: str) -> None:
    """Drop a table that was loaded and never became active."""
    dm.clear_inactive_table(dm_name(name))


def grow(name: str, *, over: str) -> None:
    """Make the device as large as its loop device has become; I/O goes on.

    Raises:
        CommandError: the kernel refused, or I/O in flight below does not end.
    """
    if is_too_small(name, over=over):
        switch(name, onto=over, size_bytes=loop.size_bytes(over))
    resume(name)


def resume(name: str) -> None:
    """Resume the device where an interrupted swap has left it suspended."""
    if dm.is_suspended(dm_name(name)):
        dm.resume(dm_name(name))


def is_too_small(name: str, *, over: str) -> bool:
    """Whether the loop device has become larger than the device above it."""
    present = dm.size_bytes(dm_name(name))
    return present is not None and present < loop.size_bytes(over)


def remove(name: str) -> None:
    """Remove the device, after DRBD has detached; one that is gone is fine.

    Raises:
        CommandError: something holds the device open.
    """
    dm.remove(dm_name(name))


def dm_name(name: str) -> str:
    """Return the name of the device-mapper device."""
    return f"sanctl-{name}.disk"


def _table(below: str, size_bytes: int) -> str:
    sectors = size_bytes // dm.SECTOR_BYTES
    if is_folder(_MODULE):
        return f"0 {sectors} delay {below} 0 0"
    return f"0 {sectors} linear {below} 0"
