# SPDX-License-Identifier: GPL-2.0-or-later
"""The flash cache under a pool's filesystem: bcache, driven through its superblocks and sysfs.

Nothing here decides anything: see sanctl/plan/pool/flash_assembly.py. No program of bcache-tools
is used: its
udev rules would register whatever hosts have written onto their devices (docs/adr/0031).

The superblock is that of bcache_ondisk.h, 4 KiB into a device; sysfs is that of
Documentation/admin-guide/bcache.rst of the kernel.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
import time
from typing import NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.model.cache_policy import Mode
from sanctl.model.pool_cache import Attachment, Superblock
from sanctl.system.files import exists, is_folder, read_text_or
from sanctl.system.runner import Runner

_SYSFS = "/sys/fs/bcache"
_BLOCK = 4096
_AT = 4096
# So much is zero where a disk is made anew, and asked for to be.
_BLANK_BYTES = 1 << 20
_MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
_FLASH, _ORIGIN = 0, 1
_CACHE_VERSIONS = frozenset({0, 3, 5})
# csum, offset, version, magic, uuid, set uuid, label, flags, seq, padding, buckets or data offset,
# block and bucket size in sectors, devices in the set, this one's number, mount time, first bucket,
# number of journal buckets: 208 bytes, of which all but the checksum are summed.
_LAYOUT = struct.Struct("<QQQ16s16s16s32sQQ64sQHHHHIHH")
_SECTOR = 512
# Of all buckets a 1024th is kept free (cache_alloc in super.c), and what is read is not put onto
# flash while none of these is: so there are many, and small ones where the device is small.
_BUCKET_SECTORS = (1024, 512, 256, 128, 64)
_ENOUGH_BUCKETS = 16384
_LEAST_BYTES = 64 << 20
# Room for the superblock: the filesystem begins here, so the slow disk alone shows none.
_DATA_SECTORS = 16
_STATES = tuple(Attachment)
_MODES = {Mode.WRITE_THROUGH: "writethrough", Mode.WRITE_BACK: "writeback"}
_MODE_BITS = {0: Mode.WRITE_THROUGH, 1: Mode.WRITE_BACK}
_UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_CRC_POLYNOMIAL = 0x42F0E1EBA9EA3693
_ALL_ONES = (1 << 64) - 1
_POLL_S = 0.1


class Seen(NamedTuple):
    """What the kernel says of a cached disk that is registered.

    Attributes:
        disk: `bcacheN`; empty while it is not running.
        has_flash: a flash device is attached.
        mode: how it is used; none without flash.
        is_clean: nothing is on flash alone.
        dirty_bytes: what is, about.
        hits: reads found on flash since the disk was registered: since the boot, as a rule.
        misses: those not found there.
    """

    disk: str
    has_flash: bool
    mode: Mode
    is_clean: bool
    dirty_bytes: int
    hits: int
    misses: int


def read_superblock(device: str) -> Superblock | None:
    """Return the bcache superblock of a device, past the page cache; None where there is none.

    Raises:
        OSError: the device is not there, or cannot be read.
    """
    import mmap  # noqa: PLC0415 - aligned memory, which direct reads want

    handle = os.open(device, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, _BLOCK) as buffer:
            if os.preadv(handle, [buffer], _AT) < _LAYOUT.size:
                return None
            return parse_superblock(buffer[: _LAYOUT.size])
    finally:
        os.close(handle)


def begins_blank(device: str) -> bool:
    """Whether the first MiB of a device, or all of a smaller one, was read and is zero.

    Past the page cache, which may hold what the disk does not give any more.

    Raises:
        OSError: the device is not there, or cannot be read.
    """
    import mmap  # noqa: PLC0415 - as above

    handle = os.open(device, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, _BLANK_BYTES) as buffer:
            length = 0
            while length < _BLANK_BYTES:
                with memoryview(buffer) as whole, whole[length:] as rest:
                    count = os.preadv(handle, [rest], length)
                if not count:
                    break
                length += count
            if not length:
                raise OSError(errno.ENODATA, "it has no first block", device)
            return not any(buffer[:length])
    finally:
        os.close(handle)


def parse_superblock(raw: bytes) -> Superblock | None:
    """Read a superblock's fixed part; None if it is none."""
    fields = _LAYOUT.unpack(raw)
    version, magic, _, set_uuid, label, flags = fields[2:8]
    if magic != _MAGIC:
        return None
    is_flash = version in _CACHE_VERSIONS
    return Superblock(
        is_flash=is_flash,
        set_uuid=set_uuid.hex(),
        label=label.rstrip(b"\0").decode("ascii", "replace"),
        state=_STATES[flags >> 61 & 3],
        mode=Mode.NONE if is_flash else _MODE_BITS.get(flags & 15, Mode.NONE),
    )


