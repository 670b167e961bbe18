# SPDX-License-Identifier: GPL-2.0-or-later
"""What a fault's course does with what goes on beside it: resumed, paused, then judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from sanctl.errors import NotConverged, Problem
from sanctl.lab.chaos import fault_runner
from sanctl.lab.chaos.fault import Reboot
from sanctl.lab.chaos.fault_runner import FaultResult, FaultRunner, nodes_by_role
from sanctl.lab.chaos.ledgers import DeviceLedger
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.machines.spec import Role


class StubWatch:
    """Notes what it is asked for, and what had happened by then."""

    def __init__(self, course: list[str]) -> None:
        self.course = course

    def resume(self) -> None:
        self.course.append("resume")

    def pause(self) -> None:
        self.course.append("pause")

    def judge(self, restarted: Sequence[str]) -> list[str]:
        self.course.append(f"judge, {' '.join(restarted)} booted")
        return ["a point is wrong"]

    def finish(self) -> list[str]:
        return []


class Course(FaultRunner):
    """A runner whose laboratory does nothing but recover, or not."""

    def __init__(self, course: list[str], recovers: bool) -> None:
        self.course, self.recovers = course, recovers
        machines = SimpleNamespace(machines=(SimpleNamespace(name="n1", role=Role.STORAGE),))
        machines.console_log = lambda _node: Path("/nowhere/console.log")
        bed = cast("LabSession", SimpleNamespace(lab=machines, storage=(), cluster=()))
        load = cast("DeviceLedger", SimpleNamespace(device="vol"))
        super().__init__(bed, [load], lambda _: None, (), [StubWatch(course)])
        self.loads = []
        self._booted = iter(({"n1": "a"}, {"n1": "b"}))

    def _boots(self) -> dict[str, str]:
        return next(self._booted)

    def serving(self) -> dict[str, str]:
        return {"vol": "n1"}

    def _names(self, _serving: object) -> dict[str, str]:
        return {}

    def _find_devices_that_need_an_operator(self) -> dict[str, str]:
        return {}

    def _read_logs(self, _since_s: float, *, is_orderly: bool) -> tuple[tuple[str, ...], list[str]]:
        return (), []

    def _break_and_mend(self, result: FaultResult) -> None:
        self.course.append("fault")
        if not self.recovers:
            raise NotConverged(Problem("SAN-CHAOS-001", "not recovered"))
        result.recovered_s = 1.0


@pytest.fixture(autouse=True)
def _without_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = SimpleNamespace(start=lambda: None, stop=lambda: None, violations=[])
    monkeypatch.setattr(fault_runner, "PrimaryWatch", lambda _bed: quiet)


def test_it_goes_on_through_the_fault_and_is_judged_after_the_recovery() -> None:
    course: list[str] = []
    result = Course(course, True).run_fault(1, Reboot(node="n1"))
    assert course == ["resume", "fault", "pause", "judge, n1 booted"]
    assert result.problems == ["a point is wrong"]


def test_where_the_cluster_did_not_recover_nothing_is_judged_yet() -> None:
    course: list[str] = []
    result = Course(course, False).run_fault(1, Reboot(node="n1"))
    assert course == ["resume", "fault", "pause"]
    assert ["not recovered" in each for each in result.problems] == [True]


@pytest.mark.parametrize(
    ("hosts", "has_site", "writing", "server"),
    [
        (("i1", "i2"), False, ("i1", "i2"), ""),
        (("i1", "i2"), True, ("i1",), "i2"),
        (("i1",), True, ("i1",), "i1"),
    ],
)
def test_the_last_host_is_the_server_of_a_site(
    hosts: tuple[str, ...], has_site: bool, writing: tuple[str, ...], server: str
) -> None:
    machines = [SimpleNamespace(name=name, role=Role.INITIATOR) for name in hosts]
    stub = SimpleNamespace(lab=SimpleNamespace(machines=machines), storage=(), cluster=())
    roles = nodes_by_role(cast("LabSession", stub), has_site=has_site)
    assert (roles.hosts, roles.site_server) == (writing, server)
