# SPDX-License-Identifier: GPL-2.0-or-later
"""Preparing a pool with a flash cache: devices that fail, are replaced, or hold something else.

The devices are files. What bcache and systemd would do is done by a world that can be killed
before each of its steps.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from sanctl.drivers import (
    bcache,
    bcache_superblock,
    flash_assembly,
    flash_cache,
    pool_files,
    pool_notes,
)
from sanctl.errors import CommandError, Problem, Refused, SanctlError
from sanctl.model.cache_policy import CacheMode
from sanctl.model.topology import PoolCache, PoolFilesystem, Topology
from sanctl.ops import pool_prepare, pool_reformat
from sanctl.plan.pool.flash_assembly import choose_assembly
from sanctl.system import state_files
from sanctl.system.files import write_atomically
from tests.fakes.faults import Faults
from tests.fakes.runner import Answer, FakeRunner
from tests.fakes.topology import topology
from tests.unit.ops.test_device import codes
from tests.unit.ops.test_pool_cache import MAIN

MIB = 1 << 20
SIZE = 3 * MIB
DATA_AT = 8192


class KilledError(Exception):
    """The process ends here."""


class World:
    """A node with a slow disk, a flash device, and room for a pool."""

    def __init__(self, folder: Path) -> None:
        self.origin, self.flash = folder / "slow", folder / "flash"
        for device in (self.origin, self.flash):
            self.replace(device)
        self.path = folder / "pool"
        (self.path).mkdir()
        self.hidden = folder / "mounted"
        self.notes = folder / "notes"
        self.is_mounted = self.is_running = False
        self.steps: list[str] = []
        self.dies_before = ""
        self.begun = 0
        self.is_unread: set[str] = set()
        self.check: Callable[[], None] = lambda: None
        self.give_up: Callable[[], None] | None = None
        self.runner = FakeRunner(self.answer)
        cache = PoolCache(
            origin=PurePosixPath(str(self.origin)), flash=PurePosixPath(str(self.flash))
        )
        plain = topology()
        self.pool = replace(plain.pools[0], cache=cache, path=PurePosixPath(str(self.path)))
        self.topology: Topology = replace(plain, pools=(self.pool,))

    def replace(self, device: Path) -> None:
        device.unlink(missing_ok=True)
        device.touch()
        os.truncate(device, SIZE)

    def step(self, name: str) -> None:
        if name == self.dies_before:
            raise KilledError(name)
        self.steps.append(name)

    def answer(self, argv: Sequence[str]) -> Answer:
        words = " ".join(argv)
        if argv[0] == "blkid":
            # As blkid(8) does, it ends alike for nothing found and for what it could not read.
            content = b"" if argv[-1] in self.is_unread else Path(argv[-1]).read_bytes()
            content = content[DATA_AT:] if argv[-1].startswith("/dev/..") else content
            return (0 if content.strip(b"\0") else 2, "", "")
        if argv[0] in {"mkfs.xfs", "mkfs.ext4"}:
            self.step("mkfs begun")
            disk = Path(argv[-1])
            self.write(disk, b"half")
            self.step("mkfs done")
            self.write(disk, b"xfs0")
            for each in self.path.iterdir():
                each.rmdir() if each.is_dir() else each.unlink()
        elif words.startswith("systemctl restart"):
            self.start()
        elif words.startswith("systemctl start"):
            assert not pool_notes.exists(MAIN, pool_notes.MAKING), "it may still be made"
            self.mount()
        elif words.startswith("systemctl stop sanctl-pool"):
            self.is_running = False
        elif words.startswith("systemctl stop"):
            self.is_mounted = False
        return ""

    def write(self, disk: Path, content: bytes) -> None:
        with disk.open("r+b") as file:
            file.seek(DATA_AT)
            file.write(content)

    def content(self) -> bytes:
        return self.origin.read_bytes()[DATA_AT : DATA_AT + 4]

    def start(self) -> None:
        self.step("start")
        flash_assembly._refuse_without_notes(self.pool)
        flash_assembly._refuse_unfinished(self.pool)
        act = choose_assembly(
            label=flash_cache.label_of(self.pool),
            origin=bcache_superblock.read_superblock(str(self.origin)),
            flash=bcache_superblock.read_superblock(str(self.flash)),
            is_noted_write_back=flash_cache.has_write_back_note(self.pool),
            stopped_with="",
        )
        if act not in {"attach", "renew"}:
            raise CommandError(Problem("SAN-CMD-003", act.value))
        self.is_running = True

    def mount(self) -> None:
        self.step("mount")
        if self.content() != b"xfs0":
            raise CommandError(Problem("SAN-CMD-003", "no filesystem"))
        self.is_mounted = True

    def reboot(self) -> None:
        """As systemd does: the unit, and the mount that wants it."""
        self.dies_before = ""
        self.is_mounted = self.is_running = False
        try:
            self.start()
            self.mount()
        except SanctlError:
            return

    def observe(self, _origin: str) -> bcache.OriginState | None:
        if not self.is_running:
            return None
        # Where the data begins, in a file of its own: a device of the kernel.
        return bcache.OriginState(f"..{self.origin}", True, CacheMode.WRITE_THROUGH, True, 0, 0, 0)

    def prepare(self, *, leaves_failed_flash: bool = False) -> tuple[str, ...]:
        self.begun += 1
        self.left: list[str] = []
        return pool_prepare.prepare_pool(
            self.runner,
            self.topology,
            MAIN,
            "n1",
            identifier=f"{self.begun:032x}",
            leaves_failed_flash=leaves_failed_flash,
            tell=self.left.append,
        )

    def anew(self) -> None:
        give_up = self.give_up or self.check
        self.begun += 1
        pool_reformat.clear_pool(
            self.runner, self.topology, MAIN, self.check, give_up, identifier=f"{self.begun:032x}"
        )
        self.prepare()

    def kinds(self) -> set[str]:
        return {path.suffix[1:] for path in self.notes.iterdir()} if self.notes.exists() else set()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(os, "O_DIRECT", 0)
    monkeypatch.setattr(pool_notes, "_FOLDER", str(made.notes))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    monkeypatch.setattr(flash_cache, "log", lambda *_, **__: None)
    monkeypatch.setattr(bcache_superblock, "_LEAST_BYTES", 0)
    monkeypatch.setattr(bcache, "load_module", lambda _runner: None)
    monkeypatch.setattr(bcache, "observe", made.observe)
    monkeypatch.setattr(bcache, "stop", lambda *_, **__: None)
    monkeypatch.setattr(bcache, "cache_set_folder", lambda _flash: None)
    monkeypatch.setattr(pool_reformat, "is_mount_point", lambda _path: made.is_mounted)
    monkeypatch.setattr(pool_prepare, "is_mount_point", lambda _path: made.is_mounted)
    real_blank = bcache_superblock.begins_blank

    def begins_blank(device: str) -> bool:
        fails(device)
        if device.startswith("/dev/.."):  # bcacheN: what is behind the superblock
            return not made.origin.read_bytes()[DATA_AT : DATA_AT + MIB].strip(b"\0")
        return real_blank(device)

    def fails(device: str) -> None:
        if device in made.is_unread:
            raise OSError(errno.EIO, "Input/output error", device)

    def stepping(name: str, real: Callable[..., object]) -> Callable[..., None]:
        def call(*args: object, **options: object) -> None:
            said = " ".join([name, *(str(each) for each in args[1:2] if name != "format")])
            made.step(said)
            real(*args, **options)

        return call

    def reading(real: Callable[[str], object]) -> Callable[[str], object]:
        def call(device: str) -> object:
            fails(device)
            return real(device)

        return call

    monkeypatch.setattr(bcache_superblock, "begins_blank", begins_blank)
    monkeypatch.setattr(
        bcache_superblock, "read_superblock", reading(bcache_superblock.read_superblock)
    )

    def format_origin(*args: object) -> None:
        had = made.content()
        made.step("format")
        real_format(*args)
        if made.dies_before == "half":  # The superblock is new, and what follows is not yet.
            made.write(made.origin, had)
            raise KilledError

    real_format: Callable[..., None] = bcache_superblock.format_origin
    monkeypatch.setattr(bcache_superblock, "format_origin", format_origin)
    monkeypatch.setattr(
        bcache_superblock, "format_flash", stepping("format", bcache_superblock.format_flash)
    )
    monkeypatch.setattr(pool_notes, "write", stepping("note", pool_notes.write))
    monkeypatch.setattr(pool_notes, "clear", stepping("forget", pool_notes.clear))

    def write_id(path: str, identifier: str) -> None:
        made.step("id")
        real_id(path, identifier)

    def write_marker(path: str, text: str) -> None:
        made.step("marker")
        real_marker(path, text)

    real_id, real_marker = pool_files.write_filesystem_id, write_atomically
    monkeypatch.setattr(pool_files, "write_filesystem_id", write_id)
    monkeypatch.setattr(pool_prepare, "write_atomically", write_marker)
    return made


def refused(world: World, code: str, do: Callable[[], object] | None = None) -> Problem:
    """See it refused with nothing written."""
    before = [device.read_bytes() for device in (world.origin, world.flash)]
    with pytest.raises(Refused) as caught:
        (do or world.prepare)()
    assert codes(caught.value) == [code]
    assert [device.read_bytes() for device in (world.origin, world.flash)] == before
    assert "mkfs begun" not in world.steps
    return caught.value.problems[0]


def test_blank_devices_become_a_pool_once(world: World) -> None:
    assert len(world.prepare()) == 4
    assert world.is_mounted and world.kinds() == {"made", "filesystem"}
    pool_files.check_marker(str(world.path), world.pool.uuid)
    assert (world.path / ".sanctl-pool").read_text() == f"{world.pool.uuid}\n"
    world.steps.clear()
    assert world.prepare() == () and world.steps == []


@pytest.mark.parametrize(
    ("filesystem", "words"),
    [
        (PoolFilesystem.XFS, ("mkfs.xfs", "-q", "-f", "-m", "uuid={},reflink=1")),
        (PoolFilesystem.EXT4, ("mkfs.ext4", "-q", "-F", "-U", "{}")),
    ],
)
def test_the_filesystem_is_the_one_in_the_configuration(
    world: World, filesystem: PoolFilesystem, words: tuple[str, ...]
) -> None:
    assert world.pool.cache is not None
    world.pool = replace(world.pool, cache=replace(world.pool.cache, filesystem=filesystem))
    world.topology = replace(world.topology, pools=(world.pool,))
    world.prepare()
    made = next(argv for argv, _ in world.runner.calls if argv[0].startswith("mkfs"))
    assert made[:-1] == tuple(word.format(world.pool.uuid) for word in words)


@pytest.mark.parametrize("device", ["origin", "flash"])
def test_a_device_that_cannot_be_read_is_not_blank(world: World, device: str) -> None:
    """blkid ends with 2 for both: the flash was emptied, and the disk formatted."""
    path = str(getattr(world, device))
    world.is_unread.add(path)
    problem = refused(world, "SAN-POOL-027")
    assert path in problem.text and "Input/output error (EIO)" in problem.text


def test_a_bad_sector_under_the_filesystem_is_no_blank_disk(world: World) -> None:
    world.prepare()
    for kind in (pool_notes.MADE,):  # as an older release left it
        pool_notes.clear(MAIN, kind)
    world.reboot()
    world.is_mounted = False
    world.steps.clear()
    world.is_unread.add(f"/dev/..{world.origin}")
    assert "cannot be read" in refused(world, "SAN-POOL-027").text


def test_a_pool_in_use_whose_folder_cannot_be_read_is_told_as_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with a flash that failed under a mounted pool: it was told as an error in sanctl."""
    world.prepare()
    Faults(monkeypatch).at(world.path / "devices")
    with pytest.raises(CommandError) as caught:
        world.prepare()
    assert codes(caught.value) == ["SAN-POOL-027"]
    assert str(world.path / "devices") in str(caught.value)


