"""A disk that DRBD dropped is attached again, ever more rarely, and only beside good data."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sanctl.agents import reattach, suspicion
from sanctl.agents.replica import Device
from sanctl.drivers import drbd
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system.runner import LocalRunner

GOOD = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
DISKLESS = ResourceState("vol", "Secondary", "no", "Diskless", 1024, (GOOD,))
DEVICE = Device(
    name="vol", uuid="0" * 32, size_bytes=0, pool="main", nodes=("n1", "n2"), minor=0, initiators=()
)


@pytest.fixture
def ups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The resources that DRBD was told to bring in line with their files."""
    told: list[str] = []
    monkeypatch.setattr(reattach, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(suspicion, "data_file", lambda _name: None)
    monkeypatch.setattr(suspicion, "is_suspect", lambda _name, _path: False)
    monkeypatch.setattr(drbd, "up", lambda _runner, name: told.append(name))
    monkeypatch.setattr(
        drbd, "observe", lambda _runner, _name: DISKLESS._replace(disk="Inconsistent")
    )
    return told


def give(state: ResourceState) -> ResourceState:
    return reattach.reattach(LocalRunner(), DEVICE, state)


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
    monkeypatch.setattr(suspicion, "is_suspect", lambda _name, _path: True)
    assert give(DISKLESS) is DISKLESS
    assert ups == []


def test_it_is_tried_at_once_and_then_ever_more_rarely(ups: list[str], tmp_path: Path) -> None:
    assert give(DISKLESS).disk == "Inconsistent"
    assert give(DISKLESS) is DISKLESS
    assert ups == ["vol"]
    note = tmp_path / "attached-vol"
    then = time.time() - reattach.wait_s(1) - 1
    os.utime(note, (then, then))
    give(DISKLESS)
    assert ups == ["vol"] * 2
    assert reattach.wait_s(2) == 2 * reattach.wait_s(1)
    assert reattach.wait_s(10**6) == 3600
    reattach.forget(DEVICE)
    reattach.forget(DEVICE)
    give(DISKLESS)
    assert ups == ["vol"] * 3


def test_old_tries_are_forgotten(ups: list[str], tmp_path: Path) -> None:
    note = tmp_path / "attached-vol"
    note.write_text("16")
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

    monkeypatch.setattr(drbd, "up", refuse)
    assert give(DISKLESS) is DISKLESS
    assert ups == []
