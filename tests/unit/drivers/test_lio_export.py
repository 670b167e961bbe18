# SPDX-License-Identifier: GPL-2.0-or-later
"""What an interrupted export leaves goes with those that are whole; with LIO as empty folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sanctl.agents.replica import device_files
from sanctl.agents.replica.parts import Device
from sanctl.drivers import configfs, lio_export, loop
from sanctl.drivers.lio_export import NewExport
from sanctl.errors import Refused

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


@pytest.fixture
def earlier(detached: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A backstore of an earlier restore point vm1@kept, whose target is made but has no LUN."""
    backstore, target = tmp_path / "core/sanctl-point.vm1.kept", tmp_path / "iscsi/iqn.x:vm1.kept"
    backstore.mkdir(parents=True)
    (target / "tpgt_2/lun").mkdir(parents=True)
    for name, text in (("enable", "1"), ("udev_path", "/dev/loop7"), ("alias", target.name)):
        (backstore / name).write_text(text)
    monkeypatch.setattr(loop, "file_below", lambda device: OTHER if device == "/dev/loop7" else "")
    return backstore


@pytest.mark.parametrize("file", [DATA, f"{DATA.removesuffix('.data')}.meta", "/home/u/disk.img"])
def test_a_loop_device_that_has_another_file_by_now_stays(
    earlier: Path, detached: list[str], monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """The backstore names a number: the kernel gives it to the next file."""
    monkeypatch.setattr(loop, "file_below", lambda _device: file)
    monkeypatch.setattr(lio_export, "_target_of", lambda _backstore: "")
    rmdir = os.rmdir

    def rmdir_of_configfs(path: str) -> None:
        for each in Path(path).iterdir():
            each.unlink()
        rmdir(path)

    monkeypatch.setattr(os, "rmdir", rmdir_of_configfs)
    assert lio_export.remove("vm1", "kept") and detached == []
    assert not earlier.exists()
    earlier.mkdir()
    monkeypatch.setattr(loop, "file_below", lambda _device: POINT)
    assert lio_export.remove("vm1", "kept") and detached == [POINT]


def wanted(file: str) -> NewExport:
    return NewExport("vm1", "kept", file, "iqn.x:vm1.kept", "a" * 32, 2, (), {})


def test_an_earlier_point_of_the_name_is_not_exported_as_the_later_one(
    earlier: Path, tmp_path: Path
) -> None:
    lun = tmp_path / "iscsi/iqn.x:vm1.kept/tpgt_2/lun/lun_0"
    lun.mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Refused) as caught:
        lio_export.create(wanted(POINT), max)
    assert caught.value.problems[0].code == "SAN-EXP-008"
    assert OTHER in caught.value.problems[0].text
    assert sorted(tmp_path.rglob("*")) == before
    # The same one goes on as it is.
    lio_export._end_earlier(str(earlier), wanted(OTHER))


@pytest.mark.parametrize("is_enabled", [True, False])
def test_what_is_left_of_an_earlier_point_without_a_lun_is_removed(
    earlier: Path, monkeypatch: pytest.MonkeyPatch, *, is_enabled: bool
) -> None:
    removed: list[tuple[str, str]] = []

    def remove(*words: str) -> bool:
        removed.append((words[0], words[1]))
        return True

    monkeypatch.setattr(lio_export, "remove", remove)
    (earlier / "enable").write_text(str(int(is_enabled)))
    lio_export._end_earlier(str(earlier), wanted(OTHER))
    assert removed == []
    lio_export._end_earlier(str(earlier), wanted(POINT))
    assert removed == [("vm1", "kept")]
    # One of which nothing is known: of use only while it is not enabled.
    (earlier / "udev_path").write_text("")
    lio_export._end_earlier(str(earlier), wanted(POINT))
    assert removed == [("vm1", "kept")] * (2 if is_enabled else 1)
    lio_export._end_earlier(f"{earlier}x", wanted(POINT))


def test_a_replica_takes_no_file_of_a_restore_point_for_its_own(detached: list[str]) -> None:
    device = Device("vm1", UUID, 1, "main", ("n1", "n2"), 1, ())
    assert device_files.attached(device) == [DATA] and detached == []


def test_the_serial_is_written_last(
    earlier: Path, detached: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the test for "all are set": without emulate_pr 0 hosts could reserve a point."""
    (earlier / "wwn").mkdir()
    (earlier / "wwn/vpd_unit_serial").write_text("T10 VPD Unit Serial Number: \n")
    written: list[str] = []

    def write(path: str, _: str) -> None:
        written.append(path.removeprefix(f"{earlier}/"))

    monkeypatch.setattr(configfs, "write", write)
    monkeypatch.setattr(configfs, "set_value", write)
    lio_export._create_backstore(wanted(OTHER))
    assert "attrib/emulate_pr" in written and written[-1] == "wwn/vpd_unit_serial"
