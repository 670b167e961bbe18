# SPDX-License-Identifier: GPL-2.0-or-later
"""The look at requests that wait: twice before the node ends, and never for want of an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.fencing import hung_io_reboot
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import OldRequest, PeerState, ResourceState
from sanctl.parse.drbd import PendingRequests
from sanctl.plan.failover.hung_io_reboot import FORGOTTEN_AFTER_S, HANGING_AFTER_S
from sanctl.system import state_files
from tests.fakes.node import FakeNode, Rebooted

GOOD = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
PRIMARY = ResourceState("vol", "Primary", "no", "UpToDate", 1024, (GOOD,))
LOST = OldRequest(FORGOTTEN_AFTER_S, True, frozenset({"ok"}), frozenset({"ok"}))
DEVICE = Device(
    name="vol", uuid="0" * 32, size_bytes=0, pool="main", nodes=("n1", "n2"), minor=0, initiators=()
)


class Kernel(FakeNode):
    """What the agent reads of the kernel, and whether it ended it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.states["vol"] = PRIMARY
        self.requests: list[tuple[OldRequest, ...]] = []
        self.outstanding: PendingRequests | None = None
        self.answered = 7
        self.ends = 0

    def replacements(self) -> list[tuple[object, str, object]]:
        return [
            *super().replacements(),
            (drbd_kernel, "completed_requests", lambda _minor: self.answered),
            (drbd_kernel, "pending_requests", lambda _minor: self.outstanding),
            (drbd_kernel, "oldest_requests", lambda _name: self.requests.pop(0)),
        ]

    def look(self, *requests: tuple[OldRequest, ...], state: ResourceState = PRIMARY) -> int:
        self.clock.now_s += 10.0
        self.requests = [*requests, (), ()]
        try:
            hung_io_reboot.check(self, DEVICE, state)
        except Rebooted:
            self.ends += 1
        return self.ends


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kernel:
    return Kernel(tmp_path).install(monkeypatch)


def test_without_hung_requests_there_is_no_reboot(kernel: Kernel) -> None:
    assert kernel.look(()) == 0
    assert kernel.look(state=PRIMARY._replace(role="Secondary")) == 0
    assert not kernel.journal


def test_a_hung_request_that_is_seen_twice_reboots_the_node(kernel: Kernel) -> None:
    assert kernel.look((LOST,), ()) == 0
    assert kernel.look((LOST,), (LOST,)) == 1


def test_no_reboot_if_drbd_does_not_answer_the_second_time(kernel: Kernel) -> None:
    kernel.states["vol"] = None
    assert kernel.look((LOST,)) == 0
    del kernel.states["vol"]
    kernel.answer = CommandError(Problem("SAN-CMD-002", "no answer"))
    assert kernel.look((LOST,)) == 0
    assert kernel.commands("drbdsetup")


def test_without_a_peer_the_node_reboots_only_once_no_request_is_answered(kernel: Kernel) -> None:
    alone = kernel.states["vol"] = PRIMARY._replace(peers=())
    assert kernel.look((LOST,), state=alone) == 0
    assert "no other node can serve" in kernel.journal[-1]
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
def test_without_debugfs_the_request_counters_decide(
    kernel: Kernel, outstanding: PendingRequests, after_s: float | None
) -> None:
    kernel.outstanding = outstanding
    kernel.look()
    for number in range(1, 12):
        ends = after_s is not None and number * LOOKS_S >= after_s
        assert bool(kernel.look()) is ends
        if ends:
            return


def test_an_answered_request_or_a_freeze_restarts_the_wait(kernel: Kernel) -> None:
    kernel.outstanding = PendingRequests(1, 0, 0)
    frozen = PRIMARY._replace(suspended="fencing")
    for number in range(40):
        kernel.answered += number % 3 == 0
        assert kernel.look() == 0
    for _ in range(20):
        assert kernel.look(state=frozen) == 0
    assert kernel.look() == 0
