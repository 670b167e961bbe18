# SPDX-License-Identifier: GPL-2.0-or-later
"""bcache's superblock, byte by byte, blank devices, and bcache's byte counts."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from sanctl.drivers import bcache, bcache_superblock
from sanctl.errors import CommandError
from sanctl.model.cache_policy import CacheMode
from sanctl.model.pool_cache import Attachment, Superblock

LABEL = "5d4c1f6e9d0b4c398a540c6f6f0b7a11"


def superblock(*, is_flash: bool) -> bytes:
    return bcache_superblock.render_superblock(
        is_flash=is_flash,
        uuid=b"u" * 16,
        set_uuid=b"s" * 16,
        label=LABEL,
        size_bytes=1 << 30,
    )


def test_checksum_is_crc64_we() -> None:
    """The published check value of CRC-64/WE, which is what bcache uses."""
    assert bcache_superblock.checksum(b"123456789") == 0x62EC59E3F1A4F00A


def test_superblock_offsets() -> None:
    """Offsets as in struct cache_sb_disk."""
    flash, disk = superblock(is_flash=True), superblock(is_flash=False)
    assert len(flash) == len(disk) == 208
    assert flash[24:40].hex() == "c68573f64e1a45ca8265f57f48ba6d81"
    assert flash[56:72] == b"s" * 16 and disk[56:72] == bytes(16)
    assert flash[72:104].decode() == LABEL
    assert int.from_bytes(flash[184:192], "little") == 16384  # buckets of 64 KiB
    assert int.from_bytes(disk[16:24], "little") == 1
    assert int.from_bytes(flash[194:196], "little") == 128
    assert int.from_bytes(flash[:8], "little") == bcache_superblock.checksum(flash[8:])


def test_a_rendered_superblock_reads_back() -> None:
    assert bcache_superblock.parse_superblock(superblock(is_flash=True)) == Superblock(
        True, (b"s" * 16).hex(), LABEL, Attachment.NONE, CacheMode.NONE
    )
    raw = bytearray(superblock(is_flash=False))
    raw[104:112] = (2 << 61 | 1).to_bytes(8, "little")
    told = bcache_superblock.parse_superblock(bytes(raw))
    assert told is not None
    assert (told.state, told.mode, told.is_flash) == (Attachment.DIRTY, CacheMode.WRITE_BACK, False)
    assert bcache_superblock.parse_superblock(bytes(208)) is None


@pytest.mark.parametrize(
    ("text", "count"),
    [("0.0k\n", 0), ("1.5k", 1536), ("12", 12), ("2.0M", 2 << 20), ("-1.0k", 0), ("odd", 0)],
)
def test_human_readable_byte_counts(text: str, count: int) -> None:
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
    assert bcache_superblock.begins_blank(str(device))
    for at in (0, 4096, MIB - 1):
        device.write_bytes(bytes(at) + b"x" + bytes(2 * MIB))
        assert not bcache_superblock.begins_blank(str(device))
    device.write_bytes(bytes(MIB) + b"x")
    assert bcache_superblock.begins_blank(str(device))
    device.write_bytes(bytes(8192))
    assert bcache_superblock.begins_blank(str(device)), "all of a smaller one"
    device.write_bytes(b"")
    with pytest.raises(OSError, match="no first block"):
        bcache_superblock.begins_blank(str(device))
    with pytest.raises(FileNotFoundError):
        bcache_superblock.begins_blank(str(device.parent / "gone"))


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
        bcache_superblock.begins_blank(str(device))


def test_a_formatted_device_begins_blank(device: Path) -> None:
    """The filesystem is made where its first MiB is zero: an older one's must not be there."""
    device.write_bytes(b"old" * MIB)
    bcache_superblock.format_origin(str(device), b"u" * 16, LABEL)
    content = device.read_bytes()
    told = bcache_superblock.parse_superblock(content[4096:4304])
    assert told is not None and told.label == LABEL and not told.is_flash
    assert not content[8192 : 8192 + MIB].strip(b"\0")
    assert content[8192 + MIB :].strip(b"\0")


