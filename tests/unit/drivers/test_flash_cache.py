# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool's flash cache: published state, locks, and devices that cannot be read."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path, PurePosixPath

import pytest

from sanctl.drivers import (
    bcache,
    bcache_superblock,
    flash_assembly,
    flash_cache,
    pool_mount,
    pool_notes,
)
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cache_policy import CacheMode
from sanctl.model.names import NodeName, PoolName
from sanctl.model.pool_cache import Attachment, CacheState, Superblock, WantedMode
from sanctl.model.topology import Pool, PoolCache
from sanctl.plan.pool.flash_mode import has_settled
from sanctl.system import state_files
from tests.fakes.faults import NUMBERS, Faults
from tests.fakes.runner import FakeRunner

THROUGH = CacheMode.WRITE_THROUGH
POOL = Pool(
    name=PoolName.parse("main"),
    path=PurePosixPath("/srv/sanctl/main"),
    uuid="5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a11",
    nodes=(NodeName.parse("n1"),),
    cache=PoolCache(origin=PurePosixPath("/dev/slow"), flash=PurePosixPath("/dev/flash")),
)
#: A disk that is there wherever the tests run.
SEEN = bcache.OriginState("null", True, THROUGH, True, 0, 0, 0)
ORIGIN = Superblock(False, "5e7", flash_cache.label_of(POOL), Attachment.CLEAN, THROUGH)


@pytest.fixture(autouse=True)
def _folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(pool_notes, "_FOLDER", str(tmp_path))


def follow(
    monkeypatch: pytest.MonkeyPatch, seen: bcache.OriginState, wish: WantedMode
) -> CacheState:
    monkeypatch.setattr(bcache, "observe", lambda _origin: seen)
    return flash_cache.apply_mode(POOL, wish, at=lambda _step: None)


def test_the_published_state_carries_the_wanted_serial(monkeypatch: pytest.MonkeyPatch) -> None:
    told = follow(monkeypatch, SEEN, WantedMode(THROUGH, 7))
    assert told == CacheState(THROUGH, THROUGH, serial=7)


def test_no_step_counts_as_done_while_another_process_has_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with flash_cache.locked(POOL):
        told = follow(monkeypatch, SEEN, WantedMode(THROUGH))
    assert told.reason == "changing"


def test_a_flash_that_fails_before_it_is_let_go_is_not_trusted_at_the_next_boot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All was on the slow disk; it went on without the flash, which came back with old blocks."""
    pool_notes.write("main", pool_notes.WRITE_BACK)
    gone = SEEN._replace(has_flash=False, mode=CacheMode.NONE)
    told = follow(monkeypatch, gone, WantedMode(CacheMode.NONE))
    assert (told.mode, told.reason) == (CacheMode.NONE, "")
    assert not pool_notes.exists("main", pool_notes.WRITE_BACK)
    devices = Devices(monkeypatch)
    devices.flash = devices.flash and devices.flash._replace(set_uuid=ORIGIN.set_uuid)
    monkeypatch.setattr(bcache, "attach", lambda *_: devices.done.append("attach"))
    monkeypatch.setattr(bcache, "set_mode", lambda *_: None)
    flash_assembly.start(FakeRunner(), POOL, patience_s=0.0)
    assert devices.done == ["format", "/dev/flash", "/dev/slow", "attach"]


class AttachedFlash:
    """A slow disk with its flash, whose agent may be killed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.devices = Devices(monkeypatch)
        self.seen = SEEN
        #: Where the agent dies, one time after the other; the kernel ends with the last one.
        self.deaths: list[str] = []
        monkeypatch.setattr(bcache, "observe", lambda _origin: self.seen)
        monkeypatch.setattr(bcache, "detach_flash", self.detach)
        monkeypatch.setattr(bcache, "attach", self.attach)
        monkeypatch.setattr(bcache, "set_mode", lambda *_: None)
        monkeypatch.setattr(bcache, "flush", lambda _disk: None)

    def at(self, step: str) -> None:
        if self.deaths[:1] == [step]:
            del self.deaths[0]
            raise KilledError(step)

    def detach(self, _flash: str, *, within_s: float) -> None:
        if len(self.deaths) < 2:
            self.fail()
        self.at("waiting for the kernel")

    def attach(self, *_: object) -> None:
        self.seen = SEEN

    def fail(self) -> None:
        self.seen = self.seen._replace(has_flash=False, mode=CacheMode.NONE)

    def monitor(self, mode: CacheMode) -> CacheState | None:
        try:
            return flash_cache.apply_mode(POOL, WantedMode(mode), at=self.at)
        except KilledError:
            return None


