# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk that DRBD dropped is attached again, ever more rarely, and only beside good data."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from sanctl.agents.recovery import reattach_disk
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import bcache, drbdadm, drbdsetup, pool_notes
from sanctl.errors import CommandError, Problem
from sanctl.model.cache_policy import CacheMode
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.topology import PoolCache, Topology
from sanctl.system import state_files
from sanctl.system.runner import LocalRunner
from tests.fakes.topology import topology

GOOD = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
DISKLESS = ResourceState("vol", "Secondary", "no", "Diskless", 1024, (GOOD,))
DEVICE = Device(
    name="vol", uuid="0" * 32, size_bytes=0, pool="main", nodes=("n1", "n2"), minor=0, initiators=()
)


@pytest.fixture
def ups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The resources that DRBD was told to bring in line with their files."""
    told: list[str] = []
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(reattach_disk, "load_topology", topology)
    monkeypatch.setattr(pool_notes, "_FOLDER", str(tmp_path))
    monkeypatch.setattr(lost_writes, "data_file", lambda _name: "/pool/devices/vol.0.data")
    monkeypatch.setattr(lost_writes, "is_suspect", lambda _name, _path: False)
    monkeypatch.setattr(drbdadm, "adjust", lambda _runner, name: told.append(name))
    monkeypatch.setattr(
        drbdsetup, "observe", lambda _runner, _name: DISKLESS._replace(disk="Inconsistent")
    )
    return told


def give(state: ResourceState) -> ResourceState:
    return reattach_disk.reattach(LocalRunner(), DEVICE, state)


@pytest.mark.parametrize(
    "state",
    [
        DISKLESS._replace(disk="UpToDate"),
        DISKLESS._replace(peers=()),
        DISKLESS._replace(peers=(GOOD._replace(connection="Connecting", disk="DUnknown"),)),
        DISKLESS._replace(peers=(GOOD._replace(disk="Outdated"),)),
    ],
)
def test_nothing_is_attached_without_good_data_beside_it(
    ups: list[str], state: ResourceState
) -> None:
    assert give(state) is state
    assert ups == []


def test_a_suspect_replica_is_left_alone(ups: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_writes, "is_suspect", lambda _name, _path: True)
    assert give(DISKLESS) is DISKLESS
    assert ups == []


def test_one_that_has_let_go_of_its_files_is_left_alone(
    ups: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_writes, "data_file", lambda _name: None)
    assert give(DISKLESS) is DISKLESS
    assert ups == []


def test_one_whose_pool_has_shut_itself_down_is_left_alone(ups: list[str]) -> None:
    pool_notes.write(DEVICE.pool, pool_notes.SHUT_DOWN)
    assert give(DISKLESS) is DISKLESS
    assert ups == []


def test_it_is_tried_at_once_and_then_ever_more_rarely(ups: list[str], tmp_path: Path) -> None:
    assert give(DISKLESS).disk == "Inconsistent"
    assert give(DISKLESS) is DISKLESS
    assert ups == ["vol"]
    note = tmp_path / "devices/vol/reattach-tried"
    then = time.time() - reattach_disk.wait_s(1) - 1
    os.utime(note, (then, then))
    give(DISKLESS)
    assert ups == ["vol"] * 2
    assert reattach_disk.wait_s(2) == 2 * reattach_disk.wait_s(1)
    assert reattach_disk.wait_s(10**6) == 3600
    state_files.remove_device("vol")
    state_files.remove_device("vol")
    give(DISKLESS)
    assert ups == ["vol"] * 3


def test_old_tries_are_forgotten(ups: list[str], tmp_path: Path) -> None:
    note = tmp_path / "devices/vol/reattach-tried"
    state_files.of_device("vol", "reattach-tried").write("16")
    then = time.time() - 7201
    os.utime(note, (then, then))
    give(DISKLESS)
    assert ups == ["vol"]
    assert note.read_text() == "1"


def test_a_disk_that_still_fails_is_only_told_of(
    ups: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CommandError(Problem("SAN-CMD-003", "I/O error"))

    monkeypatch.setattr(drbdadm, "adjust", refuse)
    assert give(DISKLESS) is DISKLESS
    assert ups == []


GONE = bcache.OriginState("bcache0", False, CacheMode.NONE, True, 0, 0, 0)
BESIDE = GONE._replace(has_flash=True, mode=CacheMode.WRITE_BACK)


def with_flash() -> Topology:
    plain = topology()
    cache = PoolCache(origin=PurePosixPath("/dev/slow"), flash=PurePosixPath("/dev/flash"))
    return replace(plain, pools=tuple(replace(pool, cache=cache) for pool in plain.pools))


@pytest.fixture
def note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ups: list[str]) -> Path:
    """The note that what is on flash is right; whether it is there is told as DRBD attaches."""
    monkeypatch.setattr(reattach_disk, "load_topology", with_flash)
    monkeypatch.setattr(pool_notes, "_FOLDER", str(tmp_path))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    found = tmp_path / "main.write-back"
    found.write_text("")
    monkeypatch.setattr(drbdadm, "adjust", lambda _runner, _name: ups.append(str(found.exists())))
    return found


@pytest.mark.parametrize(
    ("seen", "is_kept"),
    [(GONE, False), (BESIDE, True), (GONE._replace(disk=""), True), (None, True)],
)
@pytest.mark.usefixtures("note")
def test_flash_that_is_gone_is_not_trusted_once_a_copy_is_filled_without_it(
    ups: list[str], monkeypatch: pytest.MonkeyPatch, seen: bcache.OriginState | None, is_kept: bool
) -> None:
    monkeypatch.setattr(bcache, "observe", lambda _origin: seen)
    assert give(DISKLESS).disk == "Inconsistent"
    assert ups == [str(is_kept)]


def refuse(*_args: object, **_kwargs: object) -> None:
    raise OSError(30, "Read-only file system")


@pytest.mark.usefixtures("note")
def test_a_copy_is_not_filled_where_that_cannot_be_noted(
    ups: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bcache, "observe", lambda _origin: GONE)
    monkeypatch.setattr(pool_notes, "clear", refuse)
    assert give(DISKLESS) is DISKLESS
    assert ups == []