class StoppingDisk:
    """What the kernel does with a slow disk and its `bcache7`, as super.c of Linux 6.12 has it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sysfs, self.dev = folder / "bcache", folder / "dev"
        self.dev.mkdir()
        self.origin, self.disk = self.dev / "slow", self.dev / "bcache7"
        self.origin.touch()
        self.disk.touch()
        #: Mounted, say: the device is opened for its user alone.
        self.is_claimed = False
        #: Opened by others, such as udev's blkid, for so many looks.
        self.opened = 0
        self.is_registered, self.is_stopping = True, False
        self.written: list[str] = []
        self.now_s = 0.0
        self.handles: set[int] = set()
        self.real_open, self.real_close = os.open, os.close
        monkeypatch.setattr(bcache, "_DEVICES", str(self.dev))
        monkeypatch.setattr(bcache, "_folder", self.folder)
        monkeypatch.setattr(bcache, "observe", self.observe)
        monkeypatch.setattr(bcache, "_set", self.set)
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(os, "close", self.close)
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(time, "sleep", self.sleep)

    @property
    def is_free(self) -> bool:
        return not self.disk.exists()

    def folder(self, _device: str) -> str | None:
        return str(self.sysfs) if self.is_registered and not self.is_stopping else None

    def observe(self, device: str) -> bcache.OriginState | None:
        if self.folder(device) is None:
            return None
        return bcache.OriginState("bcache7", True, CacheMode.WRITE_BACK, True, 0, 0, 0)

    def set(self, path: str, text: str) -> None:
        self.written.append(f"{path.removeprefix(str(self.sysfs))}={text}")
        self.is_stopping = True
        self.go_on()

    def go_on(self) -> None:
        if self.is_stopping and not (self.is_claimed or self.handles or self.opened):
            self.disk.unlink(missing_ok=True)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.opened = max(self.opened - 1, 0)
        self.go_on()

    def open(self, path: str, flags: int, *more: int) -> int:
        if path == str(self.disk):
            assert flags & os.O_EXCL
            if self.is_stopping:
                raise OSError(errno.ENXIO, "No such device or address", path)
            if self.is_claimed or self.handles:
                raise OSError(errno.EBUSY, "Device or resource busy", path)
            handle = self.real_open(path, os.O_RDONLY)
            self.handles.add(handle)
            return handle
        if path == str(self.origin) and not self.is_free:
            assert flags & os.O_EXCL
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        return self.real_open(path, flags & ~os.O_EXCL, *more)

    def close(self, handle: int) -> None:
        self.real_close(handle)
        if handle in self.handles:
            assert self.is_stopping, "between a look and the stop somebody could mount it"
            self.handles.remove(handle)
            self.go_on()

    def stop(self) -> None:
        bcache.stop(str(self.origin), within_s=10.0)


@pytest.fixture
def stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoppingDisk:
    return StoppingDisk(tmp_path, monkeypatch)


def test_a_disk_that_nothing_uses_is_stopped(stopping: StoppingDisk) -> None:
    stopping.stop()
    assert stopping.written == ["/stop=1"] and stopping.is_free
    assert stopping.now_s == 0.0 and not stopping.handles


def test_a_disk_that_is_mounted_is_not_stopped(stopping: StoppingDisk) -> None:
    """It was, and called stopped: the pool went on in write-back, with a note that all was over."""
    stopping.is_claimed = True
    with pytest.raises(CommandError, match=r"SAN-CACHE-007: .*bcache7 is still in use"):
        stopping.stop()
    assert stopping.written == [] and not stopping.is_stopping


def test_a_stop_ends_when_the_last_one_has_closed_the_disk(stopping: StoppingDisk) -> None:
    stopping.opened = 5
    stopping.stop()
    assert stopping.is_free and stopping.now_s == pytest.approx(0.5)


def test_a_disk_that_somebody_keeps_open_is_not_called_stopped(stopping: StoppingDisk) -> None:
    stopping.opened = 1000
    with pytest.raises(CommandError, match="SAN-CACHE-007"):
        stopping.stop()
    assert stopping.written == ["/stop=1"]
    # A second one finds no folder in sysfs, and is no proof either.
    with pytest.raises(CommandError, match=r"SAN-CACHE-007: .*slow is still in use"):
        stopping.stop()
    stopping.opened = 0
    stopping.go_on()
    stopping.stop()


def test_a_disk_that_was_never_registered_or_is_gone_needs_no_stop(stopping: StoppingDisk) -> None:
    stopping.is_registered, stopping.is_stopping = False, True
    stopping.go_on()
    stopping.stop()
    stopping.origin.unlink()
    stopping.stop()
    assert stopping.written == []


class LetGo:
    """A disk of bcache's in sysfs; `/dev/null` stands in for its device."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        number = os.stat("/dev/null").st_rdev
        self.disk, self.slow = folder / "bcache3", folder / "slow"
        self.disk.mkdir()
        (self.slow / "bcache").mkdir(parents=True)
        (folder / f"{os.major(number)}:{os.minor(number)}").symlink_to(self.disk)
        self.link = self.disk / "bcache"
        self.link.symlink_to(self.slow / "bcache")
        self.now_s = 0.0
        #: When the kernel is done with it.
        self.ends_s = 1.0
        monkeypatch.setattr(bcache, "_NUMBERED", str(folder))
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s >= self.ends_s and self.disk.exists():
            self.disk.rename(self.disk.with_name("gone"))

    def has_let_go(self) -> bool:
        return bcache.has_let_go("/dev/null")


@pytest.fixture
def let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LetGo:
    return LetGo(tmp_path, monkeypatch)


def test_a_disk_that_bcache_has_stopped_leads_to_no_slow_disk(let_go: LetGo) -> None:
    """As Linux 7.2 leaves it under a mount: the link stays, the folder that it led to is gone."""
    assert not let_go.has_let_go(), "in use"
    (let_go.slow / "bcache").rmdir()
    assert let_go.has_let_go()
    let_go.link.unlink()
    assert let_go.has_let_go()
    let_go.disk.rename(let_go.disk.with_name("gone"))
    assert not let_go.has_let_go()
    assert not bcache.has_let_go("/dev/no-such-disk")


def test_no_other_disk_is_one_that_bcache_has_stopped(let_go: LetGo) -> None:
    let_go.link.unlink()
    number = os.stat("/dev/null").st_rdev
    named = let_go.disk.with_name(f"{os.major(number)}:{os.minor(number)}")
    named.unlink()
    let_go.disk.rename(named)
    assert not let_go.has_let_go()


def test_a_slow_disk_is_free_once_the_disk_that_was_stopped_is_gone(let_go: LetGo) -> None:
    """Registered before, the kernel refuses its flash: that still has the one it stopped."""
    (let_go.slow / "bcache").rmdir()
    slow = let_go.slow / "device"
    slow.touch()
    bcache.await_release("/dev/null", str(slow), within_s=5.0)
    assert 1.0 <= let_go.now_s < 1.2
    bcache.await_release("/dev/null", str(let_go.slow / "gone"), within_s=5.0)


def test_a_disk_that_was_stopped_and_does_not_go_is_an_error(let_go: LetGo) -> None:
    (let_go.slow / "bcache").rmdir()
    let_go.ends_s = 100.0
    with pytest.raises(CommandError, match="SAN-CACHE-007: /dev/null is still in use"):
        bcache.await_release("/dev/null", str(let_go.slow), within_s=5.0)
