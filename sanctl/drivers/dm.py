# SPDX-License-Identifier: GPL-2.0-or-later
"""Any device-mapper device by its name: create, swap its table, suspend, remove (linux/dm-ioctl.h).

By ioctl, not by dmsetup: these calls are on the failover path, where a process costs more than all
else. And without the cookie of libdm: with each cookie udev starts dmsetup twice, to read the flags
in it and to say that it is done (55-dm.rules, 95-dm-notify.rules). Nothing here waits for udev, and
what it is to leave alone sanctl's own rules say (ansible/roles/sanctl_kernel).

A call may wait for I/O that never ends, so each has a time limit (sanctl/system/timed_call.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.system import timed_call
from sanctl.system.files import read_text_or

TIMEOUT_S = 20.0
SECTOR_BYTES = 512
_FOLDER = "/dev/mapper"
# linux/dm-ioctl.h: commands; struct dm_ioctl, the numbers of devices that follow it, and
# struct dm_target_spec, whose parameters follow that.
_DEV_CREATE, _DEV_REMOVE, _DEV_SUSPEND = 0xC138FD03, 0xC138FD04, 0xC138FD06
_TABLE_LOAD, _TABLE_CLEAR, _TABLE_DEPS = 0xC138FD09, 0xC138FD0A, 0xC138FD0B
_IOCTL_BYTES, _SUSPEND_FLAG, _ACTIVE_PRESENT_FLAG = 1024, 1 << 1, 1 << 5
# No filesystem is mounted on a gate.
_SKIP_LOCKFS_FLAG = 1 << 10
_IOCTL, _COUNT, _DEVICE = struct.Struct("=3I2IIi3IQ128s129s7x"), struct.Struct("=I4x"), "=Q"
_TARGET = struct.Struct("=QQiI16s")
#: A stop that gives up has its node fenced: for what udev's programs need on a busy node, each with
#: a device of its own, that is too much. Four removals fit into a stop's time (docs/adr/0091).
_BUSY_RETRY_S, _BUSY_POLL_S = 20.0, 0.05
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
    """Return what the kernel says of a device's active table, None where it has no such table.

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
    try:
        answer = fcntl.ioctl(handle, _TABLE_DEPS, _request(dm_name))
    except OSError as error:
        if error.errno in _NO_SUCH_DEVICE:
            return None
        raise _unknown(dm_name, error) from error
    finally:
        os.close(handle)
    fields = _IOCTL.unpack_from(answer)
    at, flags = fields[4], fields[7]
    if not flags & _ACTIVE_PRESENT_FLAG:
        return None  # A process was killed between the device's creation and its table.
    lower = ""
    if _COUNT.unpack_from(answer, at)[0]:
        (number,) = struct.unpack_from(_DEVICE, answer, at + _COUNT.size)
        device = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
        lower = os.path.basename(os.path.realpath(device))
    # Flags, number of the device, and the first device below (struct dm_target_deps).
    raw = answer[28:32] + answer[40:48] + answer[_IOCTL.size : _IOCTL.size + 24]
    return ActiveTable(lower, bool(flags & _SUSPEND_FLAG), raw)


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


def create(dm_name: str, table: str) -> None:
    """Create a device.

    Raises:
        CommandError: there is one of that name, or the kernel refused the table.
    """
    _call(f"create {dm_name}", partial(_create, dm_name, table))


def swap_table(dm_name: str, table: str, timeout_s: float = TIMEOUT_S) -> None:
    """Give a device another table, after the I/O in flight below it has ended.

    Raises:
        CommandError: refused, or not done in time; the old table may still be active.
    """
    try:
        _call(f"give {dm_name} another table", partial(_swap, dm_name, table), timeout_s)
    except CommandError:
        # The kernel keeps the inactive table, and with it a reference to the device below.
        clear_inactive_table(dm_name)
        raise


def clear_inactive_table(dm_name: str) -> None:
    """Have the kernel drop a device's inactive table (one that was only loaded), if any."""
    with contextlib.suppress(CommandError):
        _call(f"clear {dm_name}", partial(_ioctls, (_TABLE_CLEAR, _request(dm_name))))


def suspend(dm_name: str) -> None:
    """Suspend a device: all its I/O waits.

    Raises:
        CommandError: there is no such device, or its I/O in flight does not end.
    """
    request = _request(dm_name, flags=_SUSPEND_FLAG)
    _call(f"suspend {dm_name}", partial(_ioctls, (_DEV_SUSPEND, request)))


