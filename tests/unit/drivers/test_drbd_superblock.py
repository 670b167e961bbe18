# SPDX-License-Identifier: GPL-2.0-or-later
"""The flags of DRBD's metadata, read from a file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from sanctl.drivers import drbd_superblock
from sanctl.drivers.drbd_superblock import Superblock

MAGIC, MAGIC_9 = 0x8374026B, 0x8374026D
CONSISTENT, PRIMARY_IND, CONNECTED_IND, WAS_UP_TO_DATE, CRASHED = 1, 2, 4, 16, 64
GOOD = CONSISTENT | WAS_UP_TO_DATE


def metadata(flags: int, *, bitmap: int = 0, magic: int = MAGIC) -> bytes:
    ids = struct.pack(">4Q", 0xA5A5, bitmap, 0xB1, 0xB2)
    head = struct.pack(">Q", 131072) + ids + struct.pack(">QQII", 7, 0, flags, magic)
    return head + b"\0" * 4096


def metadata_9(flags: int, *bitmaps: int) -> bytes:
    head = struct.pack(">7QII", 131072, 0xA5A5, 3, 0, 0, 0, 7, flags, MAGIC_9)
    peers = [struct.pack(">QQIiII", each, 9, 1, at, 0, 0) for at, each in enumerate(bitmaps)]
    # What a slot of no peer holds once the data has had another generation.
    peers += [struct.pack(">QQIiII", 0xDA10, 0, 0, -1, 0, 0)] * (32 - len(peers))
    return head + struct.pack(">12I", *range(1, 13)) + b"".join(peers) + b"\0" * 4096


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (metadata(GOOD | PRIMARY_IND | CONNECTED_IND), Superblock(True, False)),
        (metadata(GOOD | CRASHED, magic=MAGIC + 1), Superblock(True, False)),
        (metadata(GOOD | PRIMARY_IND, bitmap=0xB1), Superblock(True, True)),
        (metadata(GOOD | CONNECTED_IND), Superblock(False, False)),
        (metadata(CONSISTENT | PRIMARY_IND), Superblock(False, False)),
        (metadata(WAS_UP_TO_DATE | PRIMARY_IND), Superblock(False, False)),
        (metadata_9(GOOD | PRIMARY_IND), Superblock(False, False)),
        (metadata_9(GOOD | CRASHED, 0, 0), Superblock(True, False)),
        (metadata_9(GOOD | CRASHED, 0, 0xB1), Superblock(True, True)),
        (metadata_9(CONSISTENT, *[0] * 31, 0xB1), Superblock(False, True)),
        (metadata(GOOD | PRIMARY_IND, magic=MAGIC_9 + 1), None),
        (metadata(GOOD | PRIMARY_IND)[:64], None),
        (b"", None),
    ],
)
def test_how_a_replica_went_down(text: bytes, wanted: Superblock | None, tmp_path: Path) -> None:
    file = tmp_path / "vol.meta"
    file.write_bytes(text)
    assert drbd_superblock.read(str(file)) == wanted


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        drbd_superblock.read(str(tmp_path / "none"))
