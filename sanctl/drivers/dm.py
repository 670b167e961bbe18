# SPDX-License-Identifier: GPL-2.0-or-later
"""Device-mapper devices by their names: what the kernel says of them, and dmsetup(8)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct

from sanctl.errors import CommandError, Problem
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

TIMEOUT_S = 20.0
SECTOR_BYTES = 512
_FOLDER = "/dev/mapper"
# linux/dm-ioctl.h: DM_TABLE_DEPS; struct dm_ioctl, and the numbers of devices that follow it.
_TABLE_DEPS, _IOCTL_BYTES = 0xC138FD0B, 1024
_IOCTL, _COUNT, _DEVICE = struct.Struct("=3I2IIi3IQ128s129s7x"), struct.Struct("=I4x"), "=Q"
_NO_SUCH_DEVICE = (errno.ENOENT, errno.ENXIO, errno.ENODEV)


def path(dm_name: str) -> str:
    """Return the node by which a device is opened."""
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


def below(dm_name: str) -> str | None:
    """Return the name of the block device that a device leads onto; no process, no open of it.

    Empty where it leads onto none; None where there is no such device. The kernel is asked for the
    table in force: sysfs (`slaves`) also shows what one leads onto that was only loaded.

    Raises:
        CommandError: the kernel did not tell.
    """
    try:
        handle = os.open(f"{_FOLDER}/control", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_SUCH_DEVICE:
            return None  # No device-mapper, so nothing of it.
        raise _untold(dm_name, error) from error
    asked = _IOCTL.pack(4, 0, 0, _IOCTL_BYTES, _IOCTL.size, 0, 0, 0, 0, 0, 0, dm_name.encode(), b"")
    try:
        told = fcntl.ioctl(handle, _TABLE_DEPS, asked.ljust(_IOCTL_BYTES, b"\0"))
    except OSError as error:
        if error.errno in _NO_SUCH_DEVICE:
            return None
        raise _untold(dm_name, error) from error
    finally:
        os.close(handle)
    at = _IOCTL.unpack_from(told)[4]
    if not _COUNT.unpack_from(told, at)[0]:
        return ""
    (number,) = struct.unpack_from(_DEVICE, told, at + _COUNT.size)
    device = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
    return os.path.basename(os.path.realpath(device))


def _untold(dm_name: str, error: OSError) -> CommandError:
    return CommandError(
        Problem("SAN-DM-001", f"device-mapper does not tell of {dm_name}: {error.strerror}")
    )


def is_suspended(dm_name: str) -> bool:
    """Whether a device holds I/O back."""
    return read_text_or(f"/sys/block/{kernel_name(dm_name)}/dm/suspended", "0").strip() == "1"


def size_bytes(dm_name: str) -> int | None:
    """Return a device's size, None where there is none."""
    node = kernel_name(dm_name)
    text = read_text_or(f"/sys/block/{node}/size", "") if node else ""
    return int(text) * SECTOR_BYTES if text.strip() else None


def limit(dm_name: str, which: str) -> str:
    """Return a limit of a device's queue (sysfs-block, queue/*), empty where it is not told."""
    return read_text_or(f"/sys/block/{kernel_name(dm_name)}/queue/{which}", "").strip()


def create(runner: Runner, dm_name: str, table: str) -> None:
    """Make a device.

    Raises:
        CommandError: there is one of that name, or the kernel refused the table.
    """
    # No udev rules: they would open and probe the device while it leads somewhere. --verifyudev
    # makes libdm make the node itself then, which it otherwise leaves to udev.
    runner.run(
        ["dmsetup", "create", dm_name, "--noudevrules", "--verifyudev", "--table", table],
        timeout_s=TIMEOUT_S,
    )


def swap(runner: Runner, dm_name: str, table: str, timeout_s: float = TIMEOUT_S) -> None:
    """Give a device another table, after what is in flight below it has ended.

    Raises:
        CommandError: refused, or not done in time; it may still lead where it led.
    """
    runner.run(["dmsetup", "reload", dm_name, "--table", table], timeout_s=TIMEOUT_S)
    try:
        # Resuming a device with a loaded table suspends it, swaps and resumes: one call, not three.
        # --noudevsync: nothing here waits for udev's links, and udev must not hold up a failover.
        runner.run(["dmsetup", "resume", "--noudevsync", dm_name], timeout_s=timeout_s)
    except CommandError:
        # The kernel keeps the loaded table, and with it a hold on what that leads onto.
        drop_loaded(runner, dm_name)
        raise


def drop_loaded(runner: Runner, dm_name: str) -> None:
    """Have the kernel forget a table that was loaded and is not in force, if there is one."""
    runner.run(["dmsetup", "clear", dm_name], timeout_s=TIMEOUT_S, ok=range(256))


def suspend(runner: Runner, dm_name: str) -> None:
    """Hold all I/O of a device back."""
    runner.run(["dmsetup", "suspend", "--noudevsync", dm_name], timeout_s=TIMEOUT_S)


def resume(runner: Runner, dm_name: str) -> None:
    """Let I/O through again that was held back."""
    runner.run(["dmsetup", "resume", "--noudevsync", dm_name], timeout_s=TIMEOUT_S)


def remove(runner: Runner, dm_name: str) -> None:
    """Remove a device; one that is gone is fine."""
    if kernel_name(dm_name) is not None:
        # --retry: a probe of udev or blkid may hold it for a moment.
        runner.run(["dmsetup", "remove", "--retry", "--noudevsync", dm_name], timeout_s=TIMEOUT_S)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path(dm_name))
