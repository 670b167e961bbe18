# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl-flush.service flushes the files of replicas that are the only good ones."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.agents.cache import flush_unit, only_replica_flush
from sanctl.agents.replica import lost_writes
from sanctl.drivers import drbdsetup, page_cache
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import state_files
from tests.fakes.runner import FakeRunner
from tests.support.doc_samples import ROOT

ALONE = ResourceState("vol1", "Primary", "no", "UpToDate", 1024, ())
PAIR = ALONE._replace(
    peers=(PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0),)
)


class Files:
    """A pool with the data file of vol1, DRBD's state and the flushes that were made."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / f"vol1.{'0' * 32}.data")
        Path(self.path).write_bytes(b"")
        self.state: ResourceState | None = ALONE
        self.held: page_cache.WriteState | None = page_cache.WriteState(False, False)
        self.pools: list[only_replica_flush.PoolFlusher] = []
        self.synced: list[str] = []
        self.fails = False

    def observe_all(self, _runner: object, *, timeout_s: float) -> dict[str, ResourceState]:
        assert timeout_s < only_replica_flush._ASK_EVERY_S
        if self.state is None:
            raise CommandError(Problem("SAN-CMD-001", "no answer"))
        return {"vol1": self.state}

    def fdatasync(self, handle: int) -> None:
        if self.fails:
            raise OSError(5, "Input/output error")
        self.synced.append(os.readlink(f"/proc/self/fd/{handle}"))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    made = Files(tmp_path)
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    monkeypatch.setattr(drbdsetup, "observe_all", made.observe_all)
    monkeypatch.setattr(lost_writes, "data_file", lambda _name: made.path)
    monkeypatch.setattr(page_cache, "observe", lambda _path: made.held)
    monkeypatch.setattr(
        page_cache, "is_buffered", lambda _path: made.held.is_buffered if made.held else None
    )
    monkeypatch.setattr(
        page_cache, "is_synchronous", lambda _path: made.held is not None and made.held[1]
    )
    monkeypatch.setattr(os, "fdatasync", made.fdatasync)

    # The tests call them in this thread.
    def start(pool: only_replica_flush.PoolFlusher) -> None:
        made.pools.append(pool)

    monkeypatch.setattr(only_replica_flush.PoolFlusher, "start", start)
    return made


@pytest.fixture
def flusher(files: Files) -> only_replica_flush.OnlyReplicaFlusher:
    return only_replica_flush.OnlyReplicaFlusher(FakeRunner())


def flush_due(files: Files) -> None:
    for pool in files.pools:
        pool.flush_due()


def grow(files: Files) -> None:
    with open(files.path, "ab") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())


def test_the_file_is_flushed_at_once_and_after_each_write(
    files: Files, flusher: only_replica_flush.OnlyReplicaFlusher
) -> None:
    assert flusher.find_files()
    flush_due(files)
    assert files.synced == [files.path]
    grow(files)
    before = len(files.synced)
    for _ in range(100):
        flush_due(files)
        if len(files.synced) > before:
            return
        time.sleep(0.02)
    pytest.fail("the write was not flushed")


def test_a_file_with_a_replica_in_sync_elsewhere_is_left_alone(
    files: Files, flusher: only_replica_flush.OnlyReplicaFlusher
) -> None:
    files.state = PAIR
    assert flusher.find_files()
    flush_due(files)
    assert files.synced == []
    assert not flusher.is_needed()


@pytest.mark.parametrize(
    "held", [None, page_cache.WriteState(False, True), page_cache.WriteState(True, False)]
)
def test_a_file_in_another_mode_is_left_alone(
    files: Files,
    flusher: only_replica_flush.OnlyReplicaFlusher,
    held: page_cache.WriteState | None,
) -> None:
    files.held = held
    assert flusher.find_files()
    flush_due(files)
    assert files.synced == []
    assert not flusher.is_needed()


def test_silence_of_drbd_is_not_taken_for_two_good_replicas(
    files: Files, flusher: only_replica_flush.OnlyReplicaFlusher
) -> None:
    assert flusher.find_files()
    files.state = None
    assert not flusher.find_files()
    flush_due(files)
    assert files.synced == [files.path]
    assert flusher.is_needed()


def test_a_disk_that_fails_does_not_end_the_service(
    files: Files, flusher: only_replica_flush.OnlyReplicaFlusher
) -> None:
    flusher.find_files()
    files.fails = True
    flush_due(files)
    files.fails = False
    flush_due(files)
    assert files.synced == [files.path]
    os.unlink(files.path)
    flush_due(files)


def test_a_file_that_needs_no_flush_any_more_gets_none_after_a_long_one(
    files: Files, flusher: only_replica_flush.OnlyReplicaFlusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the disk held up the flush of one file, the replicas of both have got in sync."""
    assert flusher.find_files()
    (pool,) = files.pools
    other = f"{files.path}.other"
    Path(other).touch()
    pool.wanted = {files.path: "vol1", other: "vol2"}

    def slow(handle: int) -> None:
        files.fdatasync(handle)
        pool.wanted = {}

    monkeypatch.setattr(os, "fdatasync", slow)
    pool.flush_due()
    assert files.synced == [files.path]
    assert flusher.is_needed(), "it has not looked at the latest answer"
    pool.flush_due()
    assert not flusher.is_needed()


