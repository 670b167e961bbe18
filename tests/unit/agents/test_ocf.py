# SPDX-License-Identifier: GPL-2.0-or-later
"""An action that ends by an error: the exit code, and what Pacemaker and the journal are told."""

from __future__ import annotations

import errno

import pytest

from sanctl.agents import device, device_stop, ocf
from sanctl.agents.fencing import failed_stop_reboot
from sanctl.errors import CommandError, Problem
from tests.fakes.node import FakeNode


def _run(error: Exception) -> int:
    def action() -> int:
        raise error

    return ocf.run("vol1", ["device", "monitor"], {"monitor": action}, "")


@pytest.mark.parametrize(
    "error",
    [
        CommandError(Problem("SAN-CMD-004", "it could not be started")),
        OSError(errno.ENOSPC, "No space left on device"),
        MemoryError(),
        KeyError("members"),
        ValueError("of the agent's own"),
    ],
    ids=repr,
)
def test_an_error_fails_the_action_on_this_node_alone(
    error: Exception, fake_node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """ERR_CONFIGURED would have Pacemaker stop the device on every node."""
    assert _run(error) == ocf.ERR_GENERIC
    said = capsys.readouterr().err
    assert said.startswith("ocf-exit-reason:")
    assert said.count("\n") == 1
    (line,) = fake_node.journal
    assert line.startswith("vol1: monitor failed: ")


def test_the_journal_has_where_an_error_of_the_agents_own_was(fake_node: FakeNode) -> None:
    _run(KeyError("members"))
    assert "test_ocf.py" in fake_node.journal[0]


@pytest.mark.usefixtures("fake_node")
def test_a_missing_parameter_is_no_nodes_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OCF_RESOURCE_INSTANCE", "vol1")
    assert device.main(["device", "monitor"]) == ocf.ERR_CONFIGURED
    assert "the parameter uuid is not set" in capsys.readouterr().err


@pytest.mark.usefixtures("fake_node")
def test_a_stop_that_fails_by_any_error_asks_whether_to_reboot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setenv("OCF_RESOURCE_INSTANCE", "vol1")
    for key, value in (("uuid", "a" * 32), ("size", "1"), ("pool", "main"), ("nodes", "n1 n2")):
        monkeypatch.setenv(f"OCF_RESKEY_{key}", value)
    monkeypatch.setenv("OCF_RESKEY_minor", "3")

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(device_stop, "take_down", fail)
    monkeypatch.setattr(
        failed_stop_reboot,
        "reboot_after_failed_stop",
        lambda _runner, name, reason: asked.append(f"{name}: {reason}"),
    )
    assert device.main(["device", "stop"]) == ocf.ERR_GENERIC
    assert asked == ["vol1: MemoryError()"]