def render_superblock(
    *, is_flash: bool, uuid: bytes, set_uuid: bytes, label: str, size_bytes: int
) -> bytes:
    """Return the superblock of a new flash device, or of a new slow disk."""
    bucket = _bucket_sectors(size_bytes)
    buckets = size_bytes // (bucket * _SECTOR)
    raw = _LAYOUT.pack(
        0,
        _AT // _SECTOR,
        _FLASH if is_flash else _ORIGIN,
        _MAGIC,
        uuid,
        set_uuid if is_flash else bytes(16),
        label.encode("ascii"),
        0,
        0,
        bytes(64),
        buckets if is_flash else _DATA_SECTORS,
        1,
        bucket,
        1,
        0,
        0,
        1,
        0,
    )
    summed = raw[8:]
    return struct.pack("<Q", checksum(summed)) + summed


def _bucket_sectors(size: int) -> int:
    enough = (n for n in _BUCKET_SECTORS if size // (n * _SECTOR) >= _ENOUGH_BUCKETS)
    return next(enough, _BUCKET_SECTORS[-1])


def checksum(data: bytes) -> int:
    """Return CRC-64 as bcache counts it: ECMA-182's polynomial, inverted before and after."""
    crc = _ALL_ONES
    for byte in data:
        crc ^= byte << 56
        for _ in range(8):
            crc = (crc << 1 ^ (_CRC_POLYNOMIAL if crc >> 63 else 0)) & _ALL_ONES
    return crc ^ _ALL_ONES


def format_flash(device: str, label: str) -> str:
    """Make a device an empty cache and return its set's uuid. What it held is gone.

    Raises:
        CommandError: it is too small.
        OSError: it cannot be written.
    """
    size = size_bytes(device)
    if size < _LEAST_BYTES:
        raise CommandError(
            Problem(
                "SAN-CACHE-006",
                f"{device} has {size >> 20} MiB, a flash cache wants 64 at least",
                "take a larger device",
            )
        )
    set_uuid = os.urandom(16)
    _write(
        device,
        render_superblock(
            is_flash=True, uuid=os.urandom(16), set_uuid=set_uuid, label=label, size_bytes=size
        ),
    )
    return set_uuid.hex()


def format_origin(device: str, uuid: bytes, label: str) -> None:
    """Make a device a disk that can be cached. What it held is gone.

    Raises:
        OSError: it cannot be written.
    """
    _write(
        device,
        render_superblock(is_flash=False, uuid=uuid, set_uuid=bytes(16), label=label, size_bytes=0),
    )


def _write(device: str, superblock: bytes) -> None:
    handle = os.open(device, os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
    try:
        # The first MiB of data too: a filesystem that was there must not be found again.
        os.pwrite(handle, bytes(_AT), 0)
        left = memoryview(superblock.ljust(_BLOCK, b"\0") + bytes(_BLANK_BYTES))
        at = _AT
        while left:
            count = os.pwrite(handle, left, at)
            left, at = left[count:], at + count
        os.fsync(handle)
    finally:
        os.close(handle)


def size_bytes(device: str) -> int:
    """Return the size of a block device."""
    handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(handle, 0, os.SEEK_END)
    finally:
        os.close(handle)


def load_module(runner: Runner) -> None:
    """Load bcache.

    Raises:
        CommandError: this kernel has none.
    """
    if not is_folder(_SYSFS):
        runner.run(["modprobe", "bcache"], timeout_s=30.0)


def register(device: str) -> None:
    """Give a device with a superblock to the kernel; one that it has already is fine.

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


def observe(origin: str) -> Seen | None:
    """Return what the kernel says of a slow disk; None when it is not registered."""
    folder = _folder(origin)
    if folder is None:
        return None
    disk = os.path.basename(os.path.realpath(f"{folder}/dev")) if _is(f"{folder}/dev") else ""
    state = read_text_or(f"{folder}/state", "").strip()
    has_flash = _is(f"{folder}/cache")
    chosen = re.search(r"\[(\w+)\]", read_text_or(f"{folder}/cache_mode", ""))
    words = {word: mode for mode, word in _MODES.items()}
    return Seen(
        disk=disk,
        has_flash=has_flash,
        mode=words.get(chosen[1] if chosen else "", Mode.NONE) if has_flash else Mode.NONE,
        is_clean=state in {"clean", "no cache"},
        dirty_bytes=human_bytes(read_text_or(f"{folder}/dirty_data", "0")),
        hits=_count(f"{folder}/stats_total/cache_hits"),
        misses=_count(f"{folder}/stats_total/cache_misses"),
    )


def set_of(flash: str) -> str | None:
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
    folder, found = _folder(origin), set_of(flash)
    if folder is None or found is None:
        raise FileNotFoundError(2, "not registered", origin if folder is None else flash)
    _set(f"{folder}/attach", os.path.basename(found))


def run_alone(origin: str) -> None:
    """Let a clean disk be used without the flash it belongs to; that one is never taken again."""
    folder = _folder(origin)
    if folder is not None and not _is(f"{folder}/dev"):
        _set(f"{folder}/running", "1")


def tune(origin: str, flash: str) -> None:
    """Cache everything, also long runs and under load; begin to write back a second later."""
    folder, found = _folder(origin), set_of(flash)
    if folder is not None:
        _set(f"{folder}/sequential_cutoff", "0")
        _set(f"{folder}/writeback_delay", "1")
    if found is not None:
        _set(f"{found}/congested_read_threshold_us", "0")
        _set(f"{found}/congested_write_threshold_us", "0")


def set_mode(origin: str, mode: Mode) -> None:
    """Change how flash is used, for the next write; what is dirty stays so for now."""
    folder = _registered(origin)
    # In percent of the flash that may be dirty before it is written back faster; 0: all at once.
    _set(f"{folder}/writeback_percent", "10" if mode is Mode.WRITE_BACK else "0")
    _set(f"{folder}/cache_mode", _MODES[mode])
    _set(f"{folder}/writeback_running", "1")


def flush(disk: str) -> None:
    """Flush the slow disk's own cache (bcache passes a flush on to it).

    bcache calls what it has written back clean without flushing that disk (writeback.c).
    """
    handle = os.open(f"/dev/{disk}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def release_flash(flash: str, *, within_s: float) -> None:
    """Detach a flash device; its disk goes on without.

    Raises:
        CommandError: not detached in time.
    """
    found = set_of(flash)
    if found is not None:
        _set(f"{found}/unregister", "1")
    _await_gone(flash, within_s)


def stop(origin: str, *, within_s: float) -> None:
    """End the use of a disk that nothing has open.

    Raises:
        CommandError: it is still there.
    """
    folder = _folder(origin)
    if folder is not None:
        _set(f"{folder}/stop", "1")
    _await_gone(origin, within_s)


def _await_gone(device: str, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while _folder(device) is not None:
        if time.monotonic() > deadline:
            raise CommandError(
                Problem("SAN-CACHE-007", f"bcache does not let go of {device}", "what has it open?")
            )
        time.sleep(_POLL_S)


def human_bytes(text: str) -> int:
    """Read a number as bcache prints it, such as `1.3M`."""
    match = re.fullmatch(r"(-?[0-9]+)(?:\.([0-9]+))?([kMGT]?)", text.strip())
    if match is None:
        return 0
    whole, tenths, unit = match.groups()
    return max(round(float(f"{whole}.{tenths or 0}") * _UNITS[unit]), 0)


def _folder(device: str) -> str | None:
    """Return a device's folder in sysfs, None where bcache does not have it."""
    try:
        number = os.stat(device).st_rdev
    except FileNotFoundError:
        return None
    path = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/bcache"
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
