"""bcache's superblock, byte by byte, and the numbers it prints."""

from __future__ import annotations

import pytest

from sanctl.drivers import bcache
from sanctl.model.cache import Mode
from sanctl.model.poolcache import Attachment, Superblock

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
        True, (b"s" * 16).hex(), LABEL, Attachment.NONE, Mode.NONE
    )
    raw = bytearray(superblock(is_flash=False))
    raw[104:112] = (2 << 61 | 1).to_bytes(8, "little")
    told = bcache.parse_superblock(bytes(raw))
    assert told is not None
    assert (told.state, told.mode, told.is_flash) == (Attachment.DIRTY, Mode.WRITE_BACK, False)
    assert bcache.parse_superblock(bytes(208)) is None


@pytest.mark.parametrize(
    ("text", "count"),
    [("0.0k\n", 0), ("1.5k", 1536), ("12", 12), ("2.0M", 2 << 20), ("-1.0k", 0), ("odd", 0)],
)
def test_numbers_for_people(text: str, count: int) -> None:
    assert bcache.human_bytes(text) == count
