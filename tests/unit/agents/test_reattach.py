"""A replica whose disk was dropped with the pool's flash is attached once for each loss."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sanctl.agents import cache, reattach
from sanctl.agents.replica import Device
from sanctl.drivers import drbd
from sanctl.model.drbd import ResourceState
from sanctl.system.runner import LocalRunner

DEVICE = Device("vm1", "0" * 32, 1 << 20, "main", ("n1", "n2"), 1, ())
DISKLESS = ResourceState("vm1", "Secondary", "no", "Diskless", 1024, ())
RUNNER = LocalRunner()


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    done: list[str] = []
    monkeypatch.setattr(reattach, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(cache, "tell", lambda *_: None)
    monkeypatch.setattr(drbd, "attach", lambda _runner, name: done.append(name))
    monkeypatch.setattr(drbd, "observe", lambda *_: DISKLESS._replace(disk="UpToDate"))
    return done


def lose_flash(folder: Path, at_s: float) -> None:
    note = folder / "pool-main.flash-lost"
    note.touch()
    os.utime(note, (at_s, at_s))


def test_a_disk_that_failed_by_itself_is_left(attached: list[str]) -> None:
    assert reattach.attach_again(RUNNER, DEVICE, DISKLESS) is DISKLESS
    assert attached == []


def test_it_is_attached_once_for_each_loss(attached: list[str], tmp_path: Path) -> None:
    lose_flash(tmp_path, 1000.0)
    assert reattach.attach_again(RUNNER, DEVICE, DISKLESS).disk == "UpToDate"
    reattach.attach_again(RUNNER, DEVICE, DISKLESS)
    assert attached == ["vm1"]
    lose_flash(tmp_path, 4e9)
    reattach.attach_again(RUNNER, DEVICE, DISKLESS)
    assert attached == ["vm1", "vm1"]


def test_one_that_has_its_disk_is_not_touched(attached: list[str], tmp_path: Path) -> None:
    lose_flash(tmp_path, 1000.0)
    good = DISKLESS._replace(disk="UpToDate")
    assert reattach.attach_again(RUNNER, DEVICE, good) is good
    assert attached == []
