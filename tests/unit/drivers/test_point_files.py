# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of restore points in a pool: a deletion leaves none, whatever gets its name meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.drivers import point_files
from sanctl.drivers.point_files import PointFile

UUID, OTHER = "a" * 32, "b" * 32


@pytest.fixture
def pool(tmp_path: Path) -> str:
    point_files.make_folder(str(tmp_path))
    return str(tmp_path)


def make(pool: str, token: str, uuid: str = UUID, *, is_taking: bool = False) -> Path:
    path = point_files.taking_path if is_taking else point_files.final_path
    file = Path(path(pool, "web", uuid, token))
    file.write_text("x")
    return file


def test_all_files_of_a_device_go(pool: str) -> None:
    make(pool, "1" * 16)
    make(pool, "2" * 16, is_taking=True)
    earlier = make(pool, "3" * 16, OTHER)
    point_files.remove_all(pool, "web", UUID)
    assert [*Path(point_files.folder(pool)).iterdir()] == [earlier]


@pytest.mark.parametrize("listing", [1, 2])
def test_one_that_gets_its_name_after_it_was_listed_goes(
    pool: str, monkeypatch: pytest.MonkeyPatch, listing: int
) -> None:
    """The device is gone from the cluster then, and no file would ever be looked for again."""
    real, calls = point_files.listed, list[str]()

    def listed(path: str) -> list[PointFile]:
        found = real(path)
        calls.append(path)
        if len(calls) == listing:
            # The first time it is seen by its first name, the second time it is not seen.
            made = make(pool, "1" * 16, is_taking=True)
            found = real(path) if listing == 1 else found
            point_files.keep(str(made))
        return found

    monkeypatch.setattr(point_files, "listed", listed)
    make(pool, "2" * 16)
    point_files.remove_all(pool, "web", UUID)
    assert real(pool) == []


def test_files_that_come_all_the_time_are_an_error(
    pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = point_files.remove

    def remove_and_make(path: str) -> None:
        remove(path)
        make(pool, "1" * 16)

    monkeypatch.setattr(point_files, "remove", remove_and_make)
    make(pool, "2" * 16)
    with pytest.raises(OSError, match="appear while they are removed"):
        point_files.remove_all(pool, "web", UUID)
