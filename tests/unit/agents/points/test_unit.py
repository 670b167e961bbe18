# SPDX-License-Identifier: GPL-2.0-or-later
"""An order for a restore point is carried out once, by the active node, while somebody waits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.points import unit
from sanctl.agents.replica.parts import Device
from sanctl.model.drbd import ResourceState
from sanctl.model.restore_point import PointOrder
from sanctl.system import state_files
from sanctl.system.runner import CommandResult, LocalRunner

ORDER = PointOrder("one", "1" * 16, 1_000_000)


class Recorder(LocalRunner):
    def __init__(self) -> None:
        self.started: list[str] = []

    def run(self, argv: Sequence[str], **_: object) -> CommandResult:
        self.started.append(argv[-1])
        return CommandResult(tuple(argv), 0, "", "", 0.0)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    state_files.make_folder()
    monkeypatch.setattr(time, "time", lambda: ORDER.given_s + 5.0)
    return Device(
        name="web", uuid="a" * 32, minor=1, size_bytes=1, pool="main", nodes=("n1", "n2"),
        initiators=(), sync="", point=str(ORDER),
    )  # fmt: skip


def _state(role: str) -> ResourceState:
    return ResourceState(
        name="web", role=role, suspended="no", disk="UpToDate", size_kib=1, peers=()
    )


def test_started_once_on_the_active_node(device: Device) -> None:
    runner = Recorder()
    unit.start_if_ordered(runner, device, _state("Secondary"))
    assert runner.started == [] and unit.is_due(device)
    unit.start_if_ordered(runner, device, _state("Primary"))
    assert runner.started == ["sanctl-point@web.service"]
    # The unit's process notes the token before it does anything.
    unit.tried_note("web").write(ORDER.token)
    assert not unit.is_due(device)
    unit.start_if_ordered(runner, device, _state("Primary"))
    assert len(runner.started) == 1
    assert unit.is_due(device._replace(point=str(ORDER._replace(token="2" * 16))))


def test_no_order_a_strange_one_and_an_old_one(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not unit.is_due(device._replace(point=""))
    assert not unit.is_due(device._replace(point="of a later release"))
    monkeypatch.setattr(time, "time", lambda: ORDER.given_s + 61.0)
    assert not unit.is_due(device)
