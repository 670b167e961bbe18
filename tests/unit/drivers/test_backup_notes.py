# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose turn it is to use a repository, and what a node notes of backups."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sanctl.drivers import backup_notes
from sanctl.model.backup_failure import BackupSuccess
from sanctl.system import state_files


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    monkeypatch.setattr(backup_notes, "_FOLDER", str(tmp_path / "notes"))
    monkeypatch.setattr(backup_notes, "_POLL_S", 0.01)
    return tmp_path


def waiting(folders: Path) -> int:
    return len(list((folders / "run").glob("backup-queue-nas.*")))


def test_the_device_comes_next_that_has_waited_longest_for_a_turn(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = iter(range(1_800_000_000, 1_900_000_000, 86400))
    monkeypatch.setattr(time, "time", lambda: next(now_s))
    # The last turns were in this order; "new" has had none, and those of another repository
    # do not count.
    for device in ("first", "second", "third"):
        with backup_notes.turn("nas", wait_s=0, device=device) as is_next:
            assert is_next
    with backup_notes.turn("far", wait_s=0, device="new") as is_next:
        assert is_next
    order: list[str] = []

    def run(device: str) -> None:
        with backup_notes.turn("nas", wait_s=30, device=device) as is_next:
            assert is_next
            order.append(device)

    threads = []
    with backup_notes.turn("nas", wait_s=0):
        for count, device in enumerate(("third", "new", "second", "first"), start=1):
            threads.append(threading.Thread(target=run, args=(device,)))
            threads[-1].start()
            while waiting(folders) < count:
                time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert order == ["new", "first", "second", "third"]
    assert waiting(folders) == 0 and backup_notes.noted() == ()


def test_one_that_died_in_the_queue_holds_up_nobody(folders: Path) -> None:
    state_files.make_folder()
    (folders / "run/backup-queue-nas.000000000000.a.lock").touch()
    with backup_notes.turn("nas", wait_s=0, device="web") as is_next:
        assert is_next
        with backup_notes.turn("nas", wait_s=0, device="b") as is_other:
            assert not is_other
    assert waiting(folders) == 1


def test_a_wait_in_the_queue_has_an_end() -> None:
    place = "backup-queue-nas.000000000000.a"
    with state_files.locked(state_files.node_lock(place)):
        began = time.monotonic()
        with backup_notes.turn("nas", wait_s=0.05, device="web") as is_next:
            # Nobody uses the repository: the one before is about to.
            assert is_next
        assert 0.05 <= time.monotonic() - began < 5


def test_a_node_that_cannot_note_a_turn_has_it_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup_notes, "write_atomically", full)
    with backup_notes.turn("nas", wait_s=0, device="web") as is_next:
        assert is_next


def test_a_turn_of_a_clock_that_was_ahead_is_none(folders: Path) -> None:
    """Else the device would come last until that time, and have no turn in short nights."""
    (folders / "notes").mkdir()
    note = folders / "notes/web.nas.turn"
    note.write_text(str(int(time.time()) + 10 * 365 * 86400))
    assert backup_notes._last_turn("nas", "web") == "0" * 12
    note.write_text(str(int(time.time()) - 5))
    assert backup_notes._last_turn("nas", "web") > "0" * 12


def test_what_is_noted_of_a_backup_that_has_told_no_end() -> None:
    assert backup_notes.begun("web") is None
    backup_notes.begin("web", "nas", "n1", 1_800_000_000)
    assert backup_notes.begun("web") == ("nas", "n1", 1_800_000_000)
    assert backup_notes.noted() == ("web",)
    backup_notes.write("web", "0" * 16)
    assert backup_notes.noted() == ("web",)
    backup_notes.end("web")
    assert backup_notes.read("web") and backup_notes.noted() == ("web",)
    backup_notes.remove("web")
    backup_notes.end("web")
    assert backup_notes.noted() == ()


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("nas n1", ("nas", "n1", None)),
        ("nas n1 yesterday", ("nas", "n1", None)),
        ("nas", None),
        ("nas n1 1 2", None),
    ],
)
def test_what_an_earlier_release_has_noted_of_a_begin(
    folders: Path, text: str, begun: tuple[str, str, int | None] | None
) -> None:
    (folders / "notes").mkdir()
    (folders / "notes/web.into").write_text(text)
    assert backup_notes.begun("web") == begun


def test_what_is_noted_of_a_success_that_the_cluster_may_not_know(folders: Path) -> None:
    assert backup_notes.successes("web") == ()
    success = BackupSuccess("web", "nas", "a" * 32, 9)
    backup_notes.succeed(success)
    backup_notes.succeed(success._replace(repository="far"))
    backup_notes.succeed(success._replace(device="web2"))
    (folders / "notes/web.bad.done").write_text("?")
    assert backup_notes.noted() == ("web", "web2")
    assert backup_notes.successes("web") == (success._replace(repository="far"), success)
    backup_notes.success_told(success)
    assert [each.repository for each in backup_notes.successes("web")] == ["far"]


def test_turns_of_a_device_go_with_its_replica(folders: Path) -> None:
    backup_notes.forget_turns("web")
    backup_notes.begin("web", "nas", "n1", 9)
    for device in ("web", "web2"):
        with backup_notes.turn("nas", wait_s=0, device=device) as is_next:
            assert is_next
    backup_notes.forget_turns("web")
    left = sorted(each.name for each in (folders / "notes").iterdir())
    assert left == ["web.into", "web2.nas.turn"]