class KilledError(Exception):
    """The process ends here."""


@pytest.mark.parametrize(
    "deaths",
    [[], ["pool-cache-detached"], ["waiting for the kernel"], ["waiting for the kernel"] * 2],
)
def test_flash_that_was_let_go_did_not_fail(
    monkeypatch: pytest.MonkeyPatch, deaths: list[str]
) -> None:
    """The agent died in `none`, and whole flash was called failed later, and stayed out of use."""
    pool = AttachedFlash(monkeypatch)
    assert pool.monitor(THROUGH) == CacheState(THROUGH, THROUGH)
    pool.deaths = [*deaths]
    for _ in deaths:
        assert pool.monitor(CacheMode.NONE) is None
    assert pool.monitor(CacheMode.NONE) == CacheState(CacheMode.NONE, CacheMode.NONE)
    assert not flash_cache.has_failed_flash(POOL)
    assert pool.monitor(THROUGH) == CacheState(THROUGH, THROUGH)
    assert pool.devices.done == ["format", "/dev/flash"]


def test_flash_that_failed_before_it_was_to_be_let_go_waits_for_an_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = AttachedFlash(monkeypatch)
    pool.monitor(THROUGH)
    pool.fail()
    pool.monitor(CacheMode.NONE)
    told = pool.monitor(THROUGH)
    assert told is not None and told.reason == "flash-lost"
    assert pool.devices.done == []


