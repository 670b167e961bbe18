# SPDX-License-Identifier: GPL-2.0-or-later
"""bcache by its sysfs: register, attach, set the mode, flush, stop.

Nothing here decides anything: the order of these calls for a pool is in drivers/flash_cache.py, the
rules in plan/pool/flash_assembly.py. No program of bcache-tools is used: its udev rules would
register whatever hosts have written onto their devices (docs/adr/0031).

sysfs is that of Documentation/admin-guide/bcache.rst of the kernel; what lies on the devices is in
drivers/bcache_superblock.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from typing import NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.model.cache_policy import CacheMode
from sanctl.system.files import exists, is_folder, read_text_or
from sanctl.system.runner import Runner

_SYSFS = "/sys/fs/bcache"
_NUMBERED = "/sys/dev/block"
_DEVICES = "/dev"
#: A device that is not there, or that the kernel is about to remove.
_GONE = frozenset({errno.ENOENT, errno.ENXIO, errno.ENODEV})
_MODES = {CacheMode.WRITE_THROUGH: "writethrough", CacheMode.WRITE_BACK: "writeback"}
_UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_POLL_S = 0.1
_CHOSEN = re.compile(r"\[(\w+)\]")
_HUMAN_BYTES = re.compile(r"(-?[0-9]+)(?:\.([0-9]+))?([kMGT]?)")


class OriginState(NamedTuple):
    """What sysfs says of a registered slow disk (bcache's backing device).

    Attributes:
        disk: `bcacheN`; empty while that device is not running.
        has_flash: a flash device is attached.
        mode: the cache mode; none without flash.
        is_clean: no data is on flash alone.
        dirty_bytes: about how much data is on flash alone.
        hits: reads found on flash since the disk was registered: since the boot, as a rule.
        misses: reads not found there.
    """

    disk: str
    has_flash: bool
    mode: CacheMode
    is_clean: bool
    dirty_bytes: int
    hits: int
    misses: int


def load_module(runner: Runner) -> None:
    """Load bcache.

    Raises:
        CommandError: this kernel has no bcache.
    """
    if not is_folder(_SYSFS):
        runner.run(["modprobe", "bcache"], timeout_s=30.0)


def register(device: str) -> None:
    """Register a device that has a superblock; one that is registered already is fine.

    Raises:
        CommandError: the kernel refused; its log says why.
    """
    if _folder(device) is not None:
        return
    try:
        _set(f"{_SYSFS}/register", os.path.realpath(device))
    except OSError as error:
        if _folder(device) is None:
            raise CommandError(
                Problem(
                    "SAN-CACHE-007",
                    f"bcache does not take {device}: {error.strerror}",
                    "'dmesg' says why: another program may have it open",
                )
            ) from error


def observe(origin: str) -> OriginState | None:
    """Return the state of a slow disk; None when the disk is not registered."""
    folder = _folder(origin)
    if folder is None:
        return None
    disk = os.path.basename(os.path.realpath(f"{folder}/dev")) if _is(f"{folder}/dev") else ""
    state = read_text_or(f"{folder}/state", "").strip()
    has_flash = _is(f"{folder}/cache")
    chosen = _CHOSEN.search(read_text_or(f"{folder}/cache_mode", ""))
    words = {word: mode for mode, word in _MODES.items()}
    return OriginState(
        disk=disk,
        has_flash=has_flash,
        mode=words.get(chosen[1] if chosen else "", CacheMode.NONE)
        if has_flash
        else CacheMode.NONE,
        is_clean=state in {"clean", "no cache"},
        dirty_bytes=parse_human_bytes(read_text_or(f"{folder}/dirty_data", "0")),
        hits=_count(f"{folder}/stats_total/cache_hits"),
        misses=_count(f"{folder}/stats_total/cache_misses"),
    )


def is_cached_disk(number: str) -> bool | None:
    """Whether a device is on a disk of bcache's, by its `major:minor`; None: it is not there.

    Also where device-mapper or md lies between: LVM, or an encrypted disk. By a disk's name, too:
    where bcache lets go of a slow disk whose disk is still mounted, the link goes before the disk
    does.

    Raises:
        OSError: sysfs cannot be read.
    """
    folder = f"{_NUMBERED}/{number}"
    if not _is(folder):
        return None
    return _is_on_cached_disk(os.path.realpath(folder))


def _is_on_cached_disk(folder: str) -> bool:
    """Whether a block device, by its folder in sysfs, is a disk of bcache's or lies on one."""
    name = os.path.basename(folder)
    if name.startswith("bcache") or exists(f"{folder}/bcache", follow_symlinks=False):
        return True
    # A partition is on what its disk is on: it has no folder of that itself.
    disk = os.path.dirname(folder) if exists(f"{folder}/partition") else folder
    try:
        below = os.listdir(f"{disk}/slaves")
    except FileNotFoundError:
        return False
    return any(_is_on_cached_disk(os.path.realpath(f"{disk}/slaves/{each}")) for each in below)


def has_let_go(disk: str) -> bool:
    """Whether a disk of bcache's is stopped, and only still there for what has it open.

    So it is after too many errors of its slow disk, or of flash that data is on alone, and then
    nothing that is asked of it succeeds any more (super.c: bch_cached_dev_error,
    conditional_stop_bcache_device).

    Raises:
        OSError: not known.
    """
    try:
        number = os.stat(disk).st_rdev
    except (FileNotFoundError, NotADirectoryError):
        return False
    folder = f"{_NUMBERED}/{os.major(number)}:{os.minor(number)}"
    # Its link to the slow disk's folder goes first, or leads nowhere (so on Linux 7.2).
    name = os.path.basename(os.path.realpath(folder))
    return name.startswith("bcache") and _is(folder) and not _is(f"{folder}/bcache")


def await_release(disk: str, origin: str, *, within_s: float) -> None:
    """Wait until a disk that bcache has let go of is gone, and its slow disk free to be registered.

    Raises:
        CommandError: something still has the one open, or has claimed the other.
        OSError: the slow disk cannot be opened.
    """
    deadline = time.monotonic() + within_s
    while has_let_go(disk):
        _wait_until(deadline, disk)
    handle = _claim(origin, deadline)
    if handle is not None:
        os.close(handle)


def cache_set_folder(flash: str) -> str | None:
    """Return the sysfs folder of the cache set on a flash device; None when not registered."""
    folder = _folder(flash)
    if folder is None or not _is(f"{folder}/set"):
        return None
    return os.path.realpath(f"{folder}/set")


def attach(origin: str, flash: str) -> None:
    """Attach a registered flash device to a registered disk, which may be in use.

    Raises:
        OSError: the kernel refused; its log says why.
    """
    folder, found = _folder(origin), cache_set_folder(flash)
    if folder is None or found is None:
        raise FileNotFoundError(2, "not registered", origin if folder is None else flash)
    _set(f"{folder}/attach", os.path.basename(found))


def run_without_flash(origin: str) -> None:
    """Run a clean disk without the flash it belongs to; bcache never takes that flash again."""
    folder = _folder(origin)
    if folder is not None and not _is(f"{folder}/dev"):
        _set(f"{folder}/running", "1")


def tune(origin: str, flash: str) -> None:
    """Cache all I/O, also sequential runs and under load; begin writeback a second later."""
    folder, found = _folder(origin), cache_set_folder(flash)
    if folder is not None:
        _set(f"{folder}/sequential_cutoff", "0")
        _set(f"{folder}/writeback_delay", "1")
    if found is not None:
        _set(f"{found}/congested_read_threshold_us", "0")
        _set(f"{found}/congested_write_threshold_us", "0")


def set_mode(origin: str, mode: CacheMode) -> None:
    """Change the cache mode for the next write; data that is dirty stays so for now."""
    folder = _registered(origin)
    # Percentage of the flash that may be dirty before writeback becomes faster; 0: at once.
    _set(f"{folder}/writeback_percent", "10" if mode is CacheMode.WRITE_BACK else "0")
    _set(f"{folder}/cache_mode", _MODES[mode])
    _set(f"{folder}/writeback_running", "1")


def flush(disk: str) -> None:
    """Flush the slow disk's own cache (bcache passes a flush on to it).

    bcache calls written-back data clean without flushing that disk (writeback.c).
    """
    handle = os.open(f"/dev/{disk}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def detach_flash(flash: str, *, within_s: float) -> None:
    """Detach a flash device; its slow disk goes on without flash.

    Raises:
        CommandError: not detached in time.
    """
    found = cache_set_folder(flash)
    if found is not None:
        _set(f"{found}/unregister", "1")
    _await_gone(flash, within_s)


def stop(origin: str, *, within_s: float) -> None:
    """Stop a slow disk's bcache device, which nothing uses; on return bcache has let go of both.

    The kernel takes a stop under a mounted filesystem, too, and does not end what it stops: the
    slow disk's folder in sysfs goes at once, and reads and writes go on through bcache until the
    last one that has the device open closes it (super.c: cached_dev_flush, cached_dev_free). So
    nothing is stopped that something has for itself, as a mount has it, and the end is that of
    bcache's own claim on the slow disk, which it gives up last.

    Raises:
        CommandError: something uses the device, and it was not stopped; or it was, and is still
            there.
        OSError: it cannot be opened, or the kernel refused.
    """
    deadline = time.monotonic() + within_s
    folder, seen = _folder(origin), observe(origin)
    disk = seen.disk if seen is not None else ""
    if folder is not None:
        with contextlib.ExitStack() as stack:
            if disk:
                handle = _claim(f"{_DEVICES}/{disk}", deadline)
                if handle is not None:
                    # Until it is told to stop: from then on the kernel lets nobody open it.
                    stack.callback(os.close, handle)
            _set(f"{folder}/stop", "1")
    handle = _claim(origin, deadline)
    if handle is not None:
        os.close(handle)


def _claim(device: str, deadline: float) -> int | None:
    """Open a device that nothing else has for itself; None: it is gone, or on its way out.

    Raises:
        CommandError: something has it, still at the deadline.
        OSError: it cannot be opened.
    """
    while True:
        try:
            return os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _GONE:
                return None
            if error.errno != errno.EBUSY:
                raise
        _wait_until(deadline, device)


def _wait_until(deadline: float, device: str) -> None:
    if time.monotonic() > deadline:
        raise CommandError(
            Problem(
                "SAN-CACHE-007",
                f"{device} is still in use",
                f"what has it mounted or open? 'lsblk {device}', 'fuser -v {device}'",
            )
        )
    time.sleep(_POLL_S)


def _await_gone(device: str, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while _folder(device) is not None:
        if time.monotonic() > deadline:
            raise CommandError(
                Problem("SAN-CACHE-007", f"bcache does not let go of {device}", "what has it open?")
            )
        time.sleep(_POLL_S)


def parse_human_bytes(text: str) -> int:
    """Read a number as bcache prints it, such as `1.3M`."""
    match = _HUMAN_BYTES.fullmatch(text.strip())
    if match is None:
        return 0
    whole, tenths, unit = match.groups()
    return max(round(float(f"{whole}.{tenths or 0}") * _UNITS[unit]), 0)


def _folder(device: str) -> str | None:
    """Return a device's bcache folder in sysfs, None where the device is not registered."""
    try:
        number = os.stat(device).st_rdev
    except FileNotFoundError:
        return None
    path = f"{_NUMBERED}/{os.major(number)}:{os.minor(number)}/bcache"
    return path if is_folder(path) else None


def _registered(device: str) -> str:
    folder = _folder(device)
    if folder is None:
        raise CommandError(
            Problem("SAN-CACHE-008", f"{device} is not cached now", "'sanctl pool list'")
        )
    return folder


def _is(path: str) -> bool:
    return exists(path)


def _count(path: str) -> int:
    text = read_text_or(path, "0").strip()
    return int(text) if text.isdecimal() else 0


def _set(path: str, text: str) -> None:
    with contextlib.ExitStack() as stack:
        handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        stack.callback(os.close, handle)
        os.write(handle, text.encode())
