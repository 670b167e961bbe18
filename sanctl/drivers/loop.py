# SPDX-License-Identifier: GPL-2.0-or-later
"""Loop devices over device files: attach with or without direct I/O, detach, grow, drain."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial

from sanctl.errors import CommandError, Problem
from sanctl.system import timed_call
from sanctl.system.files import read_text_or

_TIMEOUT_S = 20.0
_AUTOCLEAR_S = 5.0
_DELETED = " (deleted)"
_HINT = "'fuser -v' shows which process has it open, the kernel's log whether its disk hangs"
#: By file, the loop device that this process saw attached to it; it may have been detached since.
_seen: dict[str, str] = {}
# linux/loop.h; struct loop_info64 has that many bytes, 40 before its flags.
_CLR_FD, _SET_STATUS64, _GET_STATUS64, _STATUS64_BYTES = 0x4C01, 0x4C04, 0x4C05, 232
_SET_CAPACITY, _SET_DIRECT_IO, _CONFIGURE, _CTL_GET_FREE = 0x4C07, 0x4C08, 0x4C0A, 0x4C82
_READ_ONLY_FLAG, _DIRECT_IO_FLAG, _NAME_BYTES = 1, 16, 64
#: What hosts have as a block, whatever a pool's disk has (docs/adr/0058).
HOST_BLOCK_BYTES = 512
# struct loop_config: descriptor of the file, block size (0: the kernel's choice), loop_info64 with
# its flags and the file's name, eight reserved numbers.
_CONFIG = struct.Struct("=2I52xI64s112x64x")


def find(path: str) -> str | None:
    """Return `/dev/loopN` that is attached to the file, or None.

    A loop device of a deleted file is attached to another file than the one now at that path.

    A monitor asks some ten times for the loop devices of one replica, on a node that has two for
    each: all are looked at once in a process, and a device found then is looked at again alone.
    """
    seen = _seen.get(path)
    if seen is not None and _backing(seen) == path:
        return seen
    _seen.clear()
    for device, backing in _all():
        _seen.setdefault(backing, device)
    return _seen.get(path)


def find_file(is_wanted: Callable[[str], bool]) -> str | None:
    """Return the path of an attached file that is wanted, or None."""
    for path, device in _seen.items():
        if not path.endswith(_DELETED) and is_wanted(path) and _backing(device) == path:
            return path
    return next(filter(is_wanted, backing_files()), None)


def uses_direct_io(device: str) -> bool:
    """Whether a loop device reads and writes its file past the page cache."""
    name = device.removeprefix("/dev/")
    return read_text_or(f"/sys/block/{name}/loop/dio", "0").strip() == "1"


def size_bytes(device: str) -> int:
    """Return the size of a loop device in bytes; 0 for one that is not there."""
    sectors = read_text_or(f"/sys/block/{device.removeprefix('/dev/')}/size", "0")
    return int(sectors) * 512


def backing_files() -> list[str]:
    """Return the paths of the files under all loop devices of this node."""
    return [backing.removesuffix(_DELETED) for _, backing in _all()]


def attachments() -> dict[str, str]:
    """Return the files under loop devices, each with a number that no other attachment has.

    Those of deleted files not, and none where the kernel has no such number. Since Linux 5.15 it is
    raised when a loop device gets a file, and when it loses it (disk_force_media_change).
    """
    found = {}
    for device, path in _all():
        number = read_text_or(f"/sys/block/{device.removeprefix('/dev/')}/diskseq", "").strip()
        if number and not path.endswith(_DELETED):
            found[path] = number
    return found


def is_over(path: str) -> bool:
    """Whether a loop device is attached to the file that is at a path now.

    The kernel's names of files do not tell it from one below another mount at the same place.

    Raises:
        OSError: not known.
    """
    device = find(path)
    if device is None:
        return False
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = fcntl.ioctl(handle, _GET_STATUS64, bytes(_STATUS64_BYTES))
    finally:
        os.close(handle)
    number, inode = struct.unpack_from("=QQ", status)
    # huge_encode_dev() in linux/kdev_t.h.
    numbers = (number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00)
    there = os.stat(path)
    return (*numbers, inode) == (os.major(there.st_dev), os.minor(there.st_dev), there.st_ino)


def _all() -> Iterator[tuple[str, str]]:
    """Read from sysfs: no process, no open of any device."""
    for entry in sorted(os.listdir("/sys/block")):
        if entry.startswith("loop"):
            backing = _backing(f"/dev/{entry}")
            if backing:
                yield f"/dev/{entry}", backing


def _backing(device: str) -> str:
    name = device.removeprefix("/dev/")
    return read_text_or(f"/sys/block/{name}/loop/backing_file", "").rstrip("\n")


def attach(
    path: str, *, direct_io: bool = True, block_bytes: int = 0, is_read_only: bool = False
) -> str:
    """Attach a loop device to the file unless one is attached; return its path.

    Direct I/O for data, because an acknowledged write must be on the disk and not in this node's
    page cache, and because the data would otherwise be cached twice. The kernel leaves it away,
    without an error, where the filesystem asks for larger blocks than `block_bytes`
    (loop_configure in drivers/block/loop.c; STATX_DIOALIGN of statx(2)).

    Args:
        path: the file.
        direct_io: past the page cache, where the kernel can.
        block_bytes: the loop device's logical block; 0: the smallest that direct I/O can have.
        is_read_only: the loop device takes no writes.

    Raises:
        CommandError: the kernel refused, or did not answer; or a device that is being detached is
            held open for too long.
    """
    deadline = time.monotonic() + _AUTOCLEAR_S
    while (present := find(path)) is not None:
        if not _is_detaching(present) and _backing(present) == path:
            return present
        # The device is freed when the last process closes it, and may get another file then.
        if time.monotonic() > deadline:
            raise CommandError(
                Problem("SAN-POOL-025", f"{present} is leaving {path}, and is held open", _HINT)
            )
        time.sleep(0.05)
    attach_new = partial(_attach, path, direct_io, block_bytes, is_read_only)
    _call(f"{path} gets no loop device", attach_new)
    attached = find(path)
    if attached is None:
        raise CommandError(Problem("SAN-POOL-025", f"the loop device over {path} is gone", _HINT))
    return attached


def _attach(path: str, direct_io: bool, block_bytes: int, is_read_only: bool) -> None:
    file = os.open(path, (os.O_RDONLY if is_read_only else os.O_RDWR) | os.O_CLOEXEC)
    flags = (_DIRECT_IO_FLAG if direct_io else 0) | (_READ_ONLY_FLAG if is_read_only else 0)
    config = _CONFIG.pack(file, block_bytes, flags, path.encode()[: _NAME_BYTES - 1])
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    while True:
        device = os.open(f"/dev/loop{fcntl.ioctl(control, _CTL_GET_FREE)}", os.O_RDWR)
        try:
            fcntl.ioctl(device, _CONFIGURE, config)
        except OSError as error:
            if error.errno != errno.EBUSY:  # another process has taken it meanwhile
                raise
        else:
            return
        finally:
            os.close(device)


def _is_detaching(device: str) -> bool:
    name = device.removeprefix("/dev/")
    return read_text_or(f"/sys/block/{name}/loop/autoclear", "1").strip() == "1"


def drain(device: str) -> None:
    """Return when all requests that the loop device had begun have ended; new ones wait meanwhile.

    Setting the status that a loop device has already changes nothing, and the kernel waits for the
    I/O in flight before it does (loop_set_status in drivers/block/loop.c).

    Raises:
        OSError: the device is gone.
    """
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        settings = fcntl.ioctl(handle, _GET_STATUS64, bytes(_STATUS64_BYTES))
        fcntl.ioctl(handle, _SET_STATUS64, settings)
    finally:
        os.close(handle)


def grow(device: str) -> None:
    """Make the loop device as large as its file has become.

    Raises:
        CommandError: the kernel refused, or did not answer.
    """
    _call(f"{device} does not grow", partial(_ioctl, device, _SET_CAPACITY, 0))


def set_direct_io(device: str, *, on: bool, within_s: float) -> None:
    """Have the loop device read and write its file past the page cache, or through it.

    The kernel writes the file's dirty pages first. Where it cannot do without the page cache, as
    the filesystem asks for larger blocks than the loop device has, nothing changes (EINVAL).

    Raises:
        CommandError: the kernel refused, or did not answer.
    """
    what = f"{device} does not change to {'direct' if on else 'buffered'} I/O"
    refusal = errno.EINVAL if on else 0
    _call(what, partial(_ioctl, device, _SET_DIRECT_IO, int(on)), within_s, but=refusal)


def _ioctl(device: str, command: int, argument: int) -> None:
    handle = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(handle, command, argument)
    finally:
        os.close(handle)


def _call(
    what: str, call: Callable[[], object], within_s: float = _TIMEOUT_S, *, but: int = 0
) -> None:
    number = timed_call.errno_of(call, within_s=within_s)
    if number not in {0, but}:
        why = "no answer" if number is None else os.strerror(number)
        raise CommandError(Problem("SAN-POOL-025", f"{what}: {why}", _HINT))


def file_below(device: str) -> str:
    """Return the path of the file under a loop device, also a deleted one's; empty: none."""
    return _backing(device).removesuffix(_DELETED)


def is_claimed(device: str) -> bool:
    """Whether DRBD, device-mapper or a mount has claimed a loop device (open(2), O_EXCL).

    Raises:
        OSError: the device cannot be opened.
    """
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        raise
    return False


def detach(path: str) -> None:
    """Detach all loop devices from the file, also from deleted ones of that name; none is fine.

    A device that another process holds open, as udev does for a moment, is freed when that process
    closes it, and may be attached to another replica's file right after. So this opens each device,
    which keeps it attached, and reads its backing file again (loop_clr_fd and lo_release in
    drivers/block/loop.c).

    Raises:
        CommandError: the kernel refused, or did not answer.
    """
    for device, backing in _all():
        if backing.removesuffix(_DELETED) != path:
            continue
        what = f"{device} stays over {path}"
        # ENXIO: no file any more, or being detached.
        _call(what, partial(_detach_if_over, path, device), but=errno.ENXIO)


def _detach_if_over(path: str, device: str) -> None:
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _backing(device).removesuffix(_DELETED) == path:
            fcntl.ioctl(handle, _CLR_FD)
    finally:
        os.close(handle)
