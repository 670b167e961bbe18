# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts stay out of a device that is being restored, also for actions ordered before that."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.replica import access_list
from sanctl.agents.replica.parts import Device
from sanctl.agents.restore import closure, unit
from sanctl.drivers import lio, own_disk
from sanctl.errors import CommandError, Problem
from sanctl.model.device_restore import COPYING, DONE, HELD, RestoreOrder
from sanctl.model.drbd import ResourceState
from sanctl.model.site_copy import SiteCopy
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner
from tests.unit.agents.points.test_unit import Recorder

ORDER = RestoreOrder("1" * 16, "good", "2" * 16, "", 1000)
COPY = SiteCopy("far", "web", "a" * 32, "to-far", "3" * 16, "d" * 64)
HOLDS = ORDER._replace(point=str(COPY), point_token="1" * 16, holds=True)
#: Each says of the device, or may say soon, that it is a copy.
CLAIMS = {
    "held": HOLDS._replace(state=HELD),
    "to be held": HOLDS._replace(state=COPYING),
    "to be a later one": HOLDS._replace(holds=False, base=COPY),
    "back": ORDER._replace(base=COPY),
}
RUNNER = LocalRunner()
DEVICE = Device(
    name="web", uuid="a" * 32, minor=1, size_bytes=1, pool="main", nodes=("n1", "n2"),
    initiators=("iqn.a",),
)  # fmt: skip


class InCib:
    """What the CIB says of the order, and how often it was asked."""

    def __init__(self) -> None:
        self.order: str | None = ""
        self.asked = 0

    def read(self, _runner: object, _name: str) -> str:
        self.asked += 1
        if self.order is None:
            raise CommandError(Problem("SAN-CMD-002", "no answer"))
        return self.order


@pytest.fixture
def in_cib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InCib:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    state_files.make_folder()
    made = InCib()
    monkeypatch.setattr(closure, "read_order", made.read)
    monkeypatch.setattr(journal, "write", lambda *_, **__: None)
    return made


def test_an_open_order_closes_the_device_and_what_cannot_be_read_does(in_cib: InCib) -> None:
    assert closure.as_ordered(DEVICE, "") == DEVICE
    assert closure.as_ordered(DEVICE, str(ORDER._replace(state=DONE))) == DEVICE
    for order in (str(ORDER), "as a later release writes it"):
        closed = closure.as_ordered(DEVICE, order)
        assert closed.all_initiators == () and closed.access == set()
        assert closure.as_known(RUNNER, closed) == closed
    assert in_cib.asked == 0


def test_without_a_restore_the_cib_is_not_asked(in_cib: InCib) -> None:
    assert closure.as_known(RUNNER, DEVICE) == DEVICE
    assert in_cib.asked == 0


def test_an_action_that_was_ordered_before_asks_the_cib(in_cib: InCib) -> None:
    closure.as_known(RUNNER, closure.as_ordered(DEVICE, str(ORDER)))
    for order in (str(ORDER), None, "as a later release writes it"):
        in_cib.order = order
        found = closure.as_known(RUNNER, DEVICE)
        assert found.restore and found.all_initiators == ()
    for order in (str(ORDER._replace(state=DONE)), ""):
        closure.note("web")
        in_cib.order = order
        assert closure.as_known(RUNNER, DEVICE) == DEVICE
    asked = in_cib.asked
    assert closure.as_known(RUNNER, DEVICE) == DEVICE
    assert in_cib.asked == asked, "the note is gone, so nothing is asked"


