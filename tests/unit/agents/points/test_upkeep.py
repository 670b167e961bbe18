# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of restore points: which are named, which are removed, and which nobody touches."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sanctl.agents.points import upkeep
from sanctl.drivers import point_files
from sanctl.model.restore_point import RestorePoint
from sanctl.system.runner import LocalRunner

UUID, TOKEN = "a" * 32, "1" * 16
POINT = RestorePoint("web", "one", TOKEN, UUID, "main", 1, 2, 3, (os.uname().nodename,))


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(upkeep, "_publish_sizes", lambda *_: None)
    point_files.make_folder(str(tmp_path))
    return tmp_path


def make(pool: Path, token: str, *, is_taking: bool) -> Path:
    path = point_files.taking_path if is_taking else point_files.final_path
    file = Path(path(str(pool), "web", UUID, token))
    file.write_text("x")
    return file


def keep_up(pool: Path, *points: RestorePoint, is_quorate: bool = True) -> list[str]:
    upkeep.keep_up(
        LocalRunner(),
        {"main": str(pool)},
        {point.id: point.value for point in points},
        is_quorate=is_quorate,
    )
    return sorted(file.name for file in (pool / "points").iterdir())


def test_a_copy_of_a_known_point_gets_its_name(pool: Path) -> None:
    make(pool, TOKEN, is_taking=True)
    assert keep_up(pool, POINT) == [f"web.{UUID}.{TOKEN}"]


def test_a_copy_of_no_point_goes_later_and_with_quorum(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make(pool, TOKEN, is_taking=True)
    assert keep_up(pool) == [file.name]
    later_s = time.time() + 601
    monkeypatch.setattr(time, "time", lambda: later_s)
    assert keep_up(pool, is_quorate=False) == [file.name]
    assert keep_up(pool, POINT._replace(token="2" * 16)) == []


def test_a_file_that_the_cluster_says_nothing_of_stays(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make(pool, TOKEN, is_taking=False)
    stranger = pool / "points" / "mine"
    stranger.write_text("x")
    later_s = time.time() + 1e6
    monkeypatch.setattr(time, "time", lambda: later_s)
    assert keep_up(pool) == [stranger.name, file.name]


def test_a_point_that_is_deleted(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(pool, TOKEN, is_taking=False)
    changed: list[object] = []

    class FakeSession:
        def __init__(self, *_: object) -> None:
            pass

        def change(self, decide: object) -> None:
            changed.append(decide)

    monkeypatch.setattr(upkeep, "Session", FakeSession)
    deleting = POINT._replace(is_deleting=True)
    assert keep_up(pool, deleting._replace(nodes=("other",))) == [f"web.{UUID}.{TOKEN}"]
    assert keep_up(pool, deleting, is_quorate=False) == [f"web.{UUID}.{TOKEN}"]
    assert changed == []
    assert keep_up(pool, deleting) == []
    assert len(changed) == 1