SERVICE = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from sanctl.agents.cache import only_replica_flush
from sanctl.agents.replica import lost_writes
from sanctl.drivers import drbdsetup, page_cache
from sanctl.model.drbd import ResourceState
from sanctl.system import journal, state_files
def observe_all(runner, timeout_s):
    global asked
    asked += 1
    if asked > 1 and what == "DRBD":
        time.sleep(1000)
    return {name: ResourceState(name, "Primary", "no", "UpToDate", 1024, ()) for name in "ab"}
def fdatasync(handle):
    path = os.readlink(f"/proc/self/fd/{handle}")
    if what == "flush" and "/a/" in path:
        time.sleep(1000)
    print(path, flush=True)
def is_synchronous(path):
    if what == "file" and "/a/" in path:
        time.sleep(1000)
    return False
asked, what, state_files.RUNTIME = 0, sys.argv[3], sys.argv[2]
journal.write = lambda message, **fields: None
drbdsetup.observe_all, os.fdatasync = observe_all, fdatasync
lost_writes.data_file = lambda name: f"{sys.argv[2]}/{name}/{name}.data"
page_cache.is_buffered, page_cache.is_synchronous = lambda path: False, is_synchronous
only_replica_flush._ASK_EVERY_S = 0.1
only_replica_flush.main()
"""


@pytest.fixture(params=["flush", "file", "DRBD"])
def flushed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The service over a file in each of two pools; the first one's disk hangs, or DRBD does."""
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.data").touch()
    with subprocess.Popen(
        [sys.executable, "-I", "-c", SERVICE, ROOT, tmp_path, request.param],
        stdout=subprocess.PIPE,
        text=True,
    ) as service:
        limit = threading.Timer(20.0, service.kill)
        limit.start()
        yield service
        limit.cancel()
        service.kill()


def test_what_hangs_holds_up_no_other_pool(flushed: subprocess.Popen[str], tmp_path: Path) -> None:
    """One of a flush, of a look at a file and of DRBD does not return."""
    path = tmp_path / "b/b.data"
    assert flushed.stdout is not None
    for _ in range(3):
        path.write_bytes(os.urandom(1 << 12))
        while (line := flushed.stdout.readline()) != f"{path}\n":
            assert line, "it was not flushed within 20 s"


@pytest.mark.parametrize(("state", "starts"), [(ALONE, True), (PAIR, False)])
def test_a_monitor_starts_the_service_where_it_is_needed(
    files: Files, state: ResourceState, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = FakeRunner()
    flush_unit.start_if_needed(runner, "vol1", state)
    assert bool(runner.calls) is starts
    with state_files.locked(flush_unit.lock_path()):
        flush_unit.start_if_needed(runner, "vol1", state)
    assert len(runner.calls) == int(starts)


def test_of_many_that_ask_together_one_starts_it(files: Files) -> None:
    runner = FakeRunner()
    for _ in range(3):
        flush_unit.start_if_needed(runner, "vol1", ALONE)
    assert len(runner.calls) == 1


def test_what_one_could_not_start_the_next_one_starts(files: Files) -> None:
    """What broke: nineteen handlers relied on a systemctl that had given no answer."""
    silence = CommandError(Problem("SAN-CMD-002", "no answer within 2 s: systemctl"))
    runner = FakeRunner(lambda _argv: silence)
    for _ in range(2):
        flush_unit.start_if_needed(runner, "vol1", ALONE)
    assert len(runner.calls) == 2