@pytest.mark.parametrize("disk", ["gone", "another"])
def test_a_pool_in_use_is_not_prepared_by_the_name_of_another_disk(
    world: World, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    """The rollout was green, and the pool then passed for one without flash."""
    world.prepare()
    world.is_running = False  # of the disk that the inventory names now
    world.steps.clear()
    monkeypatch.setattr(flash_cache, "is_on_bcache", lambda _pool: True)
    if disk == "gone":
        world.origin.rename(world.origin.with_name("moved"))
        with pytest.raises(Refused, match="SAN-POOL-022"):
            world.prepare()
        return
    world.replace(world.origin)
    assert str(world.origin) in refused(world, "SAN-POOL-017").text
    # As it was before the pool got flash: its filesystem is on the disk itself.
    monkeypatch.setattr(flash_cache, "is_on_bcache", lambda _pool: False)
    assert world.prepare() == ()


@pytest.mark.parametrize("device", ["origin", "flash"])
def test_what_blkid_does_not_know_is_not_blank_either(world: World, device: str) -> None:
    with getattr(world, device).open("r+b") as file:
        file.seek(MIB - 512)
        file.write(b"raw data of a database")
    problem = refused(world, "SAN-POOL-019")
    assert f"blkdiscard --zeroout --length 1MiB {getattr(world, device)}" in problem.hint
    getattr(world, device).write_bytes(bytes(MIB) + b"\0" * 4096 + b"md at the end")
    refused(world, "SAN-POOL-019")


def test_a_pool_of_an_older_release_is_noted(world: World) -> None:
    world.prepare()
    pool_notes.clear(MAIN, pool_notes.MADE)
    pool_notes.clear(world.pool.uuid, pool_notes.FILESYSTEM)
    (world.path / pool_files.FILESYSTEM_ID).unlink()
    assert world.prepare() == () and world.kinds() == {"made"}
    pool_files.check_marker(str(world.path), world.pool.uuid)


@pytest.mark.parametrize("by", ["a blank disk", "another's disk", "a blank filesystem"])
def test_what_was_made_is_not_made_again_by_itself(world: World, by: str) -> None:
    world.prepare()
    world.is_mounted = world.is_running = False
    world.steps.clear()
    if by == "a blank filesystem":
        world.write(world.origin, bytes(4))
    else:
        world.replace(world.origin)
        if by != "a blank disk":
            world.write(world.origin, b"LABELONE")
    problem = refused(world, "SAN-POOL-029")
    assert "sanctl pool prepare main --anew" in problem.hint
    if by == "another's disk":
        refused(world, "SAN-POOL-019", world.anew)
        world.replace(world.origin)
    world.anew()
    assert world.is_mounted and world.kinds() == {"made", "filesystem"}


def test_a_marker_that_is_gone_is_not_written_again(world: World) -> None:
    world.prepare()
    (world.path / ".sanctl-pool").unlink()
    world.steps.clear()
    refused(world, "SAN-POOL-001")
    (world.path / "devices").rmdir()
    world.steps.clear()
    refused(world, "SAN-POOL-029")
    assert not (world.path / ".sanctl-pool").exists()


def test_a_blank_flash_is_taken_in_place_of_one_that_failed(world: World) -> None:
    world.prepare()
    world.is_mounted = world.is_running = False
    world.replace(world.flash)
    assert world.prepare() == (f"{world.flash} is the pool's flash",)
    assert world.is_mounted


@pytest.mark.parametrize("kind", ["flash-lost", "flash-attached"])
def test_flash_that_failed_waits_for_an_operator_whatever_the_rollout_does(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The latter note is that of flash which no monitor has missed yet."""
    world.prepare()
    has_flash = False

    def observe(_origin: str) -> bcache.OriginState:
        return bcache.OriginState("bcache0", has_flash, CacheMode.WRITE_THROUGH, True, 0, 0, 0)

    def attach(_pool: object) -> None:
        nonlocal has_flash
        has_flash = True
        world.step("attach")

    monkeypatch.setattr(bcache, "observe", observe)
    monkeypatch.setattr(flash_cache, "attach_flash", attach)
    state_files.of_pool(MAIN.value, kind).write()
    world.steps.clear()
    assert world.prepare(leaves_failed_flash=True) == ()
    assert "attach" not in world.steps and flash_cache.has_failed_flash(world.pool)
    (left,) = world.left
    assert left.startswith(f"its flash {world.flash} has failed and stays out of use")
    assert world.prepare() == (f"{world.flash} is the pool's flash",) and not world.left
    assert "attach" in world.steps
    # Flash that the mode `none` has detached has not failed.
    has_flash = False
    state_files.of_pool(MAIN.value, kind).remove()
    assert world.prepare(leaves_failed_flash=True) == (f"{world.flash} is the pool's flash",)
    assert not world.left


def test_notes_of_another_pool_say_nothing(world: World) -> None:
    pool_notes.write(MAIN, pool_notes.MADE, "another")
    pool_notes.write(MAIN, pool_notes.MAKING, "another")
    world.prepare()
    assert pool_notes.read(MAIN, pool_notes.MADE) == world.pool.uuid


@pytest.mark.parametrize("what", ["unread", "foreign"])
@pytest.mark.parametrize("device", ["origin", "flash"])
def test_anew_refuses_what_it_does_not_know_before_anything(
    world: World, device: str, what: str
) -> None:
    world.prepare()
    world.steps.clear()
    path: Path = getattr(world, device)
    if what == "unread":
        world.is_unread.add(str(path))
    else:
        path.write_bytes(b"something")
    refused(world, "SAN-POOL-027" if what == "unread" else "SAN-POOL-019", world.anew)
    assert world.is_mounted and world.steps == []


def steps_of(world: World, do: Callable[[], object]) -> list[str]:
    world.steps.clear()
    do()
    return sorted(set(world.steps))


def test_a_run_that_is_killed_is_gone_on_with(world: World) -> None:
    for died in steps_of(world, world.prepare):
        for boots in (False, True):
            for device in (world.origin, world.flash):
                world.replace(device)
            for each in (*world.path.iterdir(), *world.notes.iterdir()):
                each.rmdir() if each.is_dir() else each.unlink()
            world.is_mounted = world.is_running = False
            world.dies_before = died
            with pytest.raises(KilledError):
                world.prepare()
            world.dies_before = ""
            if boots:
                world.reboot()
            world.prepare()
            assert world.is_mounted and world.kinds() == {"made", "filesystem"}, died
            pool_files.check_marker(str(world.path), world.pool.uuid)


@pytest.mark.parametrize("release", ["this", "older"])
def test_one_that_makes_it_anew_and_is_killed_is_begun_again(world: World, release: str) -> None:
    """And nothing that was there is mounted on the way, not even by a boot."""
    world.prepare()
    world.write(world.origin, b"xfs0")
    for died in ("half", *steps_of(world, world.anew)):
        (world.path / "old").touch()
        if release == "older":
            pool_notes.clear(MAIN, pool_notes.MADE)
        pool_notes.write(MAIN, pool_notes.WRITE_BACK)
        world.dies_before = died
        world.steps.clear()
        with pytest.raises(KilledError):
            world.anew()
        has_begun = "format" in world.steps
        world.reboot()
        assert not (has_begun and world.is_mounted and (world.path / "old").exists()), died
        world.anew()
        assert world.is_mounted and world.kinds() == {"made", "filesystem"}, died
        assert not (world.path / "old").exists()
        pool_files.check_marker(str(world.path), world.pool.uuid)


def test_a_slow_disk_that_was_replaced_is_not_the_pool_any_more(world: World) -> None:
    """It has the pool's labels, marker and old replicas; a rollout refuses it, too."""
    world.prepare()
    old = world.path / pool_files.FILESYSTEM_ID
    for _ in range(2):
        before = old.read_text() if old.exists() else None
        world.anew()
        pool_files.check_marker(str(world.path), world.pool.uuid)
        now = old.read_text()
        old.unlink() if before is None else old.write_text(before)
        for act in (
            world.prepare,
            lambda: pool_files.check_marker(str(world.path), world.pool.uuid),
        ):
            with pytest.raises(CommandError) as caught:
                act()
            assert codes(caught.value) == ["SAN-POOL-033"]
        old.write_text(now)
        assert world.prepare() == ()


@pytest.mark.parametrize("has_notes", [True, False], ids=["notes made are lost", "installed anew"])
def test_each_filesystem_in_which_the_pool_begins_has_an_id_of_its_own(
    world: World, *, has_notes: bool
) -> None:
    """Also without --anew, where the note has an id of before, and where it has none."""
    identifier = world.path / pool_files.FILESYSTEM_ID
    seen: set[str] = set()
    for number in range(3):
        world.prepare()
        pool_files.check_marker(str(world.path), world.pool.uuid)
        seen.add(identifier.read_text())
        assert len(seen) == number + 1
        for device in (world.origin, world.flash):
            world.replace(device)
        shutil.rmtree(world.path)
        world.path.mkdir()
        world.is_mounted = world.is_running = False
        if has_notes:
            pool_notes.clear(MAIN, pool_notes.MADE)
        else:
            shutil.rmtree(world.notes)


def test_a_node_whose_own_disk_is_new_takes_the_pool_for_what_it_is(world: World) -> None:
    world.prepare()
    world.anew()
    shutil.rmtree(world.notes)
    assert world.prepare() == () and world.kinds() == {"made", "filesystem"}
    pool_files.check_marker(str(world.path), world.pool.uuid)
    # One that has served the pool does not.
    pool_notes.clear(world.pool.uuid, pool_notes.FILESYSTEM)
    with pytest.raises(CommandError, match="SAN-POOL-033"):
        world.prepare()


@pytest.mark.parametrize("lost_at", [1, 2])
def test_a_replica_that_became_the_last_one_since_the_question_stays(
    world: World, lost_at: int
) -> None:
    """The other node's disk dies while the operator thinks, or while the units stop."""
    world.prepare()
    world.write(world.origin, b"xfs0")
    before = world.origin.read_bytes()
    asked: list[bool] = []

    def check() -> None:
        asked.append(world.is_mounted)
        if len(asked) == lost_at:
            raise Refused(Problem("SAN-POOL-020", "device vm1 is not known to be good elsewhere"))

    world.check = check
    with pytest.raises(Refused) as caught:
        world.anew()
    assert caught.value.problems[0].code == "SAN-POOL-020"
    assert world.origin.read_bytes() == before and world.kinds() == {"made", "filesystem"}
    assert asked == [True, False][:lost_at]
    if lost_at == 1:
        assert world.is_mounted
        return
    assert caught.value.problems[1].code == "SAN-POOL-031"
    world.prepare()
    assert world.is_mounted and world.origin.read_bytes() == before


def test_restore_points_are_given_up_before_anything_goes(world: World) -> None:
    """And once the pool is out of use: what is refused before that gives up nothing."""
    world.prepare()
    before = world.origin.read_bytes()
    world.steps.clear()

    def give_up() -> None:
        assert not world.is_mounted and world.kinds() == {"made", "filesystem"}
        world.step("give up")

    world.give_up, world.dies_before = give_up, "give up"
    with pytest.raises(KilledError):
        world.anew()
    assert world.steps == [] and world.origin.read_bytes() == before
    world.dies_before = ""
    world.anew()
    assert world.steps[0] == "give up" and world.steps.count("give up") == 1


def test_points_that_may_be_given_up_are_named_where_nothing_was_discarded(world: World) -> None:
    world.prepare()
    points: list[str] = []

    def give_up() -> None:
        points.extend(f"web@p{number}" for number in range(9))
        raise CommandError(Problem("SAN-CMD-002", "no answer in 60 s"))

    with pytest.raises(CommandError) as caught:
        pool_reformat.clear_pool(
            world.runner,
            world.topology,
            MAIN,
            world.check,
            give_up,
            identifier="5" * 32,
            given_up=points,
        )
    said = caught.value.problems[1]
    assert said.code == "SAN-POOL-031" and "web@p0, web@p1" in said.text
    assert "web@p7 ..., and" in said.text


def test_a_pool_that_is_half_made_anew_does_not_start(world: World) -> None:
    world.prepare()
    pool_notes.write(MAIN, pool_notes.MAKING, world.pool.uuid)
    world.is_mounted = world.is_running = False
    world.steps.clear()
    refused(world, "SAN-POOL-028")
    with pytest.raises(Refused, match="SAN-POOL-028"):
        flash_assembly._refuse_unfinished(world.pool)


def test_what_has_no_effect_is_done_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "mount", lambda self: self.step("mount"))
    with pytest.raises(Refused) as caught:
        world.prepare()
    assert codes(caught.value) == ["SAN-POOL-030"]
    assert world.steps.count("mount") == 1
