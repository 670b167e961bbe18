# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's backstore: limits read from LIO's attributes, and the order of what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.drivers import lio_backstore
from sanctl.model.reservation import Reservations


@pytest.mark.parametrize(
    ("atomic", "is_long"),
    [(None, True), ("0\n", False), ("128\n", True)],
    ids=["an older kernel", "no atomic writes", "atomic writes"],
)
def test_limits_are_set_where_hosts_read_them(
    tmp_path: Path, atomic: str | None, is_long: bool
) -> None:
    (tmp_path / "attrib").mkdir()
    if atomic is not None:
        (tmp_path / "attrib" / "atomic_max_len").write_text(atomic)
    assert lio_backstore.has_full_block_limits_page(str(tmp_path)) is is_long


@pytest.mark.parametrize(("most", "told"), [(2560, 2048), (2048, 2048), (1024, 1024)])
def test_the_optimal_length_is_one_mebibyte_unless_the_device_takes_less(
    tmp_path: Path, most: int, told: int
) -> None:
    (tmp_path / "attrib").mkdir()
    (tmp_path / "attrib" / "hw_max_sectors").write_text(f"{most}\n")
    assert lio_backstore.optimal_blocks(str(tmp_path)) == told


def written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reservations: Reservations | None
) -> list[str]:
    """Return the attributes of a new backstore in the order in which they are written."""
    monkeypatch.setattr(lio_backstore, "_ROOT", str(tmp_path))
    backstore = Path(lio_backstore.folder("vm1", 1))
    for folder in ("attrib", "wwn"):
        (backstore / folder).mkdir(parents=True)
    (backstore / "enable").write_text("1\n")
    (backstore / "attrib/hw_max_sectors").write_text("2560\n")
    (backstore / "wwn/vpd_unit_serial").write_text("T10 VPD Unit Serial Number: \n")
    found: list[str] = []

    def write(path: str, _: str) -> None:
        found.append(path.removeprefix(f"{backstore}/"))

    monkeypatch.setattr("sanctl.drivers.configfs.write", write)
    monkeypatch.setattr("sanctl.drivers.configfs.set_value", write)
    lio_backstore.create(
        "vm1", 1, "/dev/drbd1", uuid="a" * 32, offers_unmap=True, reservations=reservations
    )
    return found


def test_the_serial_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the test for "all are set": a process may die among them."""
    found = written(tmp_path, monkeypatch, None)
    wwn = [path for path in found if path.startswith("wwn/")]
    assert wwn[-1] == "wwn/vpd_unit_serial" and len(wwn) == 4
    assert found.index("attrib/optimal_sectors") < found.index(wwn[0])
    assert "attrib/force_pr_aptpl" not in found


def test_reservations_are_taken_once_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = written(tmp_path, monkeypatch, Reservations())
    modes = ("force_pr_aptpl", "enforce_pr_isids", "emulate_pr")
    assert [each for each in found if each.removeprefix("attrib/") in modes] == [
        f"attrib/{mode}" for mode in modes
    ]
