# SPDX-License-Identifier: GPL-2.0-or-later
"""A frozen Primary whose handler died is disconnected and connected, so that DRBD calls another."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.connections import frozen_primary
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_handlers
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import HandlerCalls, PeerState, ResourceState
from sanctl.system import state_files
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer

DEVICE = Device("vol1", "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ())
LOST = PeerState("peer", "Connecting", "Unknown", "Off", "DUnknown", None)
FROZEN = ResourceState("vol1", "Primary", "fencing", "UpToDate", 1024, (LOST,), minor=3)
NONE, OURS = HandlerCalls(0, ()), HandlerCalls(1, ("vol1",))


class Kernel(FakeNode):
    """A frozen Primary, and which calls of fence-peer are under way at each look."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.states["vol1"] = FROZEN
        self.looks: list[HandlerCalls | OSError] = []

    def replacements(self) -> list[tuple[object, str, object]]:
        return [*super().replacements(), (drbd_handlers, "observe_calls", self._look)]

    def _look(self) -> HandlerCalls:
        seen = self.looks.pop(0)
        if isinstance(seen, OSError):
            raise seen
        return seen

    def run_monitor(self, *looks: HandlerCalls | OSError) -> list[str]:
        self.looks = list(looks)
        frozen_primary.call_handler_again(self, DEVICE, FROZEN)
        return self.commands("drbdadm")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kernel:
    return Kernel(tmp_path).install(monkeypatch)


def test_disconnected_and_connected_once(kernel: Kernel) -> None:
    assert kernel.run_monitor(NONE, NONE) == ["drbdadm disconnect vol1", "drbdadm connect vol1"]
    assert state_files.device_suffixes("vol1", "outdated-unmarked") == ["n2"]
    assert any("no fence-peer handler runs" in line for line in kernel.journal)


@pytest.mark.parametrize("looks", [(OURS,), (NONE, OURS), (HandlerCalls(1, ()),)], ids=str)
def test_never_beside_one_that_lives(kernel: Kernel, looks: Sequence[HandlerCalls]) -> None:
    assert kernel.run_monitor(*looks) == []
    assert kernel.journal == []


def test_the_freeze_that_ends_before_the_second_look(kernel: Kernel) -> None:
    def thaw() -> None:
        kernel.states["vol1"] = FROZEN._replace(suspended="no")

    kernel.clock.on_sleep = thaw
    assert kernel.run_monitor(NONE, NONE) == []


def test_a_monitor_of_a_primary_that_is_not_frozen_looks_at_no_process(kernel: Kernel) -> None:
    state = FROZEN._replace(suspended="no")
    assert frozen_primary.call_handler_again(kernel, DEVICE, state) == state
    assert kernel.calls == []


def test_what_is_not_known_is_not_acted_on(kernel: Kernel) -> None:
    with pytest.raises(OSError, match="fork"):
        kernel.run_monitor(OSError(errno.ENOMEM, "fork"))
    assert kernel.commands("drbdadm") == []


def test_a_suspect_replica_is_connected_to_nobody(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: True)
    assert kernel.run_monitor(NONE, NONE) == []


def test_the_note_comes_before_the_disconnect(kernel: Kernel) -> None:
    """A process that dies after it leaves the peer to the next monitor."""

    class Killed(BaseException):
        pass

    def answer(argv: Sequence[str]) -> Answer:
        if "disconnect" in argv:
            assert state_files.device_suffixes("vol1", "outdated-unmarked") == ["n2"]
            raise Killed
        return ""

    kernel.answer = answer
    with pytest.raises(Killed):
        kernel.run_monitor(NONE, NONE)


def test_without_room_for_the_note_the_handler_is_called_all_the_same(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_files, "replace_on_tmpfs", full)
    assert kernel.run_monitor(NONE, NONE) == ["drbdadm disconnect vol1", "drbdadm connect vol1"]
    assert any("No space left" in line for line in kernel.journal)


def test_a_connect_that_is_refused_is_left_to_the_next_monitor(kernel: Kernel) -> None:
    kernel.answer = lambda argv: (
        CommandError(Problem("SAN-CMD-003", "already connected")) if "connect" in argv else ""
    )
    assert "drbdadm connect vol1" in kernel.run_monitor(NONE, NONE)
    assert any("already connected" in line for line in kernel.journal)
