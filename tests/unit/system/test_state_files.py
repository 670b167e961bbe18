# SPDX-License-Identifier: GPL-2.0-or-later
"""State files: their paths, those of the former release, and their removal by a stop."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from sanctl.system import files, journal, state_files
from tests.support.doc_samples import ROOT


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    runtime = tmp_path / "run"
    monkeypatch.setattr(state_files, "RUNTIME", str(runtime))
    return runtime


def written_s(path: Path, at: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"written at {at}")
    os.utime(path, (at, at))


def everything(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def test_a_file_lies_in_its_devices_folder(folder: Path) -> None:
    note = state_files.of_device("db", "promoting")
    assert not note.exists() and note.read("none") == "none" and note.age_s() is None
    note.write("text")
    assert note.exists() and note.read() == "text"
    assert (folder / "devices/db/promoting").read_text() == "text"
    assert (folder / "devices/db").stat().st_mode & 0o777 == 0o700
    note.remove()
    note.remove()
    note.touch()
    assert not note.exists()


def test_of_a_pool_and_of_the_node(folder: Path) -> None:
    state_files.of_pool("main", "mount").write()
    state_files.of_node("failed-start.db").write()
    assert everything(folder) == ["node/failed-start.db", "pools/main/mount"]
    assert state_files.node_suffixes("failed-start") == ["db"]


def test_what_the_release_before_wrote_is_read(folder: Path) -> None:
    written_s(folder / "promoting-db", 1)
    written_s(folder / "pool-main.mount", 1)
    written_s(folder / "flush-failed-db", 1)
    written_s(folder / "unmarked-db.n2", 1)
    written_s(folder / "cache-limit-db", 1)
    assert state_files.of_device("db", "promoting").read() == "written at 1"
    assert state_files.of_pool("main", "mount").exists()
    assert state_files.of_node("flush-failed.db").exists()
    assert state_files.of_device("db", "outdated-unmarked.n2").exists()
    assert state_files.device_suffixes("db", "outdated-unmarked") == ["n2"]
    assert state_files.devices_with("dirty-limit") == ["db"]


@pytest.mark.parametrize("group", ["devices", "pools", "node"])
def test_every_old_path_is_read_replaced_and_removed(folder: Path, group: str) -> None:
    folder.mkdir()
    name = {"devices": "db", "pools": "main", "node": ""}[group]
    for base, template in state_files._OLD_PATHS[group].items():
        kind = f"{base}.n2" if "{suffix}" in template else base
        old = folder / template.format(name=name, suffix="n2")
        note = state_files.StateFile(group, name, kind)
        old.write_text("old")
        assert note.read() == "old"
        note.write("new")
        stays = base in state_files._WRITTEN_AT_OLD_PATH
        assert note.read() == "new" and old.exists() == stays
        old.write_text("old")
        note.remove()
        assert not note.exists() and not old.exists()


def test_of_two_the_younger_counts(folder: Path) -> None:
    """A process of the release before writes where it always has, for as long as it runs."""
    note = state_files.of_device("db", "attrd-cache")
    written_s(folder / "devices/db/attrd-cache", 10)
    written_s(folder / "told-db", 20)
    assert (note.read(), note.written_ns()) == ("written at 20", 20 * 10**9)
    written_s(folder / "told-db", 5)
    assert (note.read(), note.written_ns()) == ("written at 10", 10 * 10**9)


def test_a_stop_leaves_nothing_of_a_device_old_or_new(folder: Path) -> None:
    for kind in ("promoting", "outdated-unmarked.n2", "outdated-unmarked.n3", "sync-policy"):
        state_files.of_device("db", kind).write()
    for base, template in state_files._OLD_PATHS["devices"].items():
        for suffix in ("n2", "n3"):
            (folder / template.format(name="db", suffix=suffix)).write_text(base)
    for kind in ("cache", "fence", "mark"):
        Path(state_files.device_lock("db", kind)).touch()
    state_files.of_device("db2", "promoting").write()
    (folder / "policy-db2").touch()
    state_files.of_node("flush-failed.db").write()
    state_files.remove_device("db")
    assert everything(folder) == ["devices/db2/promoting", "flush-failed-db", "policy-db2"]
    state_files.remove_device("db")


def test_a_kill_in_the_middle_leaves_no_half_state(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("promoting", "sync-policy"):
        state_files.of_device("db", kind).write()

    def killed(path: str) -> None:
        raise KeyboardInterrupt(path)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(state_files, "_unlink", killed)
        state_files.remove_device("db")
    assert not state_files.of_device("db", "promoting").exists()
    assert not state_files.of_device("db", "sync-policy").exists()
    assert len(everything(folder)) == 2 and state_files.devices_with("promoting") == []
    state_files.remove_device("other")
    assert everything(folder) == [] and list((folder / "devices").iterdir()) == []


def test_a_write_survives_the_removal_of_its_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_files.of_device("db", "sync-policy").write()
    replace = files.replace_on_tmpfs
    calls = []

    def stopped_meanwhile(path: str, text: str) -> None:
        calls.append(path)
        if len(calls) == 1:
            state_files.remove_device("db")
        replace(path, text)

    monkeypatch.setattr(state_files, "replace_on_tmpfs", stopped_meanwhile)
    state_files.of_device("db", "resync-received").write("1 2")
    assert len(calls) == 2 and everything(folder) == ["devices/db/resync-received"]


def test_a_file_made_in_a_folder_on_its_way_out_fails_no_stop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may look the folder up before the rename and make its file after the listing."""
    state_files.of_device("db", "connected").write()
    rmdir = os.rmdir

    def late(path: str) -> None:
        monkeypatch.setattr(os, "rmdir", rmdir)
        Path(path, "connected.new.4711").touch()
        rmdir(path)

    monkeypatch.setattr(os, "rmdir", late)
    state_files.remove_device("db")
    assert not state_files.of_device("db", "connected").exists()
    state_files.remove_device("other")
    assert list((folder / "devices").iterdir()) == []


