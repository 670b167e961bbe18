# SPDX-License-Identifier: GPL-2.0-or-later
"""A stop comes to its own end in time, also where the cluster is silent."""

from __future__ import annotations

import pytest

from sanctl.agents import device, ocf
from sanctl.agents.connections import standby_first
from sanctl.drivers import drbdsetup
from sanctl.system.runner import Runner, limit_s
from tests.fakes.node import FakeNode
from tests.unit.agents.test_no_room import Node


@pytest.mark.parametrize(("left_s", "is_told"), [(34.0, True), (32.0, False)])
def test_what_tells_the_cluster_leaves_the_time_for_the_last_look(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, left_s: float, is_told: bool
) -> None:
    """After a wait for an action that hangs, say: each attribute may take five seconds."""
    fake_node.ask_for_monitor(monkeypatch)
    Node(fake_node, monkeypatch)
    monkeypatch.setattr(ocf, "remaining_s", lambda _default_s: left_s)
    assert device.stop() == ocf.SUCCESS
    programs = {argv[0] for argv, _ in fake_node.calls}
    assert ("attrd_updater" in programs) == is_told


def test_its_programs_end_before_the_time_that_the_cluster_gives_it(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop that the cluster kills does not reboot a node without quorum."""
    fake_node.ask_for_monitor(monkeypatch)
    made = Node(fake_node, monkeypatch)
    limits: list[float] = []

    def down(runner: Runner, _name: str) -> None:
        limits.append(limit_s(runner, 20.0, "drbdsetup"))
        made.fake.states["vol1"] = None
        made.is_up = False

    monkeypatch.setattr(drbdsetup, "down", down)
    monkeypatch.setattr(ocf, "remaining_s", lambda _default_s: 7.0)
    assert device.stop() == ocf.SUCCESS
    assert 0 < limits[0] <= 7.0


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_whole_standby_says_so_when_it_is_stopped(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    fake_node.ask_for_monitor(monkeypatch)
    Node(fake_node, monkeypatch)
    monkeypatch.setattr(standby_first, "is_whole", lambda *_: is_whole)
    assert device.stop() == ocf.SUCCESS
    told = [line for line in fake_node.commands("attrd_updater") if "kept-vol1" in line]
    assert told == (["attrd_updater --name kept-vol1 --update=1"] if is_whole else [])
