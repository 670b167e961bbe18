# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl-flush.service flushes the files of replicas that are the only good ones."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sanctl.agents.cache import flush_unit, only_replica_flush
from sanctl.agents.replica import lost_writes
from sanctl.drivers import drbdsetup, page_cache
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import state_files
from tests.fakes.runner import FakeRunner

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
        self.synced: list[str] = []
        self.fails = False

    def observe_all(self, _runner: object) -> dict[str, ResourceState]:
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
    monkeypatch.setattr(drbdsetup, "observe_all", made.observe_all)
    monkeypatch.setattr(lost_writes, "data_file", lambda _name: made.path)
    monkeypatch.setattr(page_cache, "observe", lambda _path: made.held)
    monkeypatch.setattr(os, "fdatasync", made.fdatasync)
    return made


@pytest.fixture
def flusher(files: Files) -> only_replica_flush.OnlyReplicaFlusher:
    return only_replica_flush.OnlyReplicaFlusher(FakeRunner())


def grow(files: Files) -> None:
    with open(files.path, "ab") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())


def test_the_file_is_flushed_at_once_and_after_each_write(
    files: Files, flusher: only_replica_flush.OnlyReplicaFlusher
) -> None:
    assert flusher.find_files()
    flusher.flush_due()
    assert files.synced == [files.path]
    grow(files)
    before = len(files.synced)
    for _ in range(100):
        flusher.flush_due()
        if len(files.synced) > before:
            return
        time.sleep(0.02)
    pytest.fail("the write was not flushed")


def test_a_file_with_a_replica_in_sync_elsewhere_is_left_alone(
    files: Files, flusher: only_replica_flush.OnlyReplicaFlusher
) -> None:
    files.state = PAIR
    assert not flusher.find_files()
    flusher.flush_due()
    assert files.synced == []


@pytest.mark.parametrize(
    "held", [None, page_cache.WriteState(False, True), page_cache.WriteState(True, False)]
)
def test_a_file_in_another_mode_is_left_alone(
    files: Files,
    flusher: only_replica_flush.OnlyReplicaFlusher,
    held: page_cache.WriteState | None,
) -> None:
    files.held = held
    assert not flusher.find_files()


def test_silence_of_drbd_is_not_taken_for_two_good_replicas(
    files: Files, flusher: only_replica_flush.OnlyReplicaFlusher
) -> None:
    assert flusher.find_files()
    files.state = None
    assert flusher.find_files()
    flusher.flush_due()
    assert files.synced == [files.path]


def test_a_disk_that_fails_does_not_end_the_service(
    files: Files, flusher: only_replica_flush.OnlyReplicaFlusher
) -> None:
    flusher.find_files()
    files.fails = True
    flusher.flush_due()
    files.fails = False
    flusher.flush_due()
    assert files.synced == [files.path]
    os.unlink(files.path)
    flusher.flush_due()


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
