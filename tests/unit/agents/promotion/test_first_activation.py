# SPDX-License-Identifier: GPL-2.0-or-later
"""The standby of a new device waits in its first monitor until its peer is Primary."""

from __future__ import annotations

import pytest

from sanctl.agents import ocf
from sanctl.agents.promotion import first_activation
from sanctl.agents.replica import parts
from sanctl.agents.replica.parts import Device, Health
from sanctl.drivers import drbd_kernel
from sanctl.model.drbd import PeerState, ResourceState
from tests.fakes.node import FakeNode

DEVICE = Device("vol1", "a" * 32, 8192, "main", ("n1", "n2"), 3, ())
PEER = PeerState("n2", "Connected", "Secondary", "Established", "Inconsistent", 0)
BLANK = ResourceState("vol1", "Secondary", "no", "Inconsistent", 8, (PEER,), minor=3)
GOOD = BLANK._replace(disk="UpToDate", peers=(PEER._replace(disk="UpToDate"),))
SERVED = GOOD._replace(peers=(PEER._replace(disk="UpToDate", role="Primary"),))
ALONE = BLANK._replace(peers=(PEER._replace(connection="Connecting", disk="DUnknown"),))
NEW = '<xpath-query><nvpair name="sanctl-new" value="true"/></xpath-query>'


class Standby:
    """A standby of vol1 whose DRBD changes with time; counts how often DRBD is asked."""

    def __init__(self, node: FakeNode, has_line: bool) -> None:
        self.node, self.has_line = node, has_line
        self.changes: list[tuple[float, ResourceState]] = []
        self.asked = 0
        self.node.answer = NEW

    def now(self) -> ResourceState:
        passed_s = self.node.clock.passed_s
        return [state for since_s, state in self.changes if since_s <= passed_s][-1]

    def observe(self, *_: object) -> Health:
        self.asked += 1
        return Health("error", "Standby", True, self.now(), False)

    def line(self, _minor: int) -> str:
        if not self.has_line:
            return ""
        state = self.now()
        peer = state.peers[0]
        connection = "Connected" if peer.is_connected else "WFConnection"
        return f"cs:{connection} ro:{state.role}/{peer.role} ds:{state.disk}/{peer.disk}"

    def first_monitor(self, *changes: tuple[float, ResourceState]) -> Health:
        self.changes = list(changes)
        return first_activation.observe_after_first_promotion(self.node, DEVICE, within_s=30.0)

    @property
    def questions(self) -> int:
        return len(self.node.commands("cibadmin"))


@pytest.fixture(params=[True, False], ids=["drbd-8.4", "drbd-9"])
def standby(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Standby:
    made = Standby(fake_node, request.param)
    monkeypatch.setattr(parts, "observe", made.observe)
    monkeypatch.setattr(drbd_kernel, "state_line", made.line)
    monkeypatch.setattr(ocf, "is_probe", lambda: False)
    return made


def test_it_waits_for_the_primary_and_knows_then_that_the_device_was_active(
    standby: Standby,
) -> None:
    found = standby.first_monitor((0.0, BLANK), (1.0, GOOD), (2.0, SERVED))
    assert found.drbd == SERVED
    assert 2.0 <= standby.node.clock.passed_s < 2.5
    assert standby.questions == 1
    if standby.has_line:
        assert standby.asked == 2, "a look costs a process"
    assert not first_activation.is_new(standby.node, DEVICE)
    assert standby.questions == 1, "a device with a Primary has ceased to be new before"


def test_no_primary_comes(standby: Standby) -> None:
    found = standby.first_monitor((0.0, BLANK), (1.0, GOOD))
    assert found.drbd == GOOD
    assert 10.0 <= standby.node.clock.passed_s < 10.5
    assert first_activation.is_new(standby.node, DEVICE), "only the CIB, or a Primary, says no"


def test_the_peer_is_lost_meanwhile(standby: Standby) -> None:
    assert standby.first_monitor((0.0, BLANK), (1.0, ALONE)).drbd == ALONE
    assert standby.node.clock.passed_s < 1.5


def test_a_device_that_was_active_is_not_waited_for(standby: Standby) -> None:
    standby.node.answer = (105, "", "")
    assert standby.first_monitor((0.0, BLANK), (1.0, SERVED)).drbd == BLANK
    assert standby.node.clock.passed_s == 0.0


def test_one_of_several_new_devices_does_not_wait(
    standby: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: of twenty created together the promotions came when these waits were over."""
    line = " 3: cs:Connected ro:Secondary/Secondary ds:Inconsistent/Inconsistent C r-----\n"
    monkeypatch.setattr(drbd_kernel, "read_text_or", lambda *_: line)
    assert standby.first_monitor((0.0, BLANK), (1.0, GOOD)).drbd == GOOD
    before_s = standby.node.clock.passed_s
    monkeypatch.setattr(drbd_kernel, "read_text_or", lambda *_: line * 2)
    standby.changes = [(0.0, BLANK)]
    assert standby.first_monitor((0.0, BLANK)).drbd == BLANK
    assert standby.node.clock.passed_s == before_s


def test_a_probe_does_not_wait(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocf, "is_probe", lambda: True)
    assert standby.first_monitor((0.0, BLANK)).drbd == BLANK
    assert (standby.node.clock.passed_s, standby.questions) == (0.0, 0)
