# SPDX-License-Identifier: GPL-2.0-or-later
"""Which starting replica waits for a turn to connect, and what it does without one."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from sanctl.agents.connections import (
    connect_turn,
    reconnect_dropped,
    standby_first,
    start_connection,
)
from sanctl.agents.connections.start_connection import Connects
from sanctl.agents.replica.parts import Device
from tests.fakes.node import FakeNode

PAIR = Device("vol1", "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ())
ONLY = PAIR._replace(nodes=("n1",))


class Start(NamedTuple):
    """A replica that starts, what it meets, and what is to become of it."""

    name: str
    wanted: Connects
    asked: str
    device: Device = PAIR
    only_peer: str | None = ""
    is_suspect: bool = False
    is_new: bool = False
    is_crashed: bool = False
    has_turn: bool = False
    monitor_takes_it: bool = True


@pytest.mark.parametrize(
    "start",
    [
        Start("turn", Connects.NOW, "turn", has_turn=True),
        Start("no turn", Connects.LATER, "turn, monitor"),
        Start("no turn, one peer", Connects.LATER, "turn, monitor", only_peer="n2"),
        Start("nobody serves it", Connects.NOW, "turn, monitor", monitor_takes_it=False),
        Start("new", Connects.NOW, "turn", is_new=True),
        Start("suspect", Connects.NEVER, "", is_suspect=True, has_turn=True),
        Start("suspect, peer not known", Connects.NEVER, "", is_suspect=True, only_peer=None),
        Start("peer not known", Connects.NOW, "", only_peer=None),
        Start("crashed", Connects.AFTER_STANDBY, "", is_crashed=True, has_turn=True),
        Start("crashed, suspect", Connects.NEVER, "", is_crashed=True, is_suspect=True),
        Start("crashed, new", Connects.NOW, "turn", is_crashed=True, is_new=True),
        Start("only replica", Connects.NOW, "", device=ONLY),
    ],
    ids=lambda start: start.name,
)
def test_a_start_connects_in_its_turn(
    start: Start, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def await_turn(minor: int, *, within_s: float, is_new: bool) -> bool:
        assert 0 < within_s <= 15.0
        assert (minor, is_new) == (start.device.minor, start.is_new)
        calls.append("turn")
        return start.has_turn

    def leave_to_monitor(*_: object) -> bool:
        calls.append("monitor")
        return start.monitor_takes_it

    monkeypatch.setattr(connect_turn, "await_turn", await_turn)
    monkeypatch.setattr(reconnect_dropped, "leave_to_monitor", leave_to_monitor)
    monkeypatch.setattr(standby_first, "begin", lambda *_: start.is_crashed)
    found = start_connection.choose(
        fake_node,
        start.device,
        start.only_peer,
        "meta",
        is_suspect=start.is_suspect,
        is_new=start.is_new,
    )
    assert (found, ", ".join(calls)) == (start.wanted, start.asked)


@pytest.mark.parametrize("is_served", [True, False])
def test_a_turn_is_given_back_where_nobody_serves(
    is_served: bool, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes start after a loss of all power: their turns must not wait for each other."""
    released: list[int] = []
    monkeypatch.setattr(connect_turn, "await_turn", lambda *_, **__: True)
    monkeypatch.setattr(connect_turn, "release", released.append)
    monkeypatch.setattr(reconnect_dropped, "is_served_by_none", lambda *_: not is_served)
    monkeypatch.setattr(standby_first, "begin", lambda *_: False)
    found = start_connection.choose(fake_node, PAIR, "", "meta", is_suspect=False, is_new=False)
    assert found is Connects.NOW
    assert released == ([] if is_served else [PAIR.minor])
