# SPDX-License-Identifier: GPL-2.0-or-later
"""A stop that has taken everything down does not run out of time for a cluster that is silent."""

from __future__ import annotations

import pytest

from sanctl.agents import device, ocf
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
