# SPDX-License-Identifier: GPL-2.0-or-later
"""Superblocks that a host may write: md and btrfs, whole enough for blkid and the kernel."""

from __future__ import annotations

import struct
import uuid

_SECTOR = 512
_BTRFS_AT = 64 << 10
_BTRFS_BYTES = 4096
_CRC32C_POLYNOMIAL = 0x82F63B78


def md(identity: uuid.UUID, *, name: str, size_bytes: int) -> bytes:
    """Return the first MiB of the only member of a RAID 1 (struct mdp_superblock_1, md_p.h)."""
    data_sectors = (size_bytes - (1 << 20)) // _SECTOR
    head = struct.pack(
        "<IIII16s32sQIIQII", 0xA92B4EFC, 1, 0, 0, identity.bytes, name.encode(), 0, 1, 0,
        data_sectors, 0, 1,
    )  # fmt: skip
    head += bytes(128 - len(head))
    # Data 1 MiB from the beginning, the superblock 4 KiB: version 1.2.
    place = struct.pack("<QQQQ", 2048, data_sectors, 8, 0)
    place += struct.pack("<II16sBBH", 0, 0, identity.bytes[::-1], 0, 0, 0)
    place += bytes(64 - len(place))
    state = struct.pack("<QQQ", 0, 1, (1 << 64) - 1)
    rest = struct.pack("<I", 2) + bytes(256 - 128 - 64 - len(state) - 8)
    roles = struct.pack("<HH", 0, 0xFFFF)
    block = bytearray(head + place + state + bytes(4) + rest + roles)
    words = struct.unpack(f"<{len(block) // 4}I", block)
    total = sum(words)
    # sb_csum lies after resync_offset.
    struct.pack_into(
        "<I", block, 128 + 64 + 24, ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF
    )
    return (bytes(4096) + bytes(block)).ljust(1 << 20, b"\0")


def btrfs(identity: uuid.UUID, *, label: str, size_bytes: int) -> bytes:
    """Return the first MiB of a btrfs without trees (struct btrfs_super_block, btrfs_tree.h)."""
    block = bytearray(_BTRFS_BYTES)
    struct.pack_into("<16sQQ8sQ", block, 0x20, identity.bytes, _BTRFS_AT, 1, b"_BHRfS_M", 1)
    struct.pack_into("<QQ", block, 0x70, size_bytes, _BTRFS_AT)
    struct.pack_into("<QQIIII", block, 0x80, 6, 1, 4096, 4096, 4096, 4096)
    # dev_item: devid, total_bytes; its uuid and the filesystem's.
    struct.pack_into("<QQ", block, 0xC9, 1, size_bytes)
    struct.pack_into("<16s16s", block, 0xC9 + 66, identity.bytes[::-1], identity.bytes)
    block[0x12B : 0x12B + len(label)] = label.encode()
    struct.pack_into("<I", block, 0, _crc32c(bytes(block[0x20:])))
    return (bytes(_BTRFS_AT) + bytes(block)).ljust(1 << 20, b"\0")


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC32C_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
