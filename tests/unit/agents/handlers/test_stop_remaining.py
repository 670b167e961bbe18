# SPDX-License-Identifier: GPL-2.0-or-later
"""What is taken down before the network goes, and when it is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.handlers import stop_remaining
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, loop
from sanctl.errors import CommandError, Problem
from sanctl.system import journal
from tests.fakes.runner import FakeRunner

UUID = "c" * 32


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """A node with two devices up; returns what is taken down, by name, UUID and minor."""
    folder = tmp_path / "drbd.d"
    folder.mkdir()
    (folder / "vm1.res").write_text("resource vm1 {\n  volume 0 {\n    device minor 7;\n")
    (folder / "vm2.res").write_text("resource vm2 {\n  volume 0 {\n    device minor 12;\n")
    (folder / "half").write_text("resource half {\n")
    done: list[tuple[str, str, int]] = []

    def take_down(device: Device) -> None:
        done.append((device.name, device.uuid, device.minor))
        if device.name == "vm1":
            raise CommandError(Problem("SAN-CMD-002", "no answer within 50 s"))

    monkeypatch.setattr(drbdadm, "RESOURCE_FILES", str(tmp_path / "drbd.d"))
    monkeypatch.setattr(stop_remaining, "take_down", take_down)
    monkeypatch.setattr(loop, "backing_files", lambda: [f"/srv/main/devices/vm1.{UUID}.data"])
    monkeypatch.setattr(journal, "write", lambda *_, **__: None)
    return done


def systemd(monkeypatch: pytest.MonkeyPatch, *, system: str, pacemaker: str) -> None:
    def answer(argv: Sequence[str]) -> str:
        return f"{system}\n" if argv[1] == "is-system-running" else f"{pacemaker}\n"

    monkeypatch.setattr(stop_remaining, "_RUNNER", FakeRunner(answer))


@pytest.mark.parametrize(
    ("system", "pacemaker"),
    [("stopping", "deactivating"), ("stopping", "inactive"), ("running", "failed")],
)
def test_one_that_hangs_does_not_keep_the_others_up(
    taken: list[tuple[str, str, int]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    system: str,
    pacemaker: str,
) -> None:
    systemd(monkeypatch, system=system, pacemaker=pacemaker)
    assert stop_remaining.stop_remaining() == 1
    assert taken == [("vm1", UUID, 7), ("vm2", "none", 12)]
    assert "vm1 could not be taken down" in capsys.readouterr().out


@pytest.mark.parametrize("pacemaker", ["active", "deactivating"])
def test_a_running_cluster_is_left_alone(
    taken: list[tuple[str, str, int]], monkeypatch: pytest.MonkeyPatch, pacemaker: str
) -> None:
    """Somebody stops the unit by hand: the devices that are up are being served."""
    systemd(monkeypatch, system="running", pacemaker=pacemaker)
    assert stop_remaining.stop_remaining() == 1
    assert taken == []


def test_nothing_is_left_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drbdadm, "RESOURCE_FILES", str(tmp_path / "drbd.d"))
    systemd(monkeypatch, system="stopping", pacemaker="inactive")
    assert stop_remaining.stop_remaining() == 0
