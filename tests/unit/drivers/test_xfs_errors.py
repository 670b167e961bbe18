# SPDX-License-Identifier: GPL-2.0-or-later
"""XFS gives up a failed write of metadata after some time, if a disk may have failed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.drivers import xfs_errors
from sanctl.drivers.pool_mount import Mount


def mount(fs_type: str = "xfs") -> Mount:
    return Mount("/pool", "8:16", "/", "/dev/null", fs_type, frozenset(), frozenset())


@pytest.fixture
def kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(xfs_errors, "_SYSFS", str(tmp_path))
    made = tmp_path / "null/error/metadata"
    for kind, retries in (("EIO", "-1"), ("default", "-1"), ("ENOSPC", "-1"), ("ENODEV", "0")):
        (made / kind).mkdir(parents=True)
        (made / kind / "retry_timeout_seconds").write_text(f"{retries}\n")
    return made


def told(kinds: Path) -> list[str]:
    names = ("EIO", "default", "ENOSPC", "ENODEV")
    return [(kinds / name / "retry_timeout_seconds").read_text().strip() for name in names]


def test_errors_of_a_disk_are_not_retried_for_ever(kinds: Path) -> None:
    assert xfs_errors.limit_retries(mount())
    assert told(kinds) == ["20", "20", "-1", "0"]
    assert not xfs_errors.limit_retries(mount()), "it is set already"


def test_other_filesystems_and_kernels_without_it_stay_as_they_are(kinds: Path) -> None:
    assert not xfs_errors.limit_retries(mount("ext4"))
    assert told(kinds) == ["-1", "-1", "-1", "0"]
    (kinds / "EIO/retry_timeout_seconds").unlink()
    assert xfs_errors.limit_retries(mount()), "the other one"