def test_hosts_stay_out_while_a_process_here_still_copies(
    in_cib: InCib, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A demotion could not end it, and another node has finished: it would write below hosts."""
    runner = Recorder()
    monkeypatch.setattr(unit, "_END_S", 0.1)
    monkeypatch.setattr(closure, "_GRACE_S", 0.1)
    closure.note("web")
    for order in ("", str(ORDER._replace(state=DONE))):
        in_cib.order = order
        with state_files.locked(unit.lock_path("web"), wait_s=0.0):
            found = closure.as_known(runner, DEVICE)
            assert found.restore and found.all_initiators == ()
        assert runner.started == ["sanctl-restore@web.service"], "it is ended"
        runner.started.clear()
    assert closure.as_known(runner, DEVICE) == DEVICE
    assert runner.started == []


@pytest.mark.parametrize("claim", [*CLAIMS, "of a later release"])
def test_hosts_stay_out_until_the_disk_has_that_it_is_held_no_more(
    in_cib: InCib, monkeypatch: pytest.MonkeyPatch, claim: str
) -> None:
    """After a loss of all power what they wrote would else be that copy."""
    monkeypatch.setattr(closure, "_ON_DISK_S", 0.0)
    monkeypatch.setattr(own_disk, "live_cib_version", lambda _runner: (0, 7))
    written: list[tuple[int, int] | None] = [None, (0, 6), (0, 7)]
    monkeypatch.setattr(own_disk, "written_cib_version", lambda: written[0])
    # The note was made by an order before, and the process for a later one notes it again.
    closure.as_known(RUNNER, closure.as_ordered(DEVICE, str(ORDER)))
    text = str(CLAIMS[claim]) if claim in CLAIMS else claim
    closure.as_known(RUNNER, closure.as_ordered(DEVICE, text))
    closure.as_known(RUNNER, closure.as_ordered(DEVICE, str(ORDER._replace(state=COPYING))))
    closure.note("web")
    in_cib.order = str(ORDER._replace(state=DONE))
    while written[0] != (0, 7):
        found = closure.as_known(RUNNER, DEVICE)
        assert found.restore and found.all_initiators == ()
        del written[0]
    assert closure.as_known(RUNNER, DEVICE) == DEVICE
    written[0] = None
    assert closure.as_known(RUNNER, DEVICE) == DEVICE, "they have been let in"


def test_what_was_never_held_waits_for_no_disk(
    in_cib: InCib, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_disk, "written_cib_version", lambda: None)
    closure.as_known(RUNNER, closure.as_ordered(DEVICE, str(ORDER)))
    in_cib.order = str(ORDER._replace(state=DONE))
    assert closure.as_known(RUNNER, DEVICE) == DEVICE


def test_without_room_for_the_note(in_cib: InCib, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(state_files, "replace_on_tmpfs", full)
    closed = closure.as_ordered(DEVICE, str(ORDER))
    assert closure.as_known(RUNNER, closed) == closed
    with pytest.raises(OSError, match="no space"):
        closure.note("web")


def test_a_node_is_not_promoted_that_lets_hosts_in(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = ["iqn.a"]
    monkeypatch.setattr(lio, "access", lambda _name: tuple(entries))
    monkeypatch.setattr(access_list, "update", lambda _device: True)
    closure.close_before_promotion(DEVICE)
    closed = closure.as_ordered(DEVICE, str(ORDER))
    assert closure.is_closed_as_wanted(DEVICE) and not closure.is_closed_as_wanted(closed)
    with pytest.raises(CommandError, match="SAN-AGENT-016"):
        closure.close_before_promotion(closed)
    monkeypatch.setattr(access_list, "update", lambda _device: entries.clear())
    closure.close_before_promotion(closed)
    assert closure.is_closed_as_wanted(closed)


def _state(role: str) -> ResourceState:
    return ResourceState(
        name="web", role=role, suspended="no", disk="UpToDate", size_kib=1, peers=()
    )


def test_the_unit_is_started_where_the_device_is_served() -> None:
    runner, closed = Recorder(), closure.as_ordered(DEVICE, str(ORDER))
    unit.start_if_ordered(runner, DEVICE, _state("Primary"))
    unit.start_if_ordered(runner, closed, _state("Secondary"))
    assert runner.started == []
    unit.start_if_ordered(runner, closed, _state("Primary"))
    assert runner.started == ["sanctl-restore@web.service"]


def test_the_unit_is_ended_if_its_process_may_run(
    in_cib: InCib, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Recorder()
    monkeypatch.setattr(unit, "_END_S", 0.1)
    assert unit.end(runner, "web")
    with state_files.locked(unit.lock_path("web"), wait_s=0.0):
        assert not unit.end(runner, "web")
    assert runner.started == ["sanctl-restore@web.service"]
    assert unit.end(runner, "web")
    assert len(runner.started) == 1, "it has ended"