def resume(dm_name: str) -> None:
    """Resume a suspended device.

    Raises:
        CommandError: there is no such device, or the kernel did not answer.
    """
    _call(f"resume {dm_name}", partial(_ioctls, (_DEV_SUSPEND, _request(dm_name))))


def hold(dm_name: str) -> None:
    """Suspend a device as `suspend` does, in this thread: a signal to it ends the wait.

    Returns when no I/O is in flight below the device any more (dm.c, dm_wait_for_completion). After
    a signal the device is not suspended.

    Raises:
        OSError: there is no such device, or a signal came.
    """
    _ioctls((_DEV_SUSPEND, _request(dm_name, flags=_SUSPEND_FLAG | _SKIP_LOCKFS_FLAG)))


def release(dm_name: str) -> None:
    """Resume a device that `hold` has suspended; one that is not suspended is fine.

    Raises:
        OSError: there is no such device.
    """
    _ioctls((_DEV_SUSPEND, _request(dm_name)))


def remove(dm_name: str) -> None:
    """Remove a device; one that is gone is fine.

    Raises:
        CommandError: something holds the device open.
    """
    # Asked of the kernel in any case: sysfs does not show a device that never had a table, which a
    # process that was killed in `create` leaves, and which would be in the way of the next one.
    _call(f"remove {dm_name}", partial(_remove, dm_name))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path(dm_name))


def _create(dm_name: str, table: str) -> None:
    load = _request(dm_name, table=table)
    (answer,) = _ioctls((_DEV_CREATE, _request(dm_name)))
    try:
        _ioctls((_TABLE_LOAD, load), (_DEV_SUSPEND, _request(dm_name)))
        _make_node(path(dm_name), _IOCTL.unpack_from(answer)[10])
    except OSError:
        with contextlib.suppress(OSError):
            _ioctls((_DEV_REMOVE, _request(dm_name)))
        raise


def _swap(dm_name: str, table: str) -> None:
    # Resuming a device with a loaded table suspends it, swaps and resumes: one call, not three.
    _ioctls((_TABLE_LOAD, _request(dm_name, table=table)), (_DEV_SUSPEND, _request(dm_name)))


def _remove(dm_name: str) -> None:
    # A probe of udev or blkid may hold it for a moment.
    deadline = time.monotonic() + _BUSY_RETRY_S
    while True:
        try:
            _ioctls((_DEV_REMOVE, _request(dm_name)))
        except OSError as error:
            if error.errno in _NO_SUCH_DEVICE:
                return
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_POLL_S)
        else:
            return


def _request(dm_name: str, *, flags: int = 0, table: str = "") -> bytes:
    """Return a request about a device; `table` is one line as in dmsetup(8)."""
    head = (4, 0, 0, _IOCTL_BYTES, _IOCTL.size, 1 if table else 0, 0, flags)
    request = _IOCTL.pack(*head, 0, 0, 0, dm_name.encode(), b"")
    if table:
        start, length, target, *words = table.split(" ", 3)
        parameters = "".join(words).encode() + b"\0"
        spec = _TARGET.pack(int(start), int(length), 0, 0, target.encode())
        request += spec + parameters
    if len(request) > _IOCTL_BYTES:
        raise ValueError(f"a request of {len(request)} bytes about {dm_name}")
    return request.ljust(_IOCTL_BYTES, b"\0")


def _ioctls(*calls: tuple[int, bytes]) -> list[bytes]:
    handle = os.open(f"{_FOLDER}/control", os.O_RDWR | os.O_CLOEXEC)
    try:
        return [fcntl.ioctl(handle, command, request) for command, request in calls]
    finally:
        os.close(handle)


def _call(what: str, call: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    number = timed_call.errno_of(call, within_s=timeout_s)
    if number != 0:
        why = f"no answer within {timeout_s:g} s" if number is None else os.strerror(number)
        raise CommandError(Problem("SAN-DM-002", f"device-mapper does not {what}: {why}"))


def _make_node(node: str, number: int) -> None:
    """Make the node by which a device is opened, in the place of whatever is there.

    udev makes a link of the same name at the same time (55-dm.rules), and leaves a node that is
    there alone. So the node takes its name in one step: between a removal and a mknod the link
    would come in the way.
    """
    new = f"{node}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    os.mknod(new, stat.S_IFBLK | 0o600, number)
    os.rename(new, node)
