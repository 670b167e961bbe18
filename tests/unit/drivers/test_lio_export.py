# SPDX-License-Identifier: GPL-2.0-or-later
"""What an interrupted export leaves goes with those that are whole; with LIO as empty folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.replica import parts
from sanctl.agents.replica.parts import Device
from sanctl.drivers import lio_export, loop

UUID = "a" * 32
POINT = f"/srv/main/points/vm1.{UUID}.{'1' * 16}"
OTHER = f"/srv/fast/points/vm2.{UUID}.{'2' * 16}"
DATA = f"/srv/main/devices/vm1.{UUID}.data"


@pytest.fixture
def detached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(lio_export, "_BACKSTORES", str(tmp_path / "core"))
    monkeypatch.setattr(lio_export, "_ROOT", str(tmp_path))
    others = [OTHER, "/home/u/points/disk.img"]
    monkeypatch.setattr(loop, "backing_files", lambda: [DATA, POINT, *others])
    monkeypatch.setattr(loop, "detach", found.append)
    return found


def test_a_loop_device_that_no_export_names_goes(detached: list[str]) -> None:
    assert lio_export.remove_below("/srv/main") == []
    assert detached == [POINT]
    lio_export.remove_below("")
    assert detached[1:] == [POINT, OTHER]


def test_a_half_made_export_is_listed_and_removed(detached: list[str], tmp_path: Path) -> None:
    (tmp_path / "core/sanctl-point.vm1.kept").mkdir(parents=True)
    (tmp_path / "core/somebody-elses").mkdir()
    (half,) = lio_export.listed()
    assert (half.device, half.point, half.iqn, half.file) == ("vm1", "kept", "", "")
    assert lio_export.remove("vm1", "kept") and not lio_export.remove("vm1", "kept")
    assert detached == [] and (tmp_path / "core/somebody-elses").is_dir()


def test_a_replica_takes_no_file_of_a_restore_point_for_its_own(detached: list[str]) -> None:
    device = Device("vm1", UUID, 1, "main", ("n1", "n2"), 1, ())
    assert parts.attached_files(device) == [DATA] and detached == []
