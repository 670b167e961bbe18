# SPDX-License-Identifier: GPL-2.0-or-later
"""Usage errors of `sanctl lab` that need neither root nor a laboratory."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sanctl.errors import Refused, UsageError
from sanctl.lab.machines import commands, lab_state, requirements


@pytest.fixture(autouse=True)
def as_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "require_root", lambda: None)
    monkeypatch.setattr(lab_state, "STATE_ROOT", tmp_path)
    monkeypatch.delenv("SANCTL_LAB", raising=False)


@pytest.mark.parametrize(
    ("argv", "error", "text"),
    [
        (["up", "--name", "Bad"], UsageError, "no name for a lab"),
        (["up", "--disk-size", "much"], UsageError, "no size"),
        (["down", "--name", "none"], Refused, "there is no lab 'none'"),
        (["ssh", "n1", "true"], Refused, "there is no lab 'default'"),
        (["link", "n1", "sync", "down"], Refused, "there is no lab"),
    ],
)
def test_refusals(argv: list[str], error: type[Exception], text: str) -> None:
    result = CliRunner().invoke(commands.lab, argv)
    assert isinstance(result.exception, error)
    assert text in str(result.exception)


def test_the_labs_name_may_come_from_the_environment() -> None:
    result = CliRunner().invoke(commands.lab, ["status"], env={"SANCTL_LAB": "elsewhere"})
    assert "'elsewhere'" in str(result.exception)


@pytest.mark.parametrize("network", ["iscsi", "sync", "hb", "heartbeat"])
def test_networks_are_known_by_their_names(network: str) -> None:
    argv = ["link", "n1", network, "down", "--name", "elsewhere"]
    assert "'elsewhere'" in str(CliRunner().invoke(commands.lab, argv).exception)


def test_kernel_check_reports_what_is_missing_and_why(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("CONFIG_MODULES=y\n")
    result = CliRunner().invoke(
        commands.lab, ["kernel-check", "--config", str(config), "--for", "initiator"]
    )
    assert result.exit_code == 1
    assert "CONFIG_ISCSI_TCP is missing (m): iSCSI sessions over TCP." in result.output
    assert "CONFIG_MODULES" not in result.output
