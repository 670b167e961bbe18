# SPDX-License-Identifier: GPL-2.0-or-later
"""The service's first epoch of a device begins once the device was promoted, and once for that."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from sanctl.agents.reservations import ahead as ahead_module
from sanctl.agents.reservations import in_force, replica_note
from sanctl.agents.reservations.ahead import Ahead
from sanctl.agents.reservations.replica_note import Replica
from sanctl.agents.reservations.store import NotPrimaryError, Store
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files
from sanctl.system.runner import LocalRunner
from tests.fakes.node import FakeNode


class FakeStore(Store):
    """Notes for which devices an epoch begins, or fails."""

    def __init__(self) -> None:
        super().__init__(LocalRunner())
        self.begun: list[str] = []
        self.error: Exception | None = None

    def settle(self, replica: Replica, *, until: float | None = None) -> None:  # type: ignore[override]
        assert until is not None
        self.begun.append(replica.device)
        if self.error is not None:
            raise self.error


@pytest.fixture
def store(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    del fake_node
    replica = Replica("vol1", "a" * 32, 1, ("n1", "n2"), str(tmp_path / "file"))
    monkeypatch.setattr(replica_note, "read", lambda name: replica if name == "vol1" else None)
    return FakeStore()


def promoted(name: str = "vol1") -> None:
    note = state_files.of_device(name, in_force.SETTLED)
    before = note.written_ns()
    while note.written_ns() == before:
        note.write("n1 n2")


def test_once_for_each_promotion(store: FakeStore) -> None:
    ahead = Ahead(store)
    ahead.look()
    assert store.begun == []
    for times in (1, 2):
        promoted()
        ahead.look()
        ahead.look()
        assert store.begun == ["vol1"] * times
    promoted("gone")
    ahead.look()
    assert store.begun == ["vol1"] * 2


@pytest.mark.parametrize(
    ("error", "times"),
    [
        (CommandError(Problem("SAN-RES-003", "n2 is away")), 2),
        (OSError("no room"), 2),
        (NotPrimaryError(Problem("SAN-RES-004", "it was demoted")), 1),
    ],
)
def test_what_fails_is_tried_again_while_the_device_is_served(
    store: FakeStore, fake_node: FakeNode, error: Exception, times: int
) -> None:
    ahead = Ahead(store)
    store.error = error
    promoted()
    ahead.look()
    ahead.look()
    assert len(store.begun) == 1, "not at once"
    time.sleep(10.0)
    ahead.look()
    assert len(store.begun) == times


def test_nobody_waits_for_it(store: FakeStore) -> None:
    ahead = Ahead(store)
    promoted()
    with state_files.locked(replica_note.lock_path("vol1"), wait_s=0.0):
        ahead.look()
    assert store.begun == []
    ahead.look()
    assert store.begun == ["vol1"]


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with this release, which is current, and two others; one of them has no service."""
    for name, has_service in (("own", True), ("next", True), ("without", False)):
        folder = tmp_path / name / "sanctl" / "agents" / "reservations"
        folder.mkdir(parents=True)
        if has_service:
            (folder / "service.py").touch()
    monkeypatch.setattr(ahead_module, "CURRENT", str(tmp_path / "current"))
    monkeypatch.setattr(ahead_module, "own_release", lambda: "own")
    return tmp_path


def test_it_ends_with_its_release_when_no_command_waits(
    store: FakeStore, releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever exchanged the release: a rollout that was broken off then does not end it."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *what: sent.append(what))
    is_idle = True
    ahead = Ahead(store, lambda: is_idle)
    current = releases / "current"
    ahead.end_if_replaced()  # no link, as in a checkout
    for name in ("own", "without", "gone"):
        current.unlink(missing_ok=True)
        current.symlink_to(name)
        ahead.end_if_replaced()
    assert sent == []
    current.unlink()
    current.symlink_to("next")
    is_idle = False
    ahead.end_if_replaced()
    assert sent == []
    is_idle = True
    ahead.end_if_replaced()
    assert sent == [(os.getpid(), signal.SIGTERM)]
