# SPDX-License-Identifier: GPL-2.0-or-later
"""How long a new replica waits for its peer, whose node starts it at the same time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sanctl.agents.replica import peer_contact
from sanctl.agents.replica.parts import Device
from sanctl.drivers import corosync, drbd_kernel, drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.parse.corosync import Membership
from tests.fakes.node import FakeNode

DEVICE = Device("vol1", "a" * 32, 8192, "main", ("n1", "n2"), 3, ())
PEER = PeerState("n2", "Connected", "Secondary", "Established", "Inconsistent", 0)
MET = ResourceState("vol1", "Secondary", "no", "Inconsistent", 8, (PEER,), minor=3)
ALONE = MET._replace(peers=(PEER._replace(connection="Connecting", disk="DUnknown"),))
BOTH, WITHOUT = (Membership(True, frozenset(nodes)) for nodes in (("n1", "n2"), ("n1", "n3")))


def wait(
    node: FakeNode, now: Callable[[float], tuple[ResourceState, Membership | None]]
) -> tuple[ResourceState | None, float]:
    """Wait for 25 s at most; return the state after it, and how long it took."""

    def follow() -> None:
        node.states["vol1"], node.membership = now(node.clock.passed_s)

    node.clock.on_sleep = follow
    follow()
    state = drbdsetup.observe(node, "vol1")
    return peer_contact.await_starting_peers(node, DEVICE, state, 25.0), node.clock.passed_s


@pytest.fixture(autouse=True)
def drbd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drbd_kernel, "state_line", lambda _minor: "")


def test_a_peer_that_starts_late_is_waited_for(fake_node: FakeNode) -> None:
    state, took_s = wait(fake_node, lambda s: (MET if s >= 15.0 else ALONE, BOTH))
    assert state == MET and 15.0 <= took_s < 16.0


def test_a_peer_whose_node_leaves_is_not(fake_node: FakeNode) -> None:
    """Pacemaker promotes nothing else until this start has ended."""
    state, took_s = wait(fake_node, lambda s: (ALONE, BOTH if s < 5.0 else WITHOUT))
    assert state == ALONE and took_s < 8.0
    state, took_s = wait(fake_node, lambda _: (ALONE, WITHOUT))
    assert took_s < 8.0


def test_the_wait_ends(fake_node: FakeNode) -> None:
    state, took_s = wait(fake_node, lambda _: (ALONE, BOTH))
    assert state == ALONE and 25.0 <= took_s < 28.0


def test_who_is_connected_already_is_not_waited_for(fake_node: FakeNode) -> None:
    assert wait(fake_node, lambda _: (MET, BOTH)) == (MET, 0.0)


def test_what_is_not_known_is_not_waited_for(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_runner: object) -> Membership:
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    monkeypatch.setattr(corosync, "membership", fails)
    assert wait(fake_node, lambda _: (ALONE, None)) == (ALONE, 0.0)