def test_a_half_written_file_is_no_suffix(folder: Path) -> None:
    state_files.of_device("db", "outdated-unmarked.n2.new.example").write()
    (folder / "devices/db/outdated-unmarked.n3.new.4711").touch()
    state_files.of_device("db", "outdated-unmarked.4711").write()
    assert state_files.device_suffixes("db", "outdated-unmarked") == ["4711", "n2.new.example"]


@pytest.fixture
def journaled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(journal, "write", lambda text, **_: lines.append(text))
    return lines


def test_a_stop_removes_folders_of_a_newer_release_and_follows_no_link(
    folder: Path, journaled: list[str]
) -> None:
    """The stop failed by it, and the node was fenced."""
    outside = folder.parent / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "kept").write_text("data")
    state_files.of_device("db", "promoting").write("1")
    newer = folder / "devices/db/tiers/0/deep"
    newer.mkdir(parents=True)
    (newer / "state").write_text("x")
    (newer.parent / "to-folder").symlink_to(outside)
    (folder / "devices/db/to-file").symlink_to(outside / "kept")
    state_files.remove_device("db")
    assert os.listdir(folder / "devices") == [] and not journaled
    assert (outside / "kept").read_text() == "data" and (outside / "deep").is_dir()


def test_what_cannot_be_removed_fails_no_stop(
    folder: Path, journaled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def refuse(path: str, **options: Any) -> None:
        if path.endswith("/immutable"):
            raise PermissionError(1, "Operation not permitted", path)
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", refuse)
    for stops in (1, 2):
        state_files.of_device("db", "promoting").write("1")
        (folder / "devices/db/tiers").mkdir()
        (folder / "devices/db/tiers/immutable").write_text("x")
        (folder / "devices/db/tiers/other").write_text("x")
        state_files.remove_device("db")
        assert not state_files.of_device("db", "promoting").exists()
        assert not (folder / "devices/db").exists() and state_files.count_devices() == 0
        assert len(journaled) == stops * (stops + 1) // 2 and "immutable" in journaled[-1]
    assert not list(folder.rglob("other"))
    monkeypatch.undo()


@pytest.mark.parametrize("name", ["", ".", "..", "../node", "a/b", ".removed.db.1", "a\0b"])
def test_a_name_that_would_leave_its_folder_is_refused(name: str) -> None:
    for attempt in (
        lambda: state_files.of_device(name, "promoting"),
        lambda: state_files.of_device("db", name),
        lambda: state_files.of_pool(name, "mount"),
        lambda: state_files.of_node(name),
        lambda: state_files.remove_device(name),
        lambda: state_files.device_lock(name, "fence"),
        lambda: state_files.pool_lock(name, "lock"),
        lambda: state_files.size_file(name),
    ):
        with pytest.raises(ValueError, match="no name of state"):
            attempt()


def test_an_unreadable_folder_is_not_an_absent_file(folder: Path) -> None:
    folder.mkdir()
    (folder / "devices").write_text("")
    with pytest.raises(NotADirectoryError):
        state_files.of_device("db", "promoting").exists()


def test_a_lock_is_held_by_one() -> None:
    path = state_files.device_lock("db", "fence")
    with state_files.locked(path, wait_s=0.0) as is_mine:
        assert is_mine
        with state_files.locked(path, wait_s=0.0) as also_mine:
            assert not also_mine
    with (
        state_files.locked(path, shared=True) as is_mine,
        state_files.locked(path, shared=True) as also_mine,
    ):
        assert is_mine and also_mine


def test_nothing_else_spells_a_path_below_run_sanctl() -> None:
    sources = ROOT / "sanctl"
    spelt = {
        path.relative_to(sources).as_posix()
        for path in sources.rglob("*.py")
        if re.search(r"/run/sanctl(?!-)", path.read_text(encoding="utf-8"))
    }
    assert {each for each in spelt if not each.startswith("lab/")} == {"system/state_files.py"}


def test_a_failed_flush_is_noted_where_the_release_before_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the way back to it that replica would pass for whole."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    note = state_files.of_node("flush-failed.vol1")
    note.write()
    assert [path.name for path in tmp_path.iterdir()] == ["flush-failed-vol1"]
    assert note.exists()
    note.write("again")
    assert note.read() == "again"
    note.remove()
    assert not note.exists()
