# SPDX-License-Identifier: GPL-2.0-or-later
"""The hold ends in time and lets I/O go on, whatever comes in between; then nothing is kept."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from sanctl.agents.points import held_copies
from sanctl.agents.points.group_barrier import GroupBarrier
from sanctl.agents.points.held_copies import HeldCopies
from sanctl.agents.points.local_copy import LocalCopy
from sanctl.drivers import drbd_kernel, gate
from sanctl.drivers.node_channel import Channel
from sanctl.errors import CommandError, Problem
from sanctl.model.device import DeviceSpec
from sanctl.model.names import ByteSize, DeviceName, NodeName, PoolName
from sanctl.parse.drbd import ProcState
from sanctl.plan.device.hold import HOLD_S

DEVICE = DeviceSpec(
    name=DeviceName.parse("web"), uuid="a" * 32, minor=1, size=ByteSize(bytes=1 << 20),
    pool=PoolName.parse("main"), nodes=(NodeName.parse("n1"), NodeName.parse("n2")),
    initiators=(), replicas=2,
)  # fmt: skip
IN_SYNC = ProcState("Connected", "Primary", "Secondary", "UpToDate", "UpToDate", False, 0)


class Node:
    """What the hold does on this node and says to the other one, in order."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.state: ProcState | None = IN_SYNC
        self.is_held = True
        self.size_bytes: int | None = 2 << 20
        self.writes: tuple[str, ...] | None = ("1", "8", "0", "0")
        self.on: dict[str, Callable[[], object]] = {}
        self.end = threading.Event()

    def hang(self) -> None:
        self.end.wait(30.0)

    def note(self, step: str) -> None:
        self.did.append(step)
        if step in self.on:
            self.on[step]()

    def take(self) -> None:
        self.note("take")

    def end_copying(self) -> None:
        self.note("end copying")

    def send(self, kind: str, *, left_s: float) -> None:
        assert 0 < left_s <= HOLD_S
        self.note(f"send {kind}")

    def receive(self, kind: str, *, within_s: float) -> dict[str, Any]:
        self.note(f"receive {kind}")
        return {}

    def hold(self, *, has_standby: bool = True) -> HeldCopies:
        channels = {"n2": cast("Channel", self)} if has_standby else {}
        return held_copies.make(
            DEVICE, cast("LocalCopy", self), channels, cast("GroupBarrier", self)
        )

    def await_held(self, *, within_s: float) -> None:
        self.note("await group")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node()
    monkeypatch.setattr(gate, "hold", lambda _: made.note("hold"))
    monkeypatch.setattr(gate, "release", lambda _: made.note("release"))
    monkeypatch.setattr(gate, "is_held", lambda _: made.is_held)
    monkeypatch.setattr(gate, "size_bytes", lambda _: made.size_bytes)
    monkeypatch.setattr(drbd_kernel, "ended_writes", lambda _: made.writes)
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 8)
    monkeypatch.setattr(drbd_kernel, "proc_state", lambda _: made.state)
    monkeypatch.setattr(held_copies, "notify", lambda text: made.note(text.partition("=")[0]))
    yield made
    made.end.set()


def assert_let_go(node: Node) -> None:
    # What still copies is ended before I/O goes on: hosts' writes would wait for it.
    assert node.did[0] == "READY"
    assert node.did[-3:] == ["end copying", "release", "EXTEND_TIMEOUT_USEC"]
    assert node.did.count("release") == 1


def test_systemd_knows_first_and_the_gate_is_released_last(node: Node) -> None:
    assert 0 <= node.hold().pause_s < HOLD_S
    assert node.did == [
        "READY", "hold", "await group", "send copy", "take", "receive copied",
        "end copying", "release", "EXTEND_TIMEOUT_USEC",
    ]  # fmt: skip


@pytest.mark.parametrize("step", ["hold", "await group", "take", "receive copied"])
def test_what_hangs_is_given_up_in_time(node: Node, step: str) -> None:
    node.on[step] = node.hang
    begin = time.monotonic()
    with pytest.raises(CommandError, match="SAN-SNAP-007"):
        node.hold()
    assert time.monotonic() - begin < HOLD_S + 5.0
    assert_let_go(node)


def test_a_copy_that_the_filesystem_refuses(node: Node) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOSPC, "no room", "points/web")

    node.on["take"] = refuse
    with pytest.raises(OSError, match="points/web") as refused:
        node.hold()
    assert refused.value.errno == errno.ENOSPC
    assert_let_go(node)


def test_a_peer_that_refuses(node: Node) -> None:
    def refuse() -> None:
        raise CommandError(Problem("SAN-SNAP-005", "n2: not in sync"))

    node.on["receive copied"] = refuse
    with pytest.raises(CommandError, match="n2: not in sync"):
        node.hold()
    assert_let_go(node)


def test_a_peer_that_drbd_has_lost_in_the_hold(node: Node) -> None:
    def lose() -> None:
        node.state = IN_SYNC._replace(connection="WFConnection", peer_role="Unknown")

    node.on["take"] = lose
    with pytest.raises(CommandError, match="SAN-SNAP-005"):
        node.hold()
    assert_let_go(node)
    node.did.clear()
    node.hold(has_standby=False)
    assert_let_go(node)


def test_a_gate_that_somebody_has_opened(node: Node) -> None:
    node.is_held = False
    with pytest.raises(CommandError, match="opened meanwhile"):
        node.hold()
    assert_let_go(node)


@pytest.mark.parametrize("then", [("2", "9", "0", "0"), ("1", "8", "1", "8"), None])
def test_a_gate_that_was_opened_and_suspended_again(
    node: Node, then: tuple[str, ...] | None
) -> None:
    def write() -> None:
        node.writes = then

    node.on["take"] = write
    with pytest.raises(CommandError, match="written to while its I/O was held"):
        node.hold()
    assert_let_go(node)


def test_the_point_has_the_size_that_hosts_saw_in_the_hold(node: Node) -> None:
    """What broke: the CIB was read minutes before, and a clone had no tail of a grown device."""
    assert DEVICE.size.bytes != node.size_bytes
    assert node.hold().size_bytes == 2 << 20


@pytest.mark.parametrize("then", [3 << 20, None])
def test_a_device_that_grows_in_the_hold(node: Node, then: int | None) -> None:
    def grow() -> None:
        node.size_bytes = then

    node.on["take"] = grow
    with pytest.raises(CommandError, match="SAN-SNAP-005: web has grown"):
        node.hold()
    assert_let_go(node)


def test_a_size_that_is_not_known(node: Node) -> None:
    node.size_bytes = None
    with pytest.raises(CommandError, match="SAN-SNAP-005"):
        node.hold()
    assert_let_go(node)


def test_writes_that_cannot_be_counted(node: Node) -> None:
    node.writes = None
    with pytest.raises(CommandError, match="SAN-SNAP-005"):
        node.hold()
    assert_let_go(node)


def test_nothing_is_held_where_systemd_does_not_answer(node: Node) -> None:
    def refuse() -> None:
        raise CommandError(Problem("SAN-SNAP-005", "systemd does not answer"))

    node.on["READY"] = refuse
    with pytest.raises(CommandError, match="systemd"):
        node.hold()
    assert node.did == ["READY"]
