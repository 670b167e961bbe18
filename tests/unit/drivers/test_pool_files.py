# SPDX-License-Identifier: GPL-2.0-or-later
"""What a device leaves in a pool when it is deleted: nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sanctl.drivers import pool_files
from tests.support.doc_samples import ROOT

UUID = "a" * 32


def test_what_is_lost_with_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in its folder, by whatever path; and what is elsewhere on its filesystem."""
    pool, link = tmp_path / "pool", tmp_path / "link"
    pool.mkdir()
    link.symlink_to(pool)
    assert pool_files.holds(str(pool), str(pool))
    assert pool_files.holds(str(pool), f"{link}/not/made/yet")
    assert not pool_files.holds(str(pool), f"{pool}2")
    # A pool that is not mounted is a folder of the filesystem that has much else.
    assert not pool_files.holds(str(pool), str(tmp_path))
    monkeypatch.setattr(pool_files, "is_mount_point", lambda _path: True)
    assert pool_files.holds(str(pool), f"{tmp_path}/bound/there")
    assert not pool_files.holds(str(pool), "/proc")


def test_a_deletion_leaves_no_file_of_the_device(tmp_path: Path) -> None:
    """Also none of the notes beside its data: every kind that an agent writes there."""
    kinds = {"data", "meta", "meta.new", "ram"}
    for path in (ROOT / "sanctl/agents").rglob("*.py"):
        kinds |= {*re.findall(r'note_path\(device, "(\w+)"\)', path.read_text())}
    assert {"source", "sync", "verify", "apart"} <= kinds
    files = pool_files.files_of(str(tmp_path), "vol1", UUID)
    devices = tmp_path / "devices"
    devices.mkdir()
    for kind in kinds:
        (devices / f"vol1.{UUID}.{kind}").touch()
    other = devices / f"vol2.{UUID}.data"
    other.touch()
    pool_files.delete(files)
    assert [*devices.iterdir()] == [other]
