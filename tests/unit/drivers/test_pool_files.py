# SPDX-License-Identifier: GPL-2.0-or-later
"""What a device leaves in a pool when it is deleted: nothing."""

from __future__ import annotations

import re
from pathlib import Path

from sanctl.drivers import pool_files
from tests.support.doc_samples import ROOT

UUID = "a" * 32


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
