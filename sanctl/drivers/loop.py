# SPDX-License-Identifier: GPL-2.0-or-later
"""Loop devices over device files (losetup(8), sysfs-block-loop)."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from functools import partial

from sanctl.errors import CommandError, Problem
from sanctl.system import isolated_call
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

_TIMEOUT_S = 20.0
_LEAVES_S = 5.0
_DELETED = " (deleted)"
_WHO = "'fuser -v' on that device shows who has it open, the kernel's log whether its disk hangs"
# linux/loop.h; struct loop_info64 has that many bytes.
_CLR_FD, _SET_STATUS64, _GET_STATUS64, _STATUS64_BYTES = 0x4C01, 0x4C04, 0x4C05, 232


def find(path: str) -> str | None:
    """Return `/dev/loopN` that stands over the file, or None.

    A loop device over a file that was deleted stands over another file than the one now there.
    """
    return next((device for device, backing in _all() if backing == path), None)


def is_direct(device: str) -> bool:
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
    """Put a loop device over the file unless one is there; return its path.

    Direct I/O for data, because an acknowledged write must be on the disk and not in this node's
    page cache, and because the data would otherwise be cached twice.

    Raises:
        CommandError: losetup refused; or one that is being taken off is held open for too long.
    """
    deadline = time.monotonic() + _LEAVES_S
    while (present := find(path)) is not None:
        if not _is_leaving(present) and _backing(present) == path:
            return present
        # It goes when the last that has it open closes it, and may be over another file then.
        if time.monotonic() > deadline:
            raise CommandError(
                Problem("SAN-POOL-025", f"{present} is leaving {path}, and is held open", _WHO)
            )
        time.sleep(0.05)
    done = runner.run(
        ["losetup", "--find", "--show", f"--direct-io={'on' if direct_io else 'off'}", path],
        timeout_s=_TIMEOUT_S,
    )
    return done.stdout.strip()


def _is_leaving(device: str) -> bool:
    name = device.removeprefix("/dev/")
    return read_text_or(f"/sys/block/{name}/loop/autoclear", "1").strip() == "1"


def drain(device: str) -> None:
    """Return when every request that the loop device had begun has ended; new ones wait meanwhile.

    Giving a loop device the settings that it has changes nothing, and the kernel waits for what
    is in flight before it takes them (loop_set_status in drivers/block/loop.c).

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
    """Whether DRBD, device-mapper or a mount has a loop device for itself (open(2), O_EXCL).

    Raises:
        OSError: it cannot be opened.
    """
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        raise
    return False


def detach(path: str) -> None:
    """Take all loop devices off the file, also off deleted ones of that name; none is fine.

    One that somebody else holds open, as udev does for a moment, goes when that is closed, and may
    be over another replica's file right after. So each is held open itself, which keeps it where
    it is, and looked at again (loop_clr_fd and lo_release in drivers/block/loop.c).

    Raises:
        CommandError: the kernel refused, or did not answer.
    """
    for device, backing in _all():
        if backing.removesuffix(_DELETED) != path:
            continue
        number = isolated_call.error_of(partial(_detach_if_over, path, device), within_s=_TIMEOUT_S)
        if number not in {0, errno.ENXIO}:  # over no file any more, or being taken off
            why = "no answer" if number is None else os.strerror(number)
            raise CommandError(Problem("SAN-POOL-025", f"{device} stays over {path}: {why}", _WHO))


def _detach_if_over(path: str, device: str) -> None:
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _backing(device).removesuffix(_DELETED) == path:
            fcntl.ioctl(handle, _CLR_FD)
    finally:
        os.close(handle)
