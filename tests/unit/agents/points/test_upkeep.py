# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of restore points: which are named, which are removed, and which nobody touches."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from sanctl.agents.points import scheduled, upkeep
from sanctl.drivers import backup_notes, node_attributes, point_files, reflink
from sanctl.drivers.reflink import FileBlocks
from sanctl.model.restore_point import RestorePoint, parse_extents, parse_lost, parse_sizes
from sanctl.ops import backup_point
from sanctl.system import state_files
from sanctl.system.runner import LocalRunner

UUID, TOKEN = "a" * 32, "1" * 16
POINT = RestorePoint("web", "one", TOKEN, UUID, "main", 1, 2, 3, (os.uname().nodename,))


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(upkeep, "_publish_sizes", lambda *_: None)
    monkeypatch.setattr(backup_notes, "_FOLDER", str(tmp_path / "notes"))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    state_files.make_folder()
    point_files.make_folder(str(tmp_path))
    return tmp_path


@pytest.fixture
def uptime(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how long the node runs, in seconds; the clock of the day goes with it."""
    now_s, boot_s = [1000.0], time.time() - 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(time, "time", lambda: boot_s + now_s[0])
    return now_s


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


def test_a_copy_of_a_point_of_other_nodes_gets_no_name(pool: Path, uptime: list[float]) -> None:
    """The active node died, and the other one carried out the same order, at another moment."""
    file = make(pool, TOKEN, is_taking=True)
    for _ in range(2):
        assert keep_up(pool, POINT._replace(nodes=("other",))) == [file.name]
        uptime[0] += 601


def test_a_copy_of_no_point_goes_later_and_with_quorum(pool: Path, uptime: list[float]) -> None:
    file = make(pool, TOKEN, is_taking=True)
    assert keep_up(pool) == [file.name]
    uptime[0] += 590
    assert keep_up(pool) == [file.name]
    uptime[0] += 11
    assert keep_up(pool, is_quorate=False) == [file.name]
    later = make(pool, "3" * 16, is_taking=True)
    assert keep_up(pool, POINT._replace(token="2" * 16)) == [later.name]


def test_a_clock_that_is_set_takes_no_copy_that_is_being_made(
    pool: Path, uptime: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CIB would have named a restore point without a file; back, the copy stayed for ever."""
    file = make(pool, TOKEN, is_taking=True)
    assert keep_up(pool) == [file.name]
    real_s = time.time()
    monkeypatch.setattr(time, "time", lambda: real_s + 86400)
    uptime[0] += 10
    assert keep_up(pool) == [file.name]
    monkeypatch.setattr(time, "time", lambda: real_s - 86400)
    uptime[0] += 600
    assert keep_up(pool) == []


def test_a_copy_that_cannot_be_named_holds_up_no_other(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = point_files.keep

    def fail_for_first(path: str) -> str:
        if TOKEN in path:
            raise OSError(5, "Input/output error", path)
        return keep(path)

    monkeypatch.setattr(point_files, "keep", fail_for_first)
    other = POINT._replace(name="two", token="2" * 16)
    for point in (POINT, other):
        make(pool, point.token, is_taking=True)
    assert keep_up(pool, POINT, other) == [f"web.{UUID}.{TOKEN}.taking", f"web.{UUID}.{'2' * 16}"]


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
    changed = changes_noted(monkeypatch)
    deleting = POINT._replace(is_deleting=True)
    assert keep_up(pool, deleting, is_quorate=False) == [f"web.{UUID}.{TOKEN}"]
    # Also where this node is not named any more: nothing else would remove the file.
    assert keep_up(pool, deleting._replace(nodes=("other",))) == []
    assert changed == []
    make(pool, TOKEN, is_taking=False)
    assert keep_up(pool, deleting) == []
    assert len(changed) == 1


def test_a_point_that_is_deleted_while_its_file_gets_its_name(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: the file stayed, and the CIB said that it was removed."""
    file, remove = make(pool, TOKEN, is_taking=True), point_files.remove
    changed = changes_noted(monkeypatch)
    calls: list[str] = []

    def remove_and_name(path: str) -> None:
        remove(path)
        calls.append(path)
        if len(calls) == 1 and file.exists():
            point_files.keep(str(file))

    def name_first(path: str) -> None:
        if not calls and file.exists():
            point_files.keep(str(file))
        calls.append(path)
        remove(path)

    deleting = POINT._replace(is_deleting=True)
    monkeypatch.setattr(upkeep, "_settle", lambda *_args, **_more: None)
    for each in (remove_and_name, name_first):
        calls.clear()
        make(pool, TOKEN, is_taking=True)
        monkeypatch.setattr(point_files, "remove", each)
        assert keep_up(pool, deleting) == []
    assert len(changed) == 2


def changes_noted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return a list that has, of each change of the CIB to come, the points that it is for."""
    noted: list[list[str]] = []

    class FakeSession:
        def __init__(self, *_: object) -> None:
            pass

        def change(self, decide: Any, *, reads_replicas: bool) -> None:
            assert not reads_replicas
            noted.append([point.token for point in decide(None)])

    monkeypatch.setattr(upkeep, "Session", FakeSession)
    monkeypatch.setattr(upkeep, "plan_file_removed", lambda _seen, point, _here: (point,))
    return noted


def three_deleted(pool: Path) -> list[RestorePoint]:
    points = [
        POINT._replace(name=f"p{n}", token=f"{n:016x}", is_deleting=True) for n in range(1, 4)
    ]
    for point in points:
        make(pool, point.token, is_taking=False)
    return points


def test_many_points_that_are_deleted_are_one_change(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = three_deleted(pool)
    changed = changes_noted(monkeypatch)
    assert keep_up(pool, *points) == []
    assert changed == [[point.token for point in points]]


def test_a_file_that_cannot_be_removed_holds_up_nothing_else(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, remove = three_deleted(pool), point_files.remove
    changed, done = changes_noted(monkeypatch), list[str]()

    def fail_for_first(path: str) -> None:
        if points[0].token in path:
            raise OSError(5, "Input/output error", path)
        remove(path)

    monkeypatch.setattr(point_files, "remove", fail_for_first)
    monkeypatch.setattr(upkeep, "_publish_sizes", lambda *_: done.append("sizes"))
    monkeypatch.setattr(upkeep, "_remove_of_backups", lambda *_: done.append("backups"))
    monkeypatch.setattr(scheduled, "start_due", lambda *_: done.append("schedules"))
    assert keep_up(pool, *points) == [f"web.{UUID}.{points[0].token}"]
    assert changed == [[point.token for point in points[1:]]]
    assert sorted(done) == ["backups", "schedules", "sizes"]


def test_files_are_removed_for_a_while_and_the_next_monitor_goes_on(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, now_s = three_deleted(pool), [0.0]
    changed, remove = changes_noted(monkeypatch), point_files.remove

    def remove_slowly(path: str) -> None:
        now_s[0] += 2.0
        remove(path)

    monkeypatch.setattr(point_files, "remove", remove_slowly)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    # Two calls for each point.
    assert keep_up(pool, *points) == [f"web.{UUID}.{points[2].token}"]
    assert changed == [[point.token for point in points[:2]]]


def test_what_a_backup_left_is_removed_with_quorum(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[object] = []

    def remove(session: object) -> tuple[str, ...]:
        removed.append(session)
        return ("web",)

    monkeypatch.setattr(backup_point, "remove_abandoned", remove)
    keep_up(pool)
    backup_notes.write("web", TOKEN)
    keep_up(pool, is_quorate=False)
    assert removed == []
    keep_up(pool)
    assert len(removed) == 1


def test_sizes_are_looked_at_for_a_moment_and_then_by_the_next_monitor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_files.make_folder(str(tmp_path))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    state_files.make_folder()
    tokens = [f"{number:016x}" for number in range(3)]
    for number, token in enumerate(tokens):
        file = make(tmp_path, token, is_taking=False)
        os.utime(file, ns=(number, number))
    clock, looked = [1000.0], list[str]()
    published: list[str] = []

    def look(path: str) -> FileBlocks:
        looked.append(path.rpartition(".")[2])
        clock[0] += 0.2
        return FileBlocks(5, 0, 0)

    monkeypatch.setattr(reflink, "blocks_of", look)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(node_attributes, "publish", lambda *words: published.append(words[2]))

    def monitor(after_s: float) -> list[str]:
        clock[0] += after_s
        looked.clear()
        upkeep._publish_sizes(LocalRunner(), {"main": str(tmp_path)}, frozenset())
        return list(looked)

    assert monitor(0.0) == tokens[:2]
    assert monitor(10.0) == tokens[2:]
    mib = 1 << 20
    assert published == [
        " ".join(f"{token}={mib}" for token in tokens[:2]),
        " ".join(f"{token}={mib}" for token in tokens),
    ]
    # Published once; then only the newest is looked at again.
    assert monitor(10.0) == [] and len(published) == 2
    assert monitor(60.0) == tokens[2:] and len(published) == 3
    os.unlink(tmp_path / "points" / f"web.{UUID}.{tokens[1]}")
    assert monitor(1.0) == [tokens[0], tokens[2]] and len(published) == 4


@pytest.mark.parametrize("what", ["stat", "blocks"])
def test_a_file_that_cannot_be_read_keeps_no_other_size_from_being_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Nor what is gone: SAN-HLT-124 was not shown while one file could not be read."""
    point_files.make_folder(str(tmp_path))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    state_files.make_folder()
    for token in ("1" * 16, "2" * 16):
        make(tmp_path, token, is_taking=False)
    state_files.of_node("points-lost").write("3" * 16)
    stat, published = os.stat, list[str]()

    def fail_for_first(path: str) -> FileBlocks:
        if "1" * 16 in path:
            raise OSError(5, "Input/output error", path)
        return FileBlocks(5, 0, 0)

    def stat_or_fail(path: Any, **more: Any) -> os.stat_result:
        if what == "stat":
            fail_for_first(str(path))
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", stat_or_fail)
    monkeypatch.setattr(reflink, "blocks_of", fail_for_first)
    monkeypatch.setattr(node_attributes, "publish", lambda *words: published.append(words[2]))
    upkeep._publish_sizes(LocalRunner(), {"main": str(tmp_path)}, frozenset())
    assert parse_sizes(published[0]) == {"2" * 16: 1 << 20}
    assert parse_lost(published[0]) == {"3" * 16}


def test_extents_are_published_with_the_sizes_of_devices_that_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    monkeypatch.setattr(backup_notes, "_FOLDER", str(tmp_path / "notes"))
    state_files.make_folder()
    point_files.make_folder(str(tmp_path))
    make(tmp_path, TOKEN, is_taking=False)
    (tmp_path / "devices").mkdir()
    counts = {"web": 6100, "db": 7, "log": 9, "ext": 0, "gone": -1, "other": 8}
    for name in counts:
        for kind in ("data", "meta"):
            (tmp_path / "devices" / f"{name}.{UUID}.{kind}").write_text("x")
    clock, counted, published = [1000.0], list[str](), list[str]()

    def extent_count(path: str) -> int:
        counted.append(Path(path).name)
        name = counted[-1].partition(".")[0]
        if name == "gone":
            raise FileNotFoundError(2, "No such file or directory", path)
        return counts[name]

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(reflink, "blocks_of", lambda _path: FileBlocks(5, 0, 0))
    monkeypatch.setattr(reflink, "extent_count", extent_count)
    monkeypatch.setattr(node_attributes, "publish", lambda *words: published.append(words[2]))
    monkeypatch.setattr(scheduled, "start_due", lambda *_: None)
    properties = dict.fromkeys(
        ("sanctl-schedule.db", "sanctl-copy.log.far", "sanctl-copying.ext.far")
    )

    def monitor(after_s: float) -> None:
        clock[0] += after_s
        values = {POINT.id: POINT.value, "sanctl-point.gone.x": "", **dict.fromkeys(properties, "")}
        upkeep.keep_up(LocalRunner(), {"main": str(tmp_path)}, values, is_quorate=False)

    monitor(0.0)
    assert sorted(counted) == [
        f"{name}.{UUID}.data" for name in ("db", "ext", "gone", "log", "web")
    ]
    (text,) = published
    assert parse_extents(text) == {
        f"web.{UUID[:8]}": 6100,
        f"db.{UUID[:8]}": 7,
        f"log.{UUID[:8]}": 9,
    }
    # As a release reads it that does not know of extents.
    assert parse_sizes(text) == {TOKEN: 1 << 20} and parse_lost(text) == frozenset()
    # Not more often than the sizes.
    monitor(59.0)
    assert len(counted) == 5 and len(published) == 1
    counts["web"] = 6200
    monitor(2.0)
    assert len(counted) == 10 and parse_extents(published[-1])[f"web.{UUID[:8]}"] == 6200