@pytest.mark.parametrize("is_there", [True, False])
def test_a_disk_that_lacks_what_is_on_flash_keeps_the_note(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """The kernel has stopped it: it is not the slow disk alone that goes on."""
    pool_notes.write("main", pool_notes.WRITE_BACK)
    stopped = SEEN._replace(disk="" if is_there else "no such disk", has_flash=False)
    with pytest.raises(CommandError):
        follow(monkeypatch, stopped, WantedMode(CacheMode.NONE))
    assert pool_notes.exists("main", pool_notes.WRITE_BACK)


@pytest.mark.parametrize(("hits", "misses", "percent"), [(4, 1, None), (400, 100, 80)])
def test_a_few_reads_give_no_hit_rate(
    monkeypatch: pytest.MonkeyPatch, hits: int, misses: int, percent: int | None
) -> None:
    seen = SEEN._replace(hits=hits, misses=misses)
    assert follow(monkeypatch, seen, WantedMode(THROUGH)).hit_percent == percent


class Devices:
    """A slow disk and a flash, of which each may answer with an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.errors: dict[str, OSError] = {}
        self.flash: Superblock | None = Superblock(
            True, "5e7", flash_cache.label_of(POOL), Attachment.NONE, CacheMode.NONE
        )
        self.origin: Superblock | None = ORIGIN
        self.done: list[str] = []
        monkeypatch.setattr(bcache_superblock, "read_superblock", self.read)
        monkeypatch.setattr(bcache, "load_module", lambda _runner: None)
        monkeypatch.setattr(bcache, "observe", lambda _origin: None)
        monkeypatch.setattr(bcache, "cache_set_folder", lambda _flash: None)
        monkeypatch.setattr(bcache, "tune", lambda *_: None)
        monkeypatch.setattr(bcache, "register", self.done.append)
        monkeypatch.setattr(bcache, "run_without_flash", lambda _device: self.done.append("alone"))
        monkeypatch.setattr(
            bcache_superblock, "format_flash", lambda *_: self.done.append("format")
        )
        monkeypatch.setattr(flash_assembly, "_await_disk", lambda *_: None)

    def read(self, device: str) -> Superblock | None:
        if device in self.errors:
            raise self.errors[device]
        return self.origin if device == "/dev/slow" else self.flash


class MountedPool:
    """A pool that is mounted, and a slow disk of the inventory's that bcache has not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.devices = Devices(monkeypatch)
        self.devices.origin = None
        self.folder, self.path = folder, POOL.path
        (folder / "8:16").mkdir()
        (folder / "virtual" / "bcache0").mkdir(parents=True)
        (folder / "252:0").symlink_to(folder / "virtual" / "bcache0")
        monkeypatch.setattr(bcache, "_NUMBERED", str(folder))
        monkeypatch.setattr(flash_cache, "is_mount_point", lambda path: path == self.path)
        self.mount_on("8:16")
        monkeypatch.setattr(pool_mount, "mount_of", lambda _path: self.mount)

    def mount_on(self, number: str, source: str = "/dev/disk") -> None:
        line = f"30 1 {number} / {POOL.path} rw - ext4 {source} rw"
        (self.mount,) = pool_mount.parse_mountinfo(line)

    def apply(self, mode: CacheMode) -> CacheState:
        return flash_cache.apply_mode(POOL, WantedMode(mode, 3), at=lambda _step: None)


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MountedPool:
    folder = tmp_path / "numbered"
    folder.mkdir()
    return MountedPool(monkeypatch, folder)


@pytest.mark.parametrize("mode", list(CacheMode))
def test_a_pool_that_never_got_its_flash_settles_in_each_mode(
    mounted: MountedPool, mode: CacheMode
) -> None:
    told = mounted.apply(mode)
    assert told == CacheState(CacheMode.NONE, mode, reason="no-bcache", serial=3)
    assert has_settled(told, mode)


@pytest.mark.parametrize("error", [FileNotFoundError, NotADirectoryError])
@pytest.mark.parametrize("number", ["8:16", "252:0"])
def test_a_slow_disk_that_is_not_there_says_nothing_of_the_flash(
    mounted: MountedPool, error: type[OSError], number: str
) -> None:
    """Its name was wrong in the inventory: `none` was called done, over a flash with dirty data."""
    mounted.mount_on(number)
    mounted.devices.errors["/dev/slow"] = error(errno.ENOENT, "No such file or directory")
    for mode in CacheMode:
        with pytest.raises(CommandError, match="SAN-POOL-022: /dev/slow is not there"):
            mounted.apply(mode)
    mounted.devices.errors["/dev/slow"] = OSError(errno.EIO, "Input/output error")
    with pytest.raises(CommandError, match="SAN-POOL-027"):
        mounted.apply(CacheMode.NONE)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param("252:0", id="bcache"),
        pytest.param("8:32", id="a disk that is gone"),
        pytest.param("0:55", id="no disk's number, and its source is gone"),
    ],
)
def test_another_disk_than_the_one_that_is_mounted_says_nothing_of_the_flash(
    mounted: MountedPool, number: str
) -> None:
    mounted.mount_on(number, source="/dev/gone")
    with pytest.raises(CommandError, match="SAN-POOL-017: pool main: /dev/slow is not the disk"):
        mounted.apply(CacheMode.NONE)


def test_a_disk_of_bcaches_is_known_by_its_link_too(mounted: MountedPool) -> None:
    """The link leads nowhere once bcache has let go of the slow disk."""
    assert bcache.is_cached_disk("8:16") is False
    (mounted.folder / "8:16" / "bcache").symlink_to("/gone")
    assert bcache.is_cached_disk("8:16") is True


