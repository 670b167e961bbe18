# SPDX-License-Identifier: GPL-2.0-or-later
"""What is known of data files decides as a look at all of them would, and takes fewer looks."""

from __future__ import annotations

import errno
import itertools
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sanctl.agents import pool_space
from sanctl.agents.points import known_blocks, room
from sanctl.drivers import pool_files, reflink
from sanctl.errors import CommandError
from sanctl.plan.device.known_blocks import EVERY_S
from sanctl.plan.device.point_room import DataFile, needed_bytes
from sanctl.system import state_files

MIB = 1 << 20
UUIDS = frozenset({"0"})
TOTAL = 1 << 40
HOLE, RESERVED = -1, -2


class Pool:
    """A pool in which each block is 1 MiB: files with the numbers of their blocks."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        for name in ("devices", "points"):
            (folder / name).mkdir(parents=True)
        self.files: dict[str, list[int]] = {}
        self.numbers = itertools.count()
        self.now_s, self.free, self.looks = 1000.0, 0, 0

    def put(self, name: str, blocks: list[int]) -> None:
        self.files[name] = blocks
        with (self.path / name).open("wb") as file:
            file.truncate(len(blocks) * MIB)

    def remove(self, name: str) -> None:
        del self.files[name]
        (self.path / name).unlink()

    def devices(self) -> list[str]:
        return sorted(name for name in self.files if name.startswith("devices/"))

    def points(self) -> list[str]:
        return sorted(name for name in self.files if name.startswith("points/"))

    def blocks_of(self, path: str) -> reflink.FileBlocks:
        """Look at a file."""
        name = path.removeprefix(f"{self.path}/")
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "gone", path)
        others = {number for other, all_ in self.files.items() if other != name for number in all_}
        blocks = self.files[name]
        shared = sum(number >= 0 and number in others for number in blocks)
        reserved = blocks.count(RESERVED)
        own = len(blocks) - blocks.count(HOLE) - reserved - shared
        return reflink.FileBlocks(own * MIB, shared * MIB, reserved * MIB)

    def counted(self, path: str) -> reflink.FileBlocks:
        self.looks += 1
        return self.blocks_of(path)

    def allocated(self, path: str) -> int:
        blocks = self.files[path.removeprefix(f"{self.path}/")]
        return (len(blocks) - blocks.count(HOLE)) * MIB

    def needed(self, wanted: DataFile, without: str) -> int:
        """Return what is needed by a look at all files, as it was before anything was known."""
        found = []
        for name in self.devices():
            if name != without:
                blocks = self.blocks_of(f"{self.path}/{name}")
                size = len(self.files[name]) * MIB
                found.append(DataFile(size, blocks.own, blocks.reserved))
        return needed_bytes(TOTAL, wanted, found)

    def may_share(self, wanted: DataFile, without: str, free: int) -> bool:
        self.free = free
        try:
            room.check("main", str(self.path), wanted, without=(f"{self.path}/{without}",))
        except CommandError:
            return False
        return True


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    made = Pool(tmp_path / "pool")
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    monkeypatch.setattr(reflink, "blocks_of", made.counted)
    monkeypatch.setattr(known_blocks, "allocated_bytes", made.allocated)
    monkeypatch.setattr(
        pool_files,
        "allocated_bytes",
        lambda path, _uuids: sum(made.allocated(f"{path}/{name}") for name in made.devices()),
    )
    monkeypatch.setattr(time, "monotonic", lambda: made.now_s)
    monkeypatch.setattr(
        room.os,  # type: ignore[attr-defined]
        "statvfs",
        lambda _path: SimpleNamespace(f_blocks=TOTAL, f_frsize=1, f_bavail=made.free),
    )
    return made


def alter(pool: Pool, dice: random.Random) -> None:
    """Do one of what hosts, restore points, clones, the pool's monitor and time do to a pool."""
    name = dice.choice(pool.devices())
    blocks = pool.files[name]
    at, length = dice.randrange(len(blocks)), dice.randrange(1, 9)
    kind = dice.choice(["write", "unmap", "reserve", "point", "delete", "clone", "end", "time"])
    if kind == "write":
        blocks[at : at + length] = [next(pool.numbers) for _ in blocks[at : at + length]]
    elif kind == "unmap":
        blocks[at : at + length] = [HOLE for _ in blocks[at : at + length]]
    elif kind == "reserve":
        blocks[:] = [RESERVED if number == HOLE else number for number in blocks]
    elif kind == "point":
        device = name.removeprefix("devices/").removesuffix(".data")
        copy = [number if number >= 0 else HOLE for number in blocks]
        pool.put(f"points/{device}.{next(pool.numbers)}", copy)
    elif kind == "delete" and pool.points():
        pool.remove(dice.choice(pool.points()))
    elif kind == "clone" and pool.points() and len(pool.devices()) < 6:
        new = f"devices/c{next(pool.numbers)}.0"
        pool.put(f"{new}.data", list(pool.files[dice.choice(pool.points())]))
        (pool.path / f"{new}.{pool_files.CLONE_NOTE}").touch()
    elif kind == "end" and len(pool.devices()) > 3:
        pool.remove(name)
        (pool.path / f"{name.removesuffix('.data')}.{pool_files.CLONE_NOTE}").unlink(
            missing_ok=True
        )
    elif kind == "time":
        pool.now_s += dice.choice([1.0, 20.0, EVERY_S])


