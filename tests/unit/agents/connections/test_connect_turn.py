# SPDX-License-Identifier: GPL-2.0-or-later
"""A start waits until few other resyncs are about to begin, and not for ever; one at a time."""

from __future__ import annotations

import errno
from typing import NoReturn

import pytest

from sanctl.agents.connections import connect_turn
from sanctl.drivers import drbd_kernel
from sanctl.system import state_files
from tests.fakes.node import FakeNode


@pytest.mark.parametrize(("free_after_s", "waited_s"), [(0.0, 0.0), (3.0, 3.0), (60.0, 15.0)])
def test_a_start_waits_for_its_turn(
    free_after_s: float, waited_s: float, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connections() -> dict[int, str]:
        is_busy = fake_node.clock.passed_s < free_after_s
        return dict.fromkeys((1, 2), "WFSyncUUID" if is_busy else "Connected")

    monkeypatch.setattr(drbd_kernel, "connections", connections)
    assert connect_turn.await_turn(within_s=15.0) is (free_after_s < 15.0)
    assert fake_node.clock.passed_s == pytest.approx(waited_s, abs=1.5)


def test_two_that_look_together_do_not_go_together(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drbd_kernel, "connections", dict)
    assert connect_turn.take(waited_s=1.0)
    assert not connect_turn.take(waited_s=1.0)
    assert not connect_turn.take(waited_s=None), "not after a minute either"
    with state_files.locked(state_files.node_lock("connect")):
        state_files.of_node("connected").remove()
        assert not connect_turn.take(waited_s=1.0), "another looks at this moment"
    assert connect_turn.take(waited_s=1.0)


def test_a_pace_that_cannot_be_kept_holds_nobody_up(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drbd_kernel, "connections", dict)

    def is_full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_files, "locked", is_full)
    assert connect_turn.take(waited_s=1.0)
