# SPDX-License-Identifier: GPL-2.0-or-later
"""By what a handler knows that a promotion under way here needs the peer's mark."""

from __future__ import annotations

import os
import signal

import pytest

from sanctl.agents.fencing import outdate
from sanctl.agents.fencing.outdate import promoting
from sanctl.system import state_files
from tests.fakes.node import FakeNode
from tests.fakes.runner import FakeRunner

pytestmark = pytest.mark.usefixtures("fake_node")
_SECONDARY = FakeRunner("")


def is_seen() -> bool:
    return outdate.may_mark(_SECONDARY, "vol1", "n2")


def fill_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tmpfs take no further inode: what is there can be opened, locked and given a time."""
    opened = os.open

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def open_existing(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            refuse()
        return opened(path, flags, mode)

    monkeypatch.setattr(state_files, "replace_on_tmpfs", refuse)
    monkeypatch.setattr(os, "open", open_existing)


def test_a_promotion_is_seen_while_it_runs() -> None:
    assert not is_seen()
    for _ in range(2):
        with promoting("vol1"):
            assert is_seen() and is_seen()
        assert not is_seen()


def test_a_promotion_needs_no_room_after_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    outdate.make_lock("vol1")
    assert not is_seen()
    fill_run(monkeypatch)
    with promoting("vol1"):
        assert is_seen()
        outdate.cancel_promotion("vol1")
        assert not is_seen()
    with promoting("vol1"):
        assert is_seen()
    assert not is_seen()


def test_without_room_and_without_a_start_it_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a replica that the release before has started: the promotion may fail, and goes on."""
    fill_run(monkeypatch)
    with promoting("vol1"):
        assert not is_seen()


def test_a_process_that_is_killed_promotes_no_more() -> None:
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        with promoting("vol1"):
            os.write(told, b".")
            signal.pause()
        os._exit(0)
    try:
        os.read(ready, 1)
        assert is_seen()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert state_files.of_device("vol1", "promoting").exists()
    assert not is_seen()


def test_a_process_that_hangs_after_its_kill_is_cancelled_by_the_demotion() -> None:
    with promoting("vol1"):
        outdate.cancel_promotion("vol1")
        assert not is_seen()
        assert not state_files.of_device("vol1", "promoting").exists()


def test_the_note_of_the_release_before_counts_and_it_finds_one() -> None:
    note = state_files.of_device("vol1", "promoting")
    note.write()
    assert is_seen()
    outdate.cancel_promotion("vol1")
    assert not is_seen()
    with promoting("vol1"):
        assert note.exists()


def test_who_looks_is_not_taken_for_who_promotes() -> None:
    outdate.make_lock("vol1")
    lock = state_files.device_lock("vol1", "promote")
    with state_files.locked(lock, wait_s=0.0, shared=True) as is_looking:
        assert is_looking and not is_seen()


def test_a_promotion_that_does_not_get_the_lock_leaves_a_note(fake_node: FakeNode) -> None:
    """Somebody is stopped while he looks: the note counts alone then."""
    outdate.make_lock("vol1")
    lock = state_files.device_lock("vol1", "promote")
    with state_files.locked(lock, wait_s=0.0, shared=True), promoting("vol1"):
        assert is_seen()
    assert fake_node.clock.passed_s < 2.0
    assert not is_seen()


def test_a_stop_takes_the_lock_along() -> None:
    outdate.make_lock("vol1")
    state_files.remove_device("vol1")
    assert not os.path.exists(state_files.device_lock("vol1", "promote"))
