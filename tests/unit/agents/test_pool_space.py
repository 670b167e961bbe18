# SPDX-License-Identifier: GPL-2.0-or-later
"""Which files of a pool get blocks reserved, in which order; the history of the pool's use."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.agents import pool_space
from sanctl.drivers import loop, pool_files, pool_notes, reflink, space_reservation
from sanctl.errors import CommandError, Problem
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner

HOUR = 3600
DELETED = f"vm2.{'0' * 32}"
UUIDS = frozenset({"1"})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The files for which blocks were reserved; the pool is at `tmp_path`."""
    folder = tmp_path / "devices"
    folder.mkdir()
    for name in ("vm1.1.data", "vm1.1.meta", "vm1.1.sync", "vm1.1.meta.new", f"{DELETED}.data"):
        with (folder / name).open("wb") as file:
            file.truncate(1 << 20)
    found: list[str] = []

    def reserve(_runner: object, path: str, **_limits: object) -> bool:
        found.append(path.removeprefix(f"{folder}/"))
        return True

    monkeypatch.setattr(space_reservation, "reserve", reserve)
    return found


def reserve(tmp_path: Path, *more: str) -> None:
    usable = {name: f"{tmp_path}/{name}" for name in more} | {"main": str(tmp_path)}
    pool_space.reserve_device_files(LocalRunner(), usable, without=frozenset({DELETED}))


def test_metadata_comes_first_and_deleted_devices_get_nothing(
    asked: list[str], tmp_path: Path
) -> None:
    reserve(tmp_path)
    assert asked == ["vm1.1.meta", "vm1.1.data"]


def test_a_pool_without_devices(asked: list[str], tmp_path: Path) -> None:
    reserve(tmp_path, "empty")
    assert len(asked) == 2


@pytest.mark.parametrize(
    "error",
    [CommandError(Problem("SAN-CMD-003", "fallocate: EIO")), OSError(errno.EIO, "I/O error")],
)
def test_an_error_of_one_pool_is_logged_and_the_others_are_served(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(journal, "write", lambda text, **_more: logged.append(text))
    fails = iter([error])
    real = space_reservation.unreserved_bytes

    def unreserved_bytes(path: str) -> int:
        for one in fails:
            raise one
        return real(path)

    monkeypatch.setattr(space_reservation, "unreserved_bytes", unreserved_bytes)
    usable = {"bad": str(tmp_path), "main": str(tmp_path)}
    pool_space.reserve_device_files(LocalRunner(), usable)
    assert len(logged) == 1 and logged[0].startswith("pool bad: blocks could not be reserved")
    assert asked == ["vm1.1.meta", "vm1.1.data", f"{DELETED}.data"]


def test_a_file_that_is_removed_meanwhile_is_passed_over(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reserve_gone(_runner: object, path: str, **_limits: object) -> bool:
        asked.append(path)
        raise FileNotFoundError(path)

    monkeypatch.setattr(space_reservation, "reserve", reserve_gone)
    reserve(tmp_path)
    assert len(asked) == 2


def test_the_growth_is_that_of_the_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pool_notes, "_FOLDER", str(tmp_path / "pools"))
    now = 1_800_000_000.0

    def growth(used: int) -> int | None:
        return pool_space.daily_growth("main", total_bytes=100, free_bytes=100 - used)

    monkeypatch.setattr(time, "time", lambda: now)
    assert growth(10) is None
    now += 12 * HOUR
    assert growth(15) == 10
    now += 60
    assert growth(99) == 10, "once an hour, so that the CIB does not change with each monitor"


def test_a_node_whose_own_disk_is_full_keeps_no_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pool_notes, "_FOLDER", str(tmp_path / "pools"))

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pool_notes, "write", full)
    assert pool_space.daily_growth("main", total_bytes=100, free_bytes=50) is None


def test_clones_share_blocks_also_without_a_restore_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "devices"
    folder.mkdir()
    (folder / "vm1.1.data").write_bytes(b"x" * 8192)
    asked: list[str] = []

    def blocks_of(path: str) -> reflink.FileBlocks:
        asked.append(path)
        return reflink.FileBlocks(own=0, shared=8192, reserved=0)

    monkeypatch.setattr(reflink, "blocks_of", blocks_of)
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    allocated = pool_files.allocated_bytes(str(tmp_path), UUIDS)
    assert pool_space.own_bytes("main", str(tmp_path), UUIDS) == allocated
    assert asked == [], "it takes time, and nothing is shared"
    (folder / "vm1.1.origin").touch()
    assert pool_space.own_bytes("main", str(tmp_path), UUIDS) == allocated - 8192
    assert pool_space.own_bytes("main", str(tmp_path), UUIDS) == allocated - 8192
    assert len(asked) == 1, "looked at once a minute"
    assert pool_space.own_bytes("gone", str(tmp_path / "gone"), UUIDS) == 0
    (folder / "vm1.1.origin").unlink()
    exported = f"{tmp_path}/points/vm1.{'a' * 32}.{'1' * 16}"
    monkeypatch.setattr(loop, "backing_files", lambda: [exported])
    assert pool_space.own_bytes("main", str(tmp_path), UUIDS) == allocated - 8192, (
        "deleted, and read"
    )


def test_files_that_are_promised_nothing_are_not_written_of_what_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a dropped replica, which are kept: the next device was promised their room again."""
    folder = tmp_path / "devices"
    folder.mkdir()
    for name in ("vm1.1.data", "vm1.1.meta", f"{DELETED}.data", f"{DELETED}.meta", "backup", "1"):
        (folder / name).write_bytes(b"x" * 8192)
    shared = reflink.FileBlocks(own=4096, shared=4096, reserved=0)
    monkeypatch.setattr(reflink, "blocks_of", lambda _path: shared)
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    assert pool_space.own_bytes("main", str(tmp_path), UUIDS) == 16384
    assert pool_space.own_bytes("main", str(tmp_path), frozenset()) == 0
    for stem in ("vm1.1", DELETED):
        (folder / f"{stem}.origin").touch()
    # Nor is what they share taken off.
    assert pool_space.own_bytes("main", str(tmp_path), UUIDS) == 8192
    both = UUIDS | {DELETED.partition(".")[2]}
    assert pool_space.own_bytes("main", str(tmp_path), both) == 16384


def test_a_file_that_goes_while_it_is_counted_counts_for_nothing(tmp_path: Path) -> None:
    """A note of a device's monitor. It was an error of the pool."""
    folder = tmp_path / "devices"
    folder.mkdir()
    (folder / "vm1.1.data").write_bytes(b"x" * 8192)
    real = os.scandir

    @contextlib.contextmanager
    def scandir(path: str) -> Iterator[list[os.DirEntry[str]]]:
        (folder / "vm1.1.sync").write_text("x" * 8192)
        with real(path) as entries:
            found = list(entries)
        (folder / "vm1.1.sync").unlink()
        yield found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        assert pool_files.allocated_bytes(str(tmp_path), UUIDS) == 8192
