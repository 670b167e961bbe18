# SPDX-License-Identifier: GPL-2.0-or-later
"""A start waits until few other resyncs are about to begin, and not for ever; one at a time."""

from __future__ import annotations

import errno
from typing import NoReturn

import pytest

from sanctl.agents.connections import connect_turn
from sanctl.drivers import drbd_kernel
from sanctl.plan.drbd import reconnect_pace
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
    assert connect_turn.await_turn(5, within_s=15.0, is_new=False) is (free_after_s < 15.0)
    assert fake_node.clock.passed_s == pytest.approx(waited_s, abs=1.5)


def test_two_that_look_together_do_not_go_together(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drbd_kernel, "connections", dict)
    assert connect_turn.take(None, waited_s=1.0)
    assert not connect_turn.take(None, waited_s=1.0)
    assert not connect_turn.take(None, waited_s=None), "not after a minute either"
    with state_files.locked(state_files.node_lock("connect")):
        state_files.of_node("connected").remove()
        assert not connect_turn.take(None, waited_s=1.0), "another looks at this moment"
    assert connect_turn.take(None, waited_s=1.0)


def test_a_pace_that_cannot_be_kept_holds_nobody_up(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drbd_kernel, "connections", dict)

    def is_full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_files, "locked", is_full)
    assert connect_turn.take(None, waited_s=1.0)


def test_a_turn_counts_until_its_connection_is_seen(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: five starts took their turns before the first one's connection was there."""
    states: dict[int, str] = {}
    ages: dict[str, float] = {}
    monkeypatch.setattr(drbd_kernel, "connections", lambda: states)

    def age_s(file: state_files.StateFile) -> float | None:
        return ages.get(file.path.rpartition("/")[2], 1.0) if file.exists() else None

    monkeypatch.setattr(state_files.StateFile, "age_s", age_s)
    assert connect_turn.take(1, waited_s=1.0)
    assert connect_turn.take(2, waited_s=1.0)
    assert not connect_turn.take(3, waited_s=1.0)
    states |= {1: "WFConnection", 2: "WFSyncUUID"}
    assert not connect_turn.take(3, waited_s=1.0), "one waits for its peer, one for the handler"
    states[2] = "SyncTarget"
    assert connect_turn.take(3, waited_s=1.0)
    assert not connect_turn.take(4, waited_s=1.0)
    ages["connect-turn.1"] = reconnect_pace.ALONE_S
    assert connect_turn.take(4, waited_s=1.0), "the peer of the first one is away"
    assert not connect_turn.take(5, waited_s=1.0)
    connect_turn.release(4)
    assert connect_turn.take(5, waited_s=1.0)
    ages["connect-turn.5"] = reconnect_pace.TAKEN_S
    assert connect_turn.take(6, waited_s=1.0)
    assert "5" not in state_files.node_suffixes("connect-turn")


def test_new_replicas_and_those_of_drbd_9_keep_no_turn(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drbd_kernel, "connections", dict)
    assert connect_turn.await_turn(1, within_s=1.0, is_new=True)
    fake_node.generation = 9
    fake_node.clock.sleep(1.0)
    state_files.of_node("connected").remove()
    assert connect_turn.await_turn(2, within_s=1.0, is_new=False)
    assert state_files.node_suffixes("connect-turn") == []
