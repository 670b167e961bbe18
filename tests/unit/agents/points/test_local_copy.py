# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica's file is copied by a child that is there before, and that ends when the hold does."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from sanctl.agents import cluster_toml
from sanctl.agents.points import room
from sanctl.agents.points.local_copy import LocalCopy
from sanctl.agents.replica import lost_writes
from sanctl.drivers import loop, pool_files, reflink, write_out
from sanctl.errors import CommandError
from sanctl.system import state_files

UUID, TOKEN = "a" * 32, "1" * 16


class Pool:
    """A pool with the device web, of which a copy is made by steps that a test may exchange."""

    def __init__(self, path: Path) -> None:
        (path / "devices").mkdir(parents=True)
        self.data = path / "devices" / f"web.{UUID}.data"
        self.data.write_bytes(b"x" * 4096)
        self.copied = path / "points" / f"web.{UUID}.{TOKEN}.taking"
        self.log = path / "log"
        self.clone: Callable[[int, int], object] = self.copy_all

    def note(self, step: str) -> None:
        """Note a step; the child does so, too."""
        with self.log.open("a") as file:
            file.write(f"{step}\n")

    def noted(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    def copy_file(self, origin: int, copy: int) -> None:
        self.clone(origin, copy)

    def copy_all(self, origin: int, copy: int) -> None:
        self.note("clone")
        os.pwrite(copy, os.pread(origin, 1 << 20, 0), 0)

    def copy_slowly(self, _origin: int, copy: int) -> None:
        while True:
            os.write(copy, b".")
            time.sleep(0.005)


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    made = Pool(tmp_path / "pool")
    found = SimpleNamespace(path=tmp_path / "pool", uuid="u", nodes=(os.uname().nodename,))
    claim = SimpleNamespace(end=lambda: None)
    boot = tmp_path / "boot_id"
    boot.write_text("this boot\n")
    for owner, name, value in (
        (state_files, "RUNTIME", str(tmp_path)),
        (lost_writes, "_BOOT_ID", str(boot)),
        (cluster_toml, "load_topology", lambda: SimpleNamespace(pool=lambda _: found)),
        (pool_files, "check_marker", lambda *_: None),
        (loop, "find", lambda _: "/dev/loop0"),
        (room, "of_file", lambda _: None),
        (room, "claim", lambda *_: claim),
        (reflink, "is_supported", lambda _: True),
        (reflink, "extent_count", lambda _: 3),
        (reflink, "clone", made.copy_file),
        (write_out, "write_out", lambda _: made.note("write-out")),
    ):
        monkeypatch.setattr(owner, name, value)
    state_files.make_folder()
    return made


def copy_of(device: str = "web") -> LocalCopy:
    return LocalCopy("main", device, UUID, TOKEN)


def test_the_copy_is_made_by_a_child_that_was_forked_before(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts do not wait for a fork. What is dirty is written before the file is locked."""
    with copy_of() as copy:
        assert copy.prepare() == 3
        assert pool.noted() == [] and pool.copied.read_bytes() == b""
        monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked in the hold"))
        assert 0 <= copy.take() < 0.5
        assert pool.noted() == ["write-out", "clone"]
        copy.make_stable()
        copy.may_be_known = True
        copy.keep()
    assert pool.copied.with_suffix("").read_bytes() == pool.data.read_bytes()


def test_a_copy_that_takes_too_long_is_ended_and_removed(pool: Pool) -> None:
    """What broke: it went on after the hold, and hosts' writes to the file waited for it."""
    pool.clone = pool.copy_slowly
    with copy_of() as copy:
        copy.prepare()
        begin = time.monotonic()
        with pytest.raises(CommandError, match="SAN-SNAP-007"):
            copy.take(within_s=0.1)
        assert time.monotonic() - begin < 5
        deadline = time.monotonic() + 10
        done = -1
        while done != (done := pool.copied.stat().st_size) or not done:
            assert time.monotonic() < deadline, "it goes on"
            time.sleep(0.1)
    assert not pool.copied.exists()


def test_a_copy_ends_where_nobody_waits_for_it(pool: Pool) -> None:
    pool.clone = pool.copy_slowly
    reading, writing = os.pipe()
    with copy_of() as copy:
        copy.prepare()
        os.close(writing)
        begin = time.monotonic()
        with pytest.raises(CommandError, match="SAN-SNAP-007"):
            copy.take(within_s=30.0, unless_readable=reading)
        assert time.monotonic() - begin < 10
    os.close(reading)
    assert not pool.copied.exists()


def test_an_interrupted_wait_leaves_no_copy_that_goes_on(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alarm at the end of the hold is an exception, wherever it comes."""
    pool.clone = pool.copy_slowly
    with copy_of() as copy:
        copy.prepare()
        call = copy._call
        assert call is not None
        monkeypatch.setattr(call, "errno_of", lambda **_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            copy.take(within_s=30.0)
        monkeypatch.undo()
        assert call.errno_of(within_s=10.0) == errno.EIO, "it was not killed"


def test_a_copy_that_the_filesystem_refuses_is_removed(pool: Pool) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    pool.clone = refuse
    with copy_of() as copy:
        copy.prepare()
        with pytest.raises(OSError, match=TOKEN) as refused:
            copy.take()
    assert refused.value.errno == errno.ENOSPC and not pool.copied.exists()


@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize("where", ["before", "in the hold"])
def test_writes_that_were_lost_meanwhile_make_a_replica_in_write_back_suspect(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, where: str, *, is_marked: bool
) -> None:
    """What broke: the kernel told the restore point of it, and no flush after that."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "lost")

    if is_marked:
        lost_writes.set_marker(str(pool.data))
    with copy_of() as copy:
        if where == "before":
            monkeypatch.setattr(os, "fdatasync", fail)
            with pytest.raises(OSError, match="lost"):
                copy.prepare()
        else:
            monkeypatch.setattr(write_out, "write_out", fail)
            copy.prepare()
            with pytest.raises(OSError, match=TOKEN):
                copy.take()
    assert lost_writes.is_suspect("web", str(pool.data)) is is_marked
    assert pool.noted() == [] and not pool.copied.exists()


@pytest.mark.parametrize(("extents", "is_made"), [(8000, True), (8001, False)])
def test_where_the_filesystem_does_not_tell_the_whole_file_is_copied_in_the_hold(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, extents: int, *, is_made: bool
) -> None:
    """An empty copy then: what breaks off in the middle is seen by its size alone."""
    monkeypatch.setattr(reflink, "extent_count", lambda _: extents)
    monkeypatch.setattr(reflink, "is_synchronous", lambda _: False)
    monkeypatch.setattr(reflink, "written_blocks", lambda *_, **__: None)
    with copy_of() as copy:
        if not is_made:
            with pytest.raises(CommandError, match=r"SAN-SNAP-002.*at most 8000"):
                copy.prepare()
            return
        copy.prepare()
        assert pool.copied.stat().st_size == 0
        copy.take()
        copy.make_stable()
    assert pool.noted() == ["write-out", "clone"]


@pytest.mark.parametrize("is_same", [True, False])
def test_a_copy_made_ahead_counts_where_it_is_the_files_content_in_the_hold(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, *, is_same: bool
) -> None:
    blocks = [(0, 4096, 4096)]
    monkeypatch.setattr(reflink, "extent_count", lambda _: 9000)
    monkeypatch.setattr(reflink, "is_synchronous", lambda _: False)
    monkeypatch.setattr(reflink, "written_blocks", lambda *_, **__: blocks)
    monkeypatch.setattr(write_out, "write_range", lambda *_: None)
    monkeypatch.setattr(reflink, "clone_range", lambda *_: None)
    with copy_of() as copy:
        copy.prepare()
        copy.take()
        if not is_same:
            blocks[0] = (0, 8192, 4096)
            with pytest.raises(CommandError, match="SAN-SNAP-021"):
                copy.make_stable()
            return
        copy.make_stable()
        copy.may_be_known = True
    assert pool.copied.stat().st_size == 4096 and pool.noted() == ["write-out"]
