# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies that are made at once in one pool have room for all of them, or are not made."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from sanctl.agents import cluster_toml
from sanctl.agents.points import known_blocks, room, room_claims
from sanctl.agents.points.local_copy import LocalCopy
from sanctl.drivers import loop, pool_files, reflink
from sanctl.errors import CommandError
from sanctl.plan.device.point_room import ClaimedFile, DataFile, needed_bytes, with_claims
from sanctl.system import process_start, state_files

MIB = 1 << 20
SIZE, TOTAL = 4 * MIB, 1 << 40
UUID = "a" * 32
WRITTEN = DataFile(SIZE, SIZE, 0)
#: Room for a copy of one of two devices.
ROOM_FOR_ONE = needed_bytes(TOTAL, WRITTEN, [WRITTEN])
TAKEN = ClaimedFile(f"db.{UUID}.data", SIZE)


class Pool:
    """A pool with the devices db and web, whose blocks are all written."""

    def __init__(self, path: Path) -> None:
        self.path, self.free = path, ROOM_FOR_ONE
        (path / "devices").mkdir(parents=True)
        for name in ("db", "web"):
            with self.data(name).open("wb") as file:
                file.truncate(SIZE)

    def data(self, name: str) -> Path:
        return self.path / "devices" / f"{name}.{UUID}.data"

    def blocks_of(self, path: str) -> reflink.FileBlocks:
        device = Path(path).name.partition(".")[0]
        is_shared = any(file.stat().st_size for file in self.path.glob(f"points/{device}.*"))
        return reflink.FileBlocks(0 if is_shared else SIZE, SIZE if is_shared else 0, 0)

    def copy(self, name: str, token: str = "1" * 16) -> LocalCopy:
        return LocalCopy("main", name, UUID, token)

    def points(self) -> list[str]:
        return sorted(file.name for file in (self.path / "points").iterdir())


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    made = Pool(tmp_path / "pool")
    found = SimpleNamespace(path=made.path, uuid="u", nodes=(os.uname().nodename,))
    status = SimpleNamespace(f_blocks=TOTAL, f_frsize=1)

    def clone(origin: int, copy: int) -> None:
        os.ftruncate(copy, os.fstat(origin).st_size)

    for owner, name, value in (
        (cluster_toml, "load_topology", lambda: SimpleNamespace(pool=lambda _: found)),
        (pool_files, "check_marker", lambda *_: None),
        (reflink, "is_supported", lambda _: True),
        (reflink, "extent_count", lambda _: 1),
        (reflink, "blocks_of", made.blocks_of),
        (reflink, "clone", clone),
        (known_blocks, "allocated_bytes", lambda _: SIZE),
        (loop, "find", lambda _: "/dev/loop0"),
        (os, "statvfs", lambda _: SimpleNamespace(**vars(status), f_bavail=made.free)),
    ):
        monkeypatch.setattr(owner, name, value)
    return made


def test_of_two_at_once_the_second_finds_no_room(pool: Pool) -> None:
    """What broke: both passed, and what hosts wrote to both filled the pool."""
    with pool.copy("db") as first, pool.copy("web") as second:
        first.prepare()
        with pytest.raises(CommandError, match=r"SAN-SNAP-003: .* made now among them"):
            second.prepare()
        assert len(pool.points()) == 1
        first.take()
        # Until it is on the disk it is counted twice, if at all.
        with pytest.raises(CommandError, match="SAN-SNAP-003"):
            second.prepare()
        first.make_stable()
        assert room_claims.present("main") == ()
        with pytest.raises(CommandError, match="SAN-SNAP-003") as refused:
            second.prepare()
        assert refused.value.problems[0].text.endswith("share"), "seen by its blocks"
    assert pool.points() == []


def test_one_that_was_not_made_is_counted_no_longer(pool: Pool) -> None:
    with pool.copy("db") as first:
        first.prepare()
        assert room_claims.present("main") == (TAKEN,)
        assert room_claims.present("fast") == ()
    with pool.copy("web") as second:
        second.prepare()
    assert room_claims.present("main") == ()


def test_with_room_for_both_both_are_made(pool: Pool) -> None:
    shared = with_claims([(TAKEN.name, WRITTEN)], (TAKEN,))
    pool.free = needed_bytes(TOTAL, WRITTEN, shared, (TAKEN,))
    with pool.copy("db") as first, pool.copy("web") as second:
        first.prepare()
        second.prepare()


@pytest.mark.parametrize("owner", [f"{os.getpid()}:1", "999999999:5", "999999999:", "nobody"])
def test_what_a_dead_process_has_left_counts_for_nothing(pool: Pool, owner: str) -> None:
    left = state_files.of_node("room-claim.7-x")
    left.write(f"{owner} main {TAKEN.name} {SIZE}")
    with pool.copy("web") as copy:
        copy.prepare()
    assert not left.exists()


def test_what_a_process_that_runs_has_noted_and_cannot_be_read(pool: Pool) -> None:
    pid = os.getpid()
    odd = state_files.of_node("room-claim.7-x")
    odd.write(f"{pid}:{process_start.ticks(pid)} main as a later release writes it")
    with pool.copy("web") as copy, pytest.raises(CommandError, match="SAN-SNAP-019"):
        copy.prepare()
    assert pool.points() == []


def test_without_room_for_the_note_nothing_is_made(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(state_files.StateFile, "write", full)
    # What is known of blocks is noted, too, and is not needed.
    with pool.copy("web") as copy, pytest.raises(CommandError, match=r"SAN-SNAP-019: .*No space"):
        copy.prepare()
    monkeypatch.setattr(state_files, "locked", full)
    with pool.copy("web") as copy, pytest.raises(CommandError, match=r"SAN-SNAP-019: .*No space"):
        copy.prepare()
    assert pool.points() == []


def test_another_process_that_hangs_is_waited_for_no_longer(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_claims, "_LOCK_S", 0.05)
    with (
        state_files.locked(state_files.pool_lock("main", "room")),
        pool.copy("web") as copy,
        pytest.raises(CommandError, match="SAN-SNAP-019"),
    ):
        copy.prepare()


def test_a_pool_that_cannot_be_read_is_said_as_before(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "no disk")

    monkeypatch.setattr(room, "check", broken)
    with pool.copy("web") as copy, pytest.raises(OSError, match="no disk"):
        copy.prepare()


def test_what_is_being_made_counts_as_shared_and_what_is_not_there_yet_too() -> None:
    half = DataFile(SIZE, SIZE // 2, SIZE // 4)
    new = ClaimedFile(f"clone.{UUID}.data", 8 * MIB)
    files = [(TAKEN.name, half), ("other.data", half)]
    assert list(with_claims(files, (TAKEN, new))) == [
        half._replace(own=0),
        half,
        DataFile(8 * MIB, 0, 0),
    ]
