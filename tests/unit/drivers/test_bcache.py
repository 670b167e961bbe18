# SPDX-License-Identifier: GPL-2.0-or-later
"""bcache's superblock, byte by byte, and the numbers it prints."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sanctl.drivers import bcache
from sanctl.model.cache_policy import CacheMode
from sanctl.model.pool_cache import Attachment, Superblock

LABEL = "5d4c1f6e9d0b4c398a540c6f6f0b7a11"


def superblock(*, is_flash: bool) -> bytes:
    return bcache.render_superblock(
        is_flash=is_flash,
        uuid=b"u" * 16,
        set_uuid=b"s" * 16,
        label=LABEL,
        size_bytes=1 << 30,
    )


def test_checksum_is_crc64_we() -> None:
    """The published check value of CRC-64/WE, which is what bcache uses."""
    assert bcache.checksum(b"123456789") == 0x62EC59E3F1A4F00A


def test_places_in_it() -> None:
    """Offsets as in struct cache_sb_disk."""
    flash, disk = superblock(is_flash=True), superblock(is_flash=False)
    assert len(flash) == len(disk) == 208
    assert flash[24:40].hex() == "c68573f64e1a45ca8265f57f48ba6d81"
    assert flash[56:72] == b"s" * 16 and disk[56:72] == bytes(16)
    assert flash[72:104].decode() == LABEL
    assert int.from_bytes(flash[184:192], "little") == 16384  # buckets of 64 KiB
    assert int.from_bytes(disk[16:24], "little") == 1
    assert int.from_bytes(flash[194:196], "little") == 128
    assert int.from_bytes(flash[:8], "little") == bcache.checksum(flash[8:])


def test_it_reads_back() -> None:
    assert bcache.parse_superblock(superblock(is_flash=True)) == Superblock(
        True, (b"s" * 16).hex(), LABEL, Attachment.NONE, CacheMode.NONE
    )
    raw = bytearray(superblock(is_flash=False))
    raw[104:112] = (2 << 61 | 1).to_bytes(8, "little")
    told = bcache.parse_superblock(bytes(raw))
    assert told is not None
    assert (told.state, told.mode, told.is_flash) == (Attachment.DIRTY, CacheMode.WRITE_BACK, False)
    assert bcache.parse_superblock(bytes(208)) is None


@pytest.mark.parametrize(
    ("text", "count"),
    [("0.0k\n", 0), ("1.5k", 1536), ("12", 12), ("2.0M", 2 << 20), ("-1.0k", 0), ("odd", 0)],
)
def test_numbers_for_people(text: str, count: int) -> None:
    assert bcache.parse_human_bytes(text) == count


MIB = 1 << 20


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file: where the tests run there may be no direct I/O."""
    monkeypatch.setattr(os, "O_DIRECT", 0)
    made = tmp_path / "device"
    made.write_bytes(bytes(3 * MIB))
    return made


def test_blank_is_a_mib_of_zeros_that_was_read(device: Path) -> None:
    assert bcache.begins_blank(str(device))
    for at in (0, 4096, MIB - 1):
        device.write_bytes(bytes(at) + b"x" + bytes(2 * MIB))
        assert not bcache.begins_blank(str(device))
    device.write_bytes(bytes(MIB) + b"x")
    assert bcache.begins_blank(str(device))
    device.write_bytes(bytes(8192))
    assert bcache.begins_blank(str(device)), "all of a smaller one"
    device.write_bytes(b"")
    with pytest.raises(OSError, match="no first block"):
        bcache.begins_blank(str(device))
    with pytest.raises(FileNotFoundError):
        bcache.begins_blank(str(device.parent / "gone"))


@pytest.mark.parametrize("bad", [0, 4096, MIB - 4096])
def test_a_sector_that_cannot_be_read_is_not_blank(
    device: Path, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    """The kernel reads up to the bad sector, and fails at the next read."""

    def preadv(handle: int, buffers: list[memoryview], at: int) -> int:
        if at >= bad:
            raise OSError(errno.EIO, "Input/output error")
        return real(handle, [buffers[0][: bad - at]], at)

    real = os.preadv
    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(OSError, match="Input/output error"):
        bcache.begins_blank(str(device))


def test_what_is_made_anew_begins_blank(device: Path) -> None:
    """The filesystem is made where its first MiB is zero: an older one's must not be there."""
    device.write_bytes(b"old" * MIB)
    bcache.format_origin(str(device), b"u" * 16, LABEL)
    content = device.read_bytes()
    told = bcache.parse_superblock(content[4096:4304])
    assert told is not None and told.label == LABEL and not told.is_flash
    assert not content[8192 : 8192 + MIB].strip(b"\0")
    assert content[8192 + MIB :].strip(b"\0")
