# SPDX-License-Identifier: GPL-2.0-or-later
"""bcache superblocks: layout, checksum, reading, and the format of a flash device and a slow disk.

The superblock is that of bcache_ondisk.h, 4 KiB into a device. No program of bcache-tools is used
(docs/adr/0031).
"""

from __future__ import annotations

import errno
import os
import struct

from sanctl.errors import CommandError, Problem
from sanctl.model.cache_policy import CacheMode
from sanctl.model.pool_cache import Attachment, Superblock

_BLOCK = 4096
_AT = 4096
# A format writes zeros over so much, and a blank device is zero over so much.
_BLANK_BYTES = 1 << 20
_MAGIC = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
_FLASH, _ORIGIN = 0, 1
_CACHE_VERSIONS = frozenset({0, 3, 5})
# csum, offset, version, magic, uuid, set uuid, label, flags, seq, padding, buckets or data offset,
# block and bucket size in sectors, devices in the set, this one's number, mount time, first bucket,
# number of journal buckets: 208 bytes, of which all but the checksum are summed.
_LAYOUT = struct.Struct("<QQQ16s16s16s32sQQ64sQHHHHIHH")
_SECTOR = 512
# A 1024th of all buckets is kept free (cache_alloc in super.c), and while none of these is free,
# reads are not put onto flash: so there are many buckets, and small ones on a small device.
_BUCKET_SECTORS = (1024, 512, 256, 128, 64)
_ENOUGH_BUCKETS = 16384
_LEAST_BYTES = 64 << 20
# Room for the superblock: the filesystem begins here, so the slow disk alone shows none.
_DATA_SECTORS = 16
_STATES = tuple(Attachment)
_MODE_BITS = {0: CacheMode.WRITE_THROUGH, 1: CacheMode.WRITE_BACK}
_CRC_POLYNOMIAL = 0x42F0E1EBA9EA3693
_ALL_ONES = (1 << 64) - 1


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
    """Read a superblock's fixed part; None where the bytes are no bcache superblock."""
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
        mode=CacheMode.NONE if is_flash else _MODE_BITS.get(flags & 15, CacheMode.NONE),
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
    """Return bcache's CRC-64: ECMA-182's polynomial, inverted before and after."""
    crc = _ALL_ONES
    for byte in data:
        crc ^= byte << 56
        for _ in range(8):
            crc = (crc << 1 ^ (_CRC_POLYNOMIAL if crc >> 63 else 0)) & _ALL_ONES
    return crc ^ _ALL_ONES


def format_flash(device: str, label: str) -> str:
    """Format a device as an empty cache and return its set's uuid. Data on the device is lost.

    Raises:
        CommandError: the device is too small.
        OSError: the device cannot be written.
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
    """Format a device as a slow disk that can be cached. Data on the device is lost.

    Raises:
        OSError: the device cannot be written.
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
