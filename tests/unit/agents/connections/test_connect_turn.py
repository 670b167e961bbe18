# SPDX-License-Identifier: GPL-2.0-or-later
"""A start waits until few other resyncs are about to begin, and not for ever."""

from __future__ import annotations

import pytest

from sanctl.agents.connections import connect_turn
from sanctl.drivers import drbdsetup
from tests.fakes.node import FakeNode


@pytest.mark.parametrize(("free_after_s", "waited_s"), [(0.0, 0.0), (3.0, 3.0), (60.0, 15.0)])
def test_a_start_waits_for_its_turn(
    free_after_s: float, waited_s: float, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connections() -> dict[int, str]:
        is_busy = fake_node.clock.passed_s < free_after_s
        return dict.fromkeys((1, 2), "WFSyncUUID" if is_busy else "Connected")

    monkeypatch.setattr(drbdsetup, "connections", connections)
    connect_turn.await_turn(within_s=15.0)
    assert fake_node.clock.passed_s == pytest.approx(waited_s, abs=1.5)