@pytest.mark.parametrize("seed", range(25))
def test_room_is_decided_as_by_a_look_at_all_files(pool: Pool, seed: int) -> None:
    dice = random.Random(seed)
    for device in range(4):
        pool.put(f"devices/vm{device}.0.data", [next(pool.numbers) for _ in range(24)])
    for _ in range(60):
        alter(pool, dice)
        name = dice.choice(pool.devices())
        wanted = room.of_file(f"{pool.path}/{name}")
        needed = pool.needed(wanted, name)
        missing = dice.choice([1, MIB, 9 * MIB])
        assert not pool.may_share(wanted, name, needed - missing)
        assert pool.may_share(wanted, name, needed + dice.choice([0, MIB]))


@pytest.mark.parametrize("seed", range(25))
def test_no_more_is_called_a_pools_own_than_a_look_at_all_files_says(pool: Pool, seed: int) -> None:
    dice = random.Random(seed)
    for device in range(4):
        pool.put(f"devices/vm{device}.0.data", [next(pool.numbers) for _ in range(24)])
    for _ in range(60):
        alter(pool, dice)
        exact = sum(
            pool.allocated(f"{pool.path}/{name}") - pool.blocks_of(f"{pool.path}/{name}").shared
            for name in pool.devices()
        )
        is_shared = pool.points() or known_blocks.clones(str(pool.path))
        if is_shared:
            assert pool_space.own_bytes("main", str(pool.path), UUIDS) <= exact
            if dice.random() < 0.3:
                pool.now_s += EVERY_S
                assert pool_space.own_bytes("main", str(pool.path), UUIDS) == exact


def test_points_of_fifty_devices_take_two_looks_each(pool: Pool) -> None:
    """Not fifty each: the device's own, and the one of which there is another point since."""
    for device in range(50):
        pool.put(f"devices/vm{device}.0.data", [next(pool.numbers) for _ in range(4)])
    for device in range(50):
        name = f"devices/vm{device}.0.data"
        pool.put(f"points/vm{device}.0.{device}", [])  # empty at first, then the copy
        wanted = room.of_file(f"{pool.path}/{name}")
        assert pool.may_share(wanted, name, TOTAL)
        pool.put(f"points/vm{device}.0.{device}", list(pool.files[name]))
        pool_space.own_bytes("main", str(pool.path), UUIDS)
    assert pool.looks <= 50 + 50 * 2 + 10
    pool.looks = 0
    for _ in range(6):
        pool.now_s += 10.0
        pool_space.own_bytes("main", str(pool.path), UUIDS)
    assert pool.looks <= 50, "each once a minute"


def test_a_copy_that_is_under_way_does_not_count_as_made(pool: Pool) -> None:
    """A look in the middle of it is no look at what it will share."""
    name, point = "devices/vm1.0.data", "points/vm1.0.9"
    pool.put(name, [next(pool.numbers) for _ in range(4)])
    pool.put("devices/vm2.0.data", [next(pool.numbers) for _ in range(4)])
    pool.put(point, [])
    wanted = room.of_file(f"{pool.path}/devices/vm2.0.data")
    assert pool.may_share(wanted, "devices/vm2.0.data", TOTAL)
    pool.put(point, list(pool.files[name]))
    needed = pool.needed(wanted, "devices/vm2.0.data")
    assert not pool.may_share(wanted, "devices/vm2.0.data", needed - 1)


def test_what_is_shared_slice_by_slice_is_looked_at_each_time(pool: Pool) -> None:
    """A copy has its size before it shares anything, and shares more in each moment."""
    name, taking = "devices/vm1.0.data", "points/vm1.0.9.taking"
    pool.put(name, [next(pool.numbers) for _ in range(4)])
    pool.put("devices/vm2.0.data", [next(pool.numbers) for _ in range(4)])
    wanted = room.of_file(f"{pool.path}/devices/vm2.0.data")
    for shared in range(5):
        pool.put(taking, pool.files[name][:shared] + [HOLE] * (4 - shared))
        needed = pool.needed(wanted, "devices/vm2.0.data")
        assert pool.may_share(wanted, "devices/vm2.0.data", needed)
        assert not pool.may_share(wanted, "devices/vm2.0.data", needed - 1), shared


def test_a_full_run_costs_looks_and_nothing_else(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_words: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_files.StateFile, "write", full)
    pool.put("devices/vm1.0.data", [next(pool.numbers) for _ in range(4)])
    pool.put("points/vm1.0.9", list(pool.files["devices/vm1.0.data"]))
    assert pool_space.own_bytes("main", str(pool.path), UUIDS) == 0
    assert pool.may_share(DataFile(MIB, MIB, 0), "", TOTAL)
    assert not pool.may_share(DataFile(MIB, MIB, 0), "", 9)


def test_a_note_that_says_nonsense_is_nothing_known(pool: Pool) -> None:
    pool.put("devices/vm1.0.data", [next(pool.numbers) for _ in range(4)])
    pool.put("points/vm1.0.9", list(pool.files["devices/vm1.0.data"]))
    state_files.of_pool("main", "known-blocks").write("vm1.0.data 1 2\n\nvm1.0.data a b c d e f g")
    assert pool_space.own_bytes("main", str(pool.path), UUIDS) == 0
