# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl/drivers/bcache.py on a real kernel: attach, modes, flush, failing flash (ADR 31)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sanctl.lab.harness.lab_session import LabSession

NODE = "n1"
FOLDER = "/var/tmp/bcache-test"
_SCRIPT = """
import os, sys, time
sys.path.insert(0, os.path.realpath("/opt/sanctl/current"))
from sanctl.drivers import bcache, bcache_superblock
from sanctl.model.cache_policy import CacheMode as Mode
from sanctl.system.runner import LocalRunner

disk, flash = "/dev/mapper/btest-disk", "/dev/mapper/btest-flash"
LABEL, MARK = "a" * 32, b"M" * 8192

def within(look, what):
    end = time.monotonic() + 20
    while not look():
        assert time.monotonic() < end, what
        time.sleep(0.1)

def on_disk():
    with open(disk, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(8192 + (4 << 20))
        return file.read(8192)

def write(name, content):
    handle = os.open("/dev/" + name, os.O_WRONLY)
    os.pwrite(handle, content, 4 << 20)
    os.fsync(handle)
    os.close(handle)

bcache.load_module(LocalRunner())
set_uuid = bcache_superblock.format_flash(flash, LABEL)
bcache_superblock.format_origin(disk, os.urandom(16), LABEL)
bcache.register(flash)
bcache.register(disk)
bcache.register(disk)
within(lambda: bcache.observe(disk).disk, "a new disk runs without flash")
assert not bcache.observe(disk).has_flash
bcache.attach(disk, flash)
seen = bcache.observe(disk)
assert seen.has_flash and seen.mode is Mode.WRITE_THROUGH and seen.is_clean, seen
assert bcache_superblock.read_superblock(disk).set_uuid == set_uuid
bcache.tune(disk, flash)

bcache.set_mode(disk, Mode.WRITE_BACK)
with open(f"/sys/block/{seen.disk}/bcache/writeback_running", "w") as file:
    file.write("0")  # it would be on the slow disk a moment later
write(seen.disk, MARK)
assert not bcache.observe(disk).is_clean, "flushed, and on flash alone"
assert on_disk() != MARK
bcache.set_mode(disk, Mode.WRITE_THROUGH)
within(lambda: bcache.observe(disk).is_clean, "all written back")
bcache.flush(seen.disk)
assert on_disk() == MARK, "the slow disk has it"
within(lambda: bcache_superblock.read_superblock(disk).state.value == "clean", "noted on the disk")

os.system("dmsetup suspend --noflush --nolockfs btest-flash;"
          " dmsetup load btest-flash --table '0 1048576 error'; dmsetup resume btest-flash")
def is_written():
    try:
        write(seen.disk, b"N" * 8192)
    except OSError:
        return False
    return True

# Those in flight while it lets go fail: DRBD drops the disk then, and the agent attaches it again.
within(is_written, "writes go on without the flash that failed")
within(lambda: not bcache.observe(disk).has_flash, "flash that failed is let go")
write(seen.disk, b"N" * 8192)
assert on_disk() == b"N" * 8192, "and the disk goes on"
# What the rule in sanctl/plan/pool/flash_assembly.py is for: on disk it still belongs to that
# flash.
print("STATE", bcache_superblock.read_superblock(disk).state.value)
bcache.stop(disk, within_s=20)
"""


@pytest.fixture
def disks(bed: LabSession) -> Iterator[None]:
    bed.sh(
        NODE,
        f"mkdir -p {FOLDER}; cd {FOLDER}; truncate -s 512M flash; truncate -s 256M disk;"
        " modprobe dm-mod;"
        " for each in flash disk; do loop=$(losetup --find --show $each);"
        ' dmsetup create btest-$each --table "0 $(blockdev --getsz $loop) linear $loop 0"; done',
    )
    yield
    bed.sh(
        NODE,
        "for each in /sys/block/dm-*/bcache; do"
        "  case $(cat $each/../dm/name) in"
        "    btest-disk) echo 1 >$each/stop;;"
        "    btest-flash) echo 1 >$each/set/stop;;"
        "  esac; done;"
        " for each in disk flash; do dmsetup remove --retry btest-$each;"
        f" losetup --detach $(losetup -n -O NAME -j {FOLDER}/$each); done; rm -r {FOLDER}",
        ok=range(256),
    )


@pytest.mark.quick
def test_it_does_what_is_built_on_it(bed: LabSession, disks: None) -> None:
    done = bed.sh(NODE, "python3 -I -", stdin=_SCRIPT, timeout_s=120)
    assert "STATE clean" in done.stdout, done.stdout