def stack(folder: Path, upper: str, *lower: str) -> None:
    """Have one block device lie on others, as sysfs says it."""
    slaves = folder / "virtual" / upper / "slaves"
    slaves.mkdir(parents=True)
    for each in lower:
        disk = folder / "virtual" / each
        disk.mkdir(parents=True, exist_ok=True)
        if "/" in each:
            (disk / "partition").write_text("1\n")
        (slaves / disk.name).symlink_to(disk)


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_disk_of_bcaches_below_device_mapper_is_found(
    mounted: MountedPool, is_cached: bool
) -> None:
    """An encrypted disk on LVM, on a partition of a RAID."""
    folder = mounted.folder
    stack(folder, "dm-0", "dm-1")
    stack(folder, "dm-1", "sdc/sdc1", "md0/md0p1")
    stack(folder, "md0", "sdd", "sde/sde1")
    (folder / "253:0").symlink_to(folder / "virtual" / "dm-0")
    if is_cached:
        (folder / "virtual/sde/sde1/bcache").symlink_to("/gone")
    assert bcache.is_cached_disk("253:0") is is_cached
    stack(folder, "dm-2", "bcache0")
    (folder / "253:2").symlink_to(folder / "virtual" / "dm-2")
    assert bcache.is_cached_disk("253:2") is True
    mounted.mount_on("253:2")
    with pytest.raises(CommandError, match="SAN-POOL-017"):
        mounted.apply(CacheMode.NONE)


def test_a_filesystem_without_a_disks_number_is_found_by_its_source(mounted: MountedPool) -> None:
    """btrfs."""
    number = os.stat("/dev/null").st_rdev
    (mounted.folder / f"{os.major(number)}:{os.minor(number)}").mkdir()
    mounted.mount_on("0:55", source="/dev/null")
    assert mounted.apply(CacheMode.NONE).reason == "no-bcache"


def test_a_disk_that_the_kernel_took_from_a_mounted_pool_needs_its_flash(
    mounted: MountedPool,
) -> None:
    mounted.devices.origin = ORIGIN
    mounted.mount_on("252:0")
    with pytest.raises(CommandError, match="SAN-POOL-016"):
        mounted.apply(CacheMode.NONE)


