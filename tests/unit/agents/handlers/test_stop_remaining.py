# SPDX-License-Identifier: GPL-2.0-or-later
"""Replicas that are taken down before the network stops, and when they are left alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sanctl.agents.handlers import stop_remaining
from sanctl.agents.replica.parts import Device
from sanctl.errors import CommandError, Problem
from tests.fakes.node import FakeNode

UUID = "c" * 32


@pytest.fixture
def taken(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """A node with two devices up; returns what is taken down, by name, UUID and minor."""
    folder = fake_node.folder / "drbd.d"
    folder.mkdir()
    (folder / "vm1.res").write_text("resource vm1 {\n  volume 0 {\n    device minor 7;\n")
    (folder / "vm2.res").write_text("resource vm2 {\n  volume 0 {\n    device minor 12;\n")
    (folder / "half").write_text("resource half {\n")
    done: list[tuple[str, str, int]] = []

    def take_down(device: Device) -> None:
        done.append((device.name, device.uuid, device.minor))
        if device.name == "vm1":
            raise CommandError(Problem("SAN-CMD-002", "no answer within 50 s"))

    monkeypatch.setattr(stop_remaining, "take_down", take_down)
    fake_node.attach(f"/srv/main/devices/vm1.{UUID}.data")
    return done


def systemd(node: FakeNode, *, system: str, pacemaker: str) -> None:
    def answer(argv: Sequence[str]) -> str:
        return f"{system}\n" if argv[1] == "is-system-running" else f"{pacemaker}\n"

    node.answer = answer


@pytest.mark.parametrize(
    ("system", "pacemaker"),
    [("stopping", "deactivating"), ("stopping", "inactive"), ("running", "failed")],
)
def test_a_device_that_hangs_does_not_keep_the_others_up(
    taken: list[tuple[str, str, int]],
    fake_node: FakeNode,
    capsys: pytest.CaptureFixture[str],
    system: str,
    pacemaker: str,
) -> None:
    systemd(fake_node, system=system, pacemaker=pacemaker)
    assert stop_remaining.main() == 1
    assert taken == [("vm1", UUID, 7), ("vm2", "none", 12)]
    assert "vm1 could not be taken down" in capsys.readouterr().out


@pytest.mark.parametrize("pacemaker", ["active", "deactivating"])
def test_a_running_cluster_is_left_alone(
    taken: list[tuple[str, str, int]], fake_node: FakeNode, pacemaker: str
) -> None:
    """The unit is stopped by hand: the devices that are up are in use."""
    systemd(fake_node, system="running", pacemaker=pacemaker)
    assert stop_remaining.main() == 1
    assert taken == []


def test_without_resource_files_nothing_is_taken_down(fake_node: FakeNode) -> None:
    systemd(fake_node, system="stopping", pacemaker="inactive")
    assert stop_remaining.main() == 0
