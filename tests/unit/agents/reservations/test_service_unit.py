# SPDX-License-Identifier: GPL-2.0-or-later
"""The service is waited for, also where its first process has failed."""

from __future__ import annotations

import pytest

from sanctl.agents.reservations import service_unit
from sanctl.errors import CommandError
from tests.fakes.node import FakeNode
from tests.fakes.runner import FakeRunner

FAILED = FakeRunner((1, "", "Job for sanctl-reservations.service failed"))


def test_one_that_systemd_starts_anew_is_waited_for(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: the device's start failed at once, for good, and the next process ran."""
    monkeypatch.setattr(service_unit, "is_mounted", lambda: fake_node.clock.passed_s > 0.3)
    service_unit.run(FAILED)
    assert 0.3 < fake_node.clock.passed_s < 1.0


def test_a_monitor_has_it_started_and_waits_for_nothing(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: each monitor of each such device waited 5 s for a service that did not start."""
    monkeypatch.setattr(service_unit, "is_mounted", lambda: False)
    monkeypatch.setattr(service_unit, "folder", lambda: "/var/target/pr")
    runner = FakeRunner()
    with pytest.raises(CommandError, match="SAN-RES-006"):
        service_unit.begin(runner)
    assert runner.calls == [(("systemctl", "start", "--no-block", service_unit.NAME), None)]
    assert fake_node.clock.passed_s == 0.0
    monkeypatch.setattr(service_unit, "is_mounted", lambda: True)
    service_unit.begin(runner)
    assert len(runner.calls) == 1


def test_one_that_does_not_run_is_an_error_in_time(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_unit, "is_mounted", lambda: False)
    monkeypatch.setattr(service_unit, "folder", lambda: "/var/target/pr")
    with pytest.raises(CommandError, match="SAN-RES-006"):
        service_unit.run(FAILED, within_s=5.0)
    assert fake_node.clock.passed_s < 6.0