def test_a_disk_that_bcache_has_stopped_under_a_mount_is_not_called_flash_that_is_missing(
    mounted: MountedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint said to bring the flash back, which was there, or to make the pool anew."""
    mounted.devices.origin = ORIGIN
    monkeypatch.setattr(bcache, "has_let_go", lambda disk: disk == "/dev/bcache0")
    mounted.mount_on("252:0", source="/dev/bcache0")
    with pytest.raises(CommandError, match="SAN-POOL-023: pool main: bcache has stopped /dev/slow"):
        mounted.apply(CacheMode.NONE)
    assert flash_cache.is_stopped(POOL)
    assert not flash_cache.is_stopped(dataclasses.replace(POOL, cache=None))
    monkeypatch.setattr(bcache, "observe", lambda _origin: SEEN)
    assert not flash_cache.is_stopped(POOL), "bcache has it: only the link is missing"


class StoppedDisk:
    """A pool that was unmounted as bcache had stopped its disk, `bcache0`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.devices = Devices(monkeypatch)
        self.devices.flash = Superblock(
            True, ORIGIN.set_uuid, flash_cache.label_of(POOL), Attachment.NONE, CacheMode.NONE
        )
        self.done = self.devices.done
        self.is_held = self.is_running = False
        self.hangs: set[str] = set()
        monkeypatch.setattr(flash_assembly, "exists", lambda _path: True)
        monkeypatch.setattr(pool_mount, "gives_answer", lambda device: device not in self.hangs)
        monkeypatch.setattr(bcache, "observe", self.observe)
        monkeypatch.setattr(bcache, "await_release", self.wait)
        monkeypatch.setattr(bcache, "register", self.register)
        monkeypatch.setattr(bcache, "attach", lambda *_: self.done.append("attach"))
        monkeypatch.setattr(bcache, "set_mode", lambda *_: None)

    def observe(self, _origin: str) -> bcache.OriginState | None:
        return SEEN._replace(disk="bcache5") if self.is_running else None

    def wait(self, disk: str, origin: str, *, within_s: float) -> None:
        assert (disk, origin) == ("/dev/bcache0", "/dev/slow") and within_s
        if self.is_held:
            raise CommandError(Problem("SAN-CACHE-007", "/dev/bcache0 is still in use", "?"))
        self.done.append("free")

    def register(self, device: str) -> None:
        self.done.append(device)
        self.is_running = self.is_running or device == "/dev/slow"

    def start_again(self) -> str:
        return flash_assembly.start_again(FakeRunner(), POOL, "/dev/bcache0")


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> StoppedDisk:
    return StoppedDisk(monkeypatch)


def test_a_disk_that_bcache_has_stopped_gets_an_empty_flash_where_no_data_is_on_it_alone(
    stopped: StoppedDisk,
) -> None:
    """By the name that it has now: another pool's disk may have the one that it had."""
    assert stopped.start_again() == "/dev/bcache5"
    assert stopped.done == ["free", "format", "/dev/flash", "/dev/slow", "attach"]
    assert stopped.start_again() == "/dev/bcache5"
    assert len(stopped.done) == 5, "an agent that was killed before the mount goes on with it"


@pytest.mark.parametrize("state", [Attachment.CLEAN, Attachment.DIRTY])
def test_dirty_data_of_a_disk_that_bcache_has_stopped_stays_on_its_flash(
    stopped: StoppedDisk, state: Attachment
) -> None:
    pool_notes.write("main", pool_notes.WRITE_BACK)
    stopped.devices.origin = ORIGIN._replace(state=state)
    assert stopped.start_again() == "/dev/bcache5"
    assert stopped.done == ["free", "/dev/flash", "/dev/slow"]
    assert pool_notes.exists("main", pool_notes.WRITE_BACK)


@pytest.mark.parametrize("flash", ["missing", "unreadable", "another's"])
def test_a_disk_that_lacks_what_is_on_flash_is_not_used_without_it(
    stopped: StoppedDisk, flash: str
) -> None:
    pool_notes.write("main", pool_notes.WRITE_BACK)
    if flash == "unreadable":
        stopped.devices.errors["/dev/flash"] = OSError(errno.EIO, "Input/output error")
    else:
        found = stopped.devices.flash
        other = found._replace(set_uuid="other") if found else None
        stopped.devices.flash = None if flash == "missing" else other
    with pytest.raises(Refused, match="SAN-POOL-016"):
        stopped.start_again()
    assert stopped.done == ["free"]
    with pytest.raises(Refused, match="SAN-POOL-016"):
        flash_assembly.refuse_to_unmount(POOL)
    pool_notes.clear("main", pool_notes.WRITE_BACK)
    flash_assembly.refuse_to_unmount(POOL)
    assert stopped.done == ["free"]


@pytest.mark.parametrize("device", ["/dev/slow", "/dev/flash"])
def test_a_disk_that_hangs_is_not_read_under_the_lock(stopped: StoppedDisk, device: str) -> None:
    stopped.hangs.add(device)
    with pytest.raises(CommandError, match=f"SAN-POOL-023: .*: {device} hangs"):
        flash_assembly.refuse_to_unmount(POOL)
    with pytest.raises(CommandError, match=f"SAN-POOL-023: .*: {device} hangs"):
        stopped.start_again()
    assert stopped.done == []


def test_nothing_is_assembled_while_bcache_has_the_disk_that_it_stopped(
    stopped: StoppedDisk,
) -> None:
    stopped.is_held = True
    with pytest.raises(CommandError, match="SAN-CACHE-007"):
        stopped.start_again()
    assert stopped.done == []


def test_a_pool_that_was_mounted_without_bcache_is_mounted_as_before(
    stopped: StoppedDisk,
) -> None:
    """One that waits for its flash; and one without any."""
    assert flash_assembly.start_again(FakeRunner(), POOL, "/dev/sdb") == "/dev/sdb"
    without = dataclasses.replace(POOL, cache=None)
    assert flash_assembly.start_again(FakeRunner(), without, "/dev/bcache0") == "/dev/bcache0"
    assert stopped.done == []


@pytest.mark.parametrize("number", NUMBERS)
def test_a_disk_that_cannot_be_read_is_not_another_pools(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It was said that a blank one becomes it by `sanctl pool prepare`, which it then did."""
    devices = Devices(monkeypatch)
    pool_notes.write("main", pool_notes.STOPPED, "5e7")
    devices.errors["/dev/slow"] = OSError(number, os.strerror(number))
    with pytest.raises(CommandError, match="SAN-POOL-027: pool main: /dev/slow cannot be read"):
        flash_assembly.start(FakeRunner(), POOL, patience_s=0.0)
    assert devices.done == []
    assert pool_notes.read("main", pool_notes.STOPPED) == "5e7", "it begins warm when it is back"
    devices.errors["/dev/slow"] = FileNotFoundError(errno.ENOENT, "No such file or directory")
    with pytest.raises(CommandError, match="SAN-POOL-022: /dev/slow is not there"):
        flash_assembly.start(FakeRunner(), POOL, patience_s=0.0)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("needed", [True, False])
def test_flash_that_cannot_be_read_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch, needed: bool, number: int
) -> None:
    devices = Devices(monkeypatch)
    devices.errors["/dev/flash"] = OSError(number, os.strerror(number))
    if needed:
        pool_notes.write("main", pool_notes.WRITE_BACK)
        with pytest.raises(Refused, match="SAN-POOL-016"):
            flash_assembly.start(FakeRunner(), POOL, patience_s=0.0)
        assert devices.done == []
    else:
        flash_assembly.start(FakeRunner(), POOL, patience_s=0.0)
        assert devices.done == ["/dev/slow", "alone"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_note_that_cannot_be_read_permits_nothing(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The slow disk was used alone."""
    devices = Devices(monkeypatch)
    devices.flash = None
    Faults(monkeypatch).at(pool_notes.path("main", pool_notes.WRITE_BACK), number)
    with pytest.raises(OSError, match=os.strerror(number)):
        flash_assembly.start(FakeRunner(), POOL, patience_s=0.0)
    assert devices.done == []


def test_without_the_folder_of_the_notes_nothing_is_put_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """/var is a filesystem of its own that is not mounted: the flash was emptied."""
    devices = Devices(monkeypatch)
    monkeypatch.setattr(pool_notes, "_FOLDER", str(tmp_path / "not-mounted"))
    with pytest.raises(Refused, match=r"SAN-POOL-035.*not known"):
        flash_assembly.start(FakeRunner(), POOL, patience_s=0.0)
    assert devices.done == []
    pool_notes.make_folder()
    devices.flash = None
    flash_assembly.start(FakeRunner(), POOL, patience_s=0.0)
    assert devices.done == ["/dev/slow", "alone"], "no note in a folder that is there"


def test_only_the_pools_own_readable_flash_is_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = Devices(monkeypatch)
    devices.errors["/dev/flash"] = OSError(errno.EIO, "Input/output error")
    with pytest.raises(CommandError, match="SAN-POOL-027"):
        flash_cache.format_flash(POOL, "/dev/flash")
    with pytest.raises(Refused, match="SAN-CACHE-009"):
        flash_cache.format_flash(POOL, "/dev/slow")  # the names were mixed up in the inventory
    assert devices.done == []
    devices.errors.clear()
    flash_cache.format_flash(POOL, "/dev/flash")
    assert devices.done == ["format"]


def test_a_disk_that_is_in_use_gets_no_stopped_note(monkeypatch: pytest.MonkeyPatch) -> None:
    Devices(monkeypatch)
    monkeypatch.setattr(bcache, "observe", lambda _origin: SEEN)

    def busy(*_: object, **__: object) -> None:
        raise CommandError(Problem("SAN-CACHE-007", "/dev/bcache0 is still in use", "?"))

    monkeypatch.setattr(bcache, "stop", busy)
    with pytest.raises(CommandError):
        flash_cache.stop(POOL)
    assert not pool_notes.exists("main", pool_notes.STOPPED)


def test_a_stop_whose_disk_does_not_answer_writes_no_stopped_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices = Devices(monkeypatch)
    monkeypatch.setattr(bcache, "observe", lambda _origin: SEEN)
    monkeypatch.setattr(bcache, "stop", lambda *_, **__: None)
    devices.errors["/dev/slow"] = OSError(errno.EIO, "Input/output error")
    flash_cache.stop(POOL)
    assert not pool_notes.exists("main", pool_notes.STOPPED)
    devices.errors.clear()
    flash_cache.stop(POOL)
    assert pool_notes.read("main", pool_notes.STOPPED) == "5e7"
