# SPDX-License-Identifier: GPL-2.0-or-later
"""The look at requests that wait: twice before the node ends, and never for want of an answer."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from sanctl.agents.fencing import hung_io_reboot
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup, self_fence
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import OldRequest, PeerState, ResourceState
from sanctl.parse.drbd import PendingRequests
from sanctl.plan.failover.hung_io_reboot import FORGOTTEN_AFTER_S, HANGING_AFTER_S
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner

GOOD = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
PRIMARY = ResourceState("vol", "Primary", "no", "UpToDate", 1024, (GOOD,))
LOST = OldRequest(FORGOTTEN_AFTER_S, True, frozenset({"ok"}), frozenset({"ok"}))
DEVICE = Device(
    name="vol", uuid="0" * 32, size_bytes=0, pool="main", nodes=("n1", "n2"), minor=0, initiators=()
)


class Kernel:
    """What the agent reads of the kernel, and whether it ended it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.state: ResourceState | None = PRIMARY
        self.requests: list[tuple[OldRequest, ...]] = []
        self.answered = 7
        self.ends = 0
        self.said: list[str] = []
        monkeypatch.setattr(state_files, "RUNTIME", str(folder))
        monkeypatch.setattr(hung_io_reboot, "_AGAIN_S", 0.0)
        self.now = 1000.0
        self.outstanding: PendingRequests | None = None
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr(drbdsetup, "completed_requests", lambda _minor: self.answered)
        monkeypatch.setattr(drbdsetup, "pending_requests", lambda _minor: self.outstanding)
        monkeypatch.setattr(drbdsetup, "oldest_requests", lambda _name: self.requests.pop(0))
        monkeypatch.setattr(drbdsetup, "observe", lambda *_: self.state)
        monkeypatch.setattr(lost_writes, "data_file", lambda _name: None)
        monkeypatch.setattr(self_fence, "reboot", self._reboot)
        monkeypatch.setattr(journal, "write", lambda text, **_: self.said.append(text))

    def _reboot(self, *_: object, **__: object) -> None:
        self.ends += 1

    def look(self, *requests: tuple[OldRequest, ...], state: ResourceState = PRIMARY) -> int:
        self.now += 10.0
        self.requests = [*requests, (), ()]
        hung_io_reboot.check(LocalRunner(), DEVICE, state)
        return self.ends


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kernel:
    return Kernel(monkeypatch, tmp_path)


def test_nothing_waits(kernel: Kernel) -> None:
    assert kernel.look(()) == 0
    assert kernel.look(state=PRIMARY._replace(role="Secondary")) == 0
    assert not kernel.said


def test_a_forgotten_request_ends_the_node_when_seen_twice(kernel: Kernel) -> None:
    assert kernel.look((LOST,), ()) == 0
    assert kernel.look((LOST,), (LOST,)) == 1


def test_without_an_answer_the_second_time_nothing_ends(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.state = None
    assert kernel.look((LOST,)) == 0

    def fail(*_: object) -> NoReturn:
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    monkeypatch.setattr(drbdsetup, "observe", fail)
    assert kernel.look((LOST,)) == 0


def test_alone_it_ends_only_once_nothing_is_answered(kernel: Kernel) -> None:
    alone = kernel.state = PRIMARY._replace(peers=())
    assert kernel.look((LOST,), state=alone) == 0
    assert "no other node can serve" in kernel.said[-1]
    kernel.answered += 1
    assert kernel.look((LOST,), state=alone) == 0
    assert kernel.look((LOST,), (LOST,), state=alone) == 1
    state_files.remove_device(DEVICE.name)
    state_files.remove_device(DEVICE.name)
    assert kernel.look((LOST,), state=alone) == 1


LOOKS_S = 10.0


@pytest.mark.parametrize(
    ("outstanding", "after_s"),
    [
        (PendingRequests(1, 0, 0), FORGOTTEN_AFTER_S),
        (PendingRequests(2, 1, 0), HANGING_AFTER_S),
        (PendingRequests(2, 0, 1), None),
        (PendingRequests(0, 0, 0), None),
    ],
)
def test_without_debugfs_what_is_counted_tells(
    kernel: Kernel, outstanding: PendingRequests, after_s: float | None
) -> None:
    kernel.outstanding = outstanding
    kernel.look()
    for number in range(1, 12):
        ends = after_s is not None and number * LOOKS_S >= after_s
        assert bool(kernel.look()) is ends
        if ends:
            return


def test_an_answer_or_a_freeze_begins_the_wait_anew(kernel: Kernel) -> None:
    kernel.outstanding = PendingRequests(1, 0, 0)
    frozen = PRIMARY._replace(suspended="fencing")
    for number in range(40):
        kernel.answered += number % 3 == 0
        assert kernel.look() == 0
    for _ in range(20):
        assert kernel.look(state=frozen) == 0
    assert kernel.look() == 0
