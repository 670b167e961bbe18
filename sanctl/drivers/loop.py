# SPDX-License-Identifier: GPL-2.0-or-later
"""Loop devices over device files: attach with or without direct I/O, detach, grow, drain."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from functools import partial

from sanctl.errors import CommandError, Problem
from sanctl.system import isolated_call
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

_TIMEOUT_S = 20.0
_AUTOCLEAR_S = 5.0
_DELETED = " (deleted)"
_HINT = "'fuser -v' shows which process has it open, the kernel's log whether its disk hangs"
#: By file, the loop device that this process saw attached to it; it may have been detached since.
_seen: dict[str, str] = {}
# linux/loop.h; struct loop_info64 has that many bytes.
_CLR_FD, _SET_STATUS64, _GET_STATUS64, _STATUS64_BYTES = 0x4C01, 0x4C04, 0x4C05, 232


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


def find_file(pattern: re.Pattern[str]) -> str | None:
    """Return the path of an attached file that matches, or None."""
    for path, device in _seen.items():
        if not path.endswith(_DELETED) and pattern.search(path) and _backing(device) == path:
            return path
    return next((path for path in backing_files() if pattern.search(path)), None)


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


def attach(runner: Runner, path: str, *, direct_io: bool = True) -> str:
    """Attach a loop device to the file unless one is attached; return its path.

    Direct I/O for data, because an acknowledged write must be on the disk and not in this node's
    page cache, and because the data would otherwise be cached twice.

    Raises:
        CommandError: losetup refused; or a device that is being detached is held open for too long.
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
    done = runner.run(
        ["losetup", "--find", "--show", f"--direct-io={'on' if direct_io else 'off'}", path],
        timeout_s=_TIMEOUT_S,
    )
    return done.stdout.strip()


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


def grow(runner: Runner, device: str) -> None:
    """Make the loop device as large as its file has become."""
    runner.run(["losetup", "--set-capacity", device], timeout_s=_TIMEOUT_S)


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
        number = isolated_call.errno_of(partial(_detach_if_over, path, device), within_s=_TIMEOUT_S)
        if number not in {0, errno.ENXIO}:  # ENXIO: no file any more, or being detached
            why = "no answer" if number is None else os.strerror(number)
            raise CommandError(Problem("SAN-POOL-025", f"{device} stays over {path}: {why}", _HINT))


def _detach_if_over(path: str, device: str) -> None:
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _backing(device).removesuffix(_DELETED) == path:
            fcntl.ioctl(handle, _CLR_FD)
    finally:
        os.close(handle)
