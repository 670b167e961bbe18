# SPDX-License-Identifier: GPL-2.0-or-later
"""Replicas that are taken down before the network stops, and when they are left alone."""

from __future__ import annotations

import io
import signal
import time
from collections.abc import Callable, Sequence

import pytest

from sanctl.agents.handlers import stop_remaining
from sanctl.agents.replica.parts import Device
from sanctl.errors import CommandError, Problem
from sanctl.plan.device import stop_pace
from sanctl.system.runner import Runner
from tests.fakes.node import FakeNode

UUID = "c" * 32


Taken = Callable[[], list[str]]


@pytest.fixture
def taken(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Taken:
    """A node with two devices up; returns what was taken down, with name, UUID and minor.

    By files: each is taken down in a process of its own.
    """
    folder = fake_node.folder / "drbd.d"
    folder.mkdir()
    (folder / "vm1.res").write_text("resource vm1 {\n  volume 0 {\n    device minor 7;\n")
    (folder / "vm2.res").write_text("resource vm2 {\n  volume 0 {\n    device minor 12;\n")
    (folder / "half").write_text("resource half {\n")
    done = fake_node.folder / "taken-down"
    done.mkdir()

    def take_down(_runner: Runner, device: Device) -> None:
        (done / f"{device.name} {device.uuid} {device.minor}").touch()
        if device.name == "vm1":
            raise CommandError(Problem("SAN-CMD-002", "no answer within 50 s"))
        if device.name.startswith("hangs"):
            signal.pause()

    monkeypatch.setattr(stop_remaining, "take_down", take_down)
    fake_node.attach(f"/srv/main/devices/vm1.{UUID}.data")
    return lambda: sorted(path.name for path in done.iterdir())


def systemd(node: FakeNode, *, system: str, pacemaker: str) -> None:
    def answer(argv: Sequence[str]) -> str:
        return f"{system}\n" if argv[1] == "is-system-running" else f"{pacemaker}\n"

    node.answer = answer


@pytest.mark.parametrize(
    ("system", "pacemaker"),
    [("stopping", "deactivating"), ("stopping", "inactive"), ("running", "failed")],
)
def test_a_device_that_fails_does_not_keep_the_others_up(
    taken: Taken,
    fake_node: FakeNode,
    capsys: pytest.CaptureFixture[str],
    system: str,
    pacemaker: str,
) -> None:
    systemd(fake_node, system=system, pacemaker=pacemaker)
    assert stop_remaining.main() == 1
    assert taken() == [f"vm1 {UUID} 7", "vm2 none 12"]
    said = capsys.readouterr().out
    assert "vm1 could not be taken down" in said and "no answer within 50 s" in said


def test_devices_that_hang_do_not_keep_fifty_others_up(
    taken: Taken,
    fake_node: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As where a disk of one pool hangs: more of them than are taken down at a time."""
    for minor in range(20, 70):
        text = f"    device minor {minor};\n"
        (fake_node.folder / f"drbd.d/zz{minor}.res").write_text(text)
    for number in range(stop_pace.AT_A_TIME):
        text = f"    device minor {100 + number};\n"
        (fake_node.folder / f"drbd.d/hangs{number}.res").write_text(text)
    # The fake node's clock stands still while processes run.
    monkeypatch.setattr(time, "monotonic", time.perf_counter)
    monkeypatch.setattr(stop_pace, "SLOW_S", 0.5)
    monkeypatch.setattr(stop_pace, "ALL_WITHIN_S", 6.0)
    systemd(fake_node, system="stopping", pacemaker="inactive")
    assert stop_remaining.main() == 1
    assert len(taken()) == 2 + 50 + stop_pace.AT_A_TIME
    said = capsys.readouterr().out
    assert [f"hangs{n} could not" in said for n in range(stop_pace.AT_A_TIME)].count(True) == 8
    assert "zz20 could not" not in said


def test_a_console_that_is_gone_keeps_no_device_up(
    taken: Taken, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    systemd(fake_node, system="stopping", pacemaker="inactive")
    monkeypatch.setattr("sys.stdout", Gone())
    assert stop_remaining.main() == 1
    assert len(taken()) == 2


@pytest.mark.parametrize("pacemaker", ["active", "deactivating"])
def test_a_running_cluster_is_left_alone(taken: Taken, fake_node: FakeNode, pacemaker: str) -> None:
    """The unit is stopped by hand: the devices that are up are in use."""
    systemd(fake_node, system="running", pacemaker=pacemaker)
    assert stop_remaining.main() == 1
    assert taken() == []


def test_without_resource_files_nothing_is_taken_down(fake_node: FakeNode) -> None:
    systemd(fake_node, system="stopping", pacemaker="inactive")
    assert stop_remaining.main() == 0
