# SPDX-License-Identifier: GPL-2.0-or-later
"""Any device-mapper device by its name: create, swap its table, suspend, remove (dmsetup(8))."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from typing import NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

TIMEOUT_S = 20.0
SECTOR_BYTES = 512
_FOLDER = "/dev/mapper"
# linux/dm-ioctl.h: DM_TABLE_DEPS; struct dm_ioctl, and the numbers of devices that follow it.
_TABLE_DEPS, _IOCTL_BYTES = 0xC138FD0B, 1024
_IOCTL, _COUNT, _DEVICE = struct.Struct("=3I2IIi3IQ128s129s7x"), struct.Struct("=I4x"), "=Q"
# DM_SUSPEND_FLAG
_SUSPENDED = 2
_NO_SUCH_DEVICE = (errno.ENOENT, errno.ENXIO, errno.ENODEV)


def path(dm_name: str) -> str:
    """Return the path by which a device is opened."""
    return f"{_FOLDER}/{dm_name}"


def kernel_name(dm_name: str) -> str | None:
    """Return `dm-N` of a device, None where the kernel has none of that name.

    The node in /dev/mapper is only a hint: udev may make or remove it late, so the kernel's own
    list decides.
    """
    with contextlib.suppress(FileNotFoundError):
        hint = f"dm-{os.minor(os.stat(path(dm_name)).st_rdev)}"
        if read_text_or(f"/sys/block/{hint}/dm/name", "").strip() == dm_name:
            return hint
    for entry in os.listdir("/sys/block"):
        if entry.startswith("dm-") and (
            read_text_or(f"/sys/block/{entry}/dm/name", "").strip() == dm_name
        ):
            return entry
    return None


class ActiveTable(NamedTuple):
    """What the kernel says of a device's active table.

    Attributes:
        lower: the name of the block device below (`drbd1`, `loop3`); empty: the table has none.
        is_suspended: its I/O waits.
        raw: what of the answer changes when the table, its state or the device does; a load that
            is not active yet changes it, too. resource-agents/client compares these bytes.
    """

    lower: str
    is_suspended: bool
    raw: bytes


def active_table(dm_name: str) -> ActiveTable | None:
    """Return what the kernel says of a device's active table, None where there is no such device.

    No process, and no open of the device. The kernel is asked for the active table: sysfs
    (`slaves`) also shows the devices of an inactive one.

    Raises:
        CommandError: the kernel did not answer.
    """
    try:
        handle = os.open(f"{_FOLDER}/control", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_SUCH_DEVICE:
            return None  # No device-mapper, so no such device.
        raise _unknown(dm_name, error) from error
    request = _IOCTL.pack(
        4, 0, 0, _IOCTL_BYTES, _IOCTL.size, 0, 0, 0, 0, 0, 0, dm_name.encode(), b""
    )
    try:
        answer = fcntl.ioctl(handle, _TABLE_DEPS, request.ljust(_IOCTL_BYTES, b"\0"))
    except OSError as error:
        if error.errno in _NO_SUCH_DEVICE:
            return None
        raise _unknown(dm_name, error) from error
    finally:
        os.close(handle)
    fields = _IOCTL.unpack_from(answer)
    at, flags = fields[4], fields[7]
    lower = ""
    if _COUNT.unpack_from(answer, at)[0]:
        (number,) = struct.unpack_from(_DEVICE, answer, at + _COUNT.size)
        device = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
        lower = os.path.basename(os.path.realpath(device))
    # Flags, number of the device, and the first device below (struct dm_target_deps).
    raw = answer[28:32] + answer[40:48] + answer[_IOCTL.size : _IOCTL.size + 24]
    return ActiveTable(lower, bool(flags & _SUSPENDED), raw)


def lower_device(dm_name: str) -> str | None:
    """Return the name of the block device below a device; no process, and no open of the device.

    Empty where the table has no block device; None where there is no such device.

    Raises:
        CommandError: the kernel did not answer.
    """
    found = active_table(dm_name)
    return None if found is None else found.lower


def _unknown(dm_name: str, error: OSError) -> CommandError:
    return CommandError(
        Problem("SAN-DM-001", f"device-mapper gave no answer about {dm_name}: {error.strerror}")
    )


def is_suspended(dm_name: str) -> bool:
    """Whether a device is suspended: its I/O waits."""
    return read_text_or(f"/sys/block/{kernel_name(dm_name)}/dm/suspended", "0").strip() == "1"


def size_bytes(dm_name: str) -> int | None:
    """Return a device's size, None where there is no such device."""
    node = kernel_name(dm_name)
    text = read_text_or(f"/sys/block/{node}/size", "") if node else ""
    return int(text) * SECTOR_BYTES if text.strip() else None


def queue_limit(dm_name: str, which: str) -> str:
    """Return a limit of a device's queue (sysfs-block, queue/*), empty where sysfs has none."""
    return read_text_or(f"/sys/block/{kernel_name(dm_name)}/queue/{which}", "").strip()


def create(runner: Runner, dm_name: str, table: str) -> None:
    """Create a device.

    Raises:
        CommandError: there is one of that name, or the kernel refused the table.
    """
    # No udev rules: they would open and probe the device while its table has a device below.
    # --verifyudev has libdm make the node itself then, which it otherwise leaves to udev.
    runner.run(
        ["dmsetup", "create", dm_name, "--noudevrules", "--verifyudev", "--table", table],
        timeout_s=TIMEOUT_S,
    )


def swap_table(runner: Runner, dm_name: str, table: str, timeout_s: float = TIMEOUT_S) -> None:
    """Give a device another table, after the I/O in flight below it has ended.

    Raises:
        CommandError: refused, or not done in time; the old table may still be active.
    """
    runner.run(["dmsetup", "reload", dm_name, "--table", table], timeout_s=TIMEOUT_S)
    try:
        # Resuming a device with a loaded table suspends it, swaps and resumes: one call, not three.
        # --noudevsync: nothing here waits for udev's links, and udev must not hold up a failover.
        runner.run(["dmsetup", "resume", "--noudevsync", dm_name], timeout_s=timeout_s)
    except CommandError:
        # The kernel keeps the inactive table, and with it a reference to the device below.
        clear_inactive_table(runner, dm_name)
        raise


def clear_inactive_table(runner: Runner, dm_name: str) -> None:
    """Have the kernel drop a device's inactive table (one that was only loaded), if any."""
    runner.run(["dmsetup", "clear", dm_name], timeout_s=TIMEOUT_S, ok=range(256))


def suspend(runner: Runner, dm_name: str) -> None:
    """Suspend a device: all its I/O waits."""
    runner.run(["dmsetup", "suspend", "--noudevsync", dm_name], timeout_s=TIMEOUT_S)


def resume(runner: Runner, dm_name: str) -> None:
    """Resume a suspended device."""
    runner.run(["dmsetup", "resume", "--noudevsync", dm_name], timeout_s=TIMEOUT_S)


def remove(runner: Runner, dm_name: str) -> None:
    """Remove a device; one that is gone is fine."""
    if kernel_name(dm_name) is not None:
        # --retry: a probe of udev or blkid may hold it for a moment.
        runner.run(["dmsetup", "remove", "--retry", "--noudevsync", dm_name], timeout_s=TIMEOUT_S)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path(dm_name))
