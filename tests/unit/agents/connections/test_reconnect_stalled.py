# SPDX-License-Identifier: GPL-2.0-or-later
"""A handshake that does not end is ended and begun anew (DRBD 9)."""

from __future__ import annotations

import pytest

from sanctl.agents.connections import reconnect_stalled
from sanctl.agents.replica.parts import Device
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.drbd.stalled_handshake import exchanging_peers, may_reconnect
from sanctl.system import state_files
from tests.fakes.node import FakeNode

SERVING = PeerState("n1", "Connected", "Primary", "Established", "UpToDate", 0, node_id=0)
STUCK = PeerState("n2", "Connected", "Secondary", "WFBitMapS", "UpToDate", 900, node_id=1)
OTHER = PeerState("n3", "Connected", "Secondary", "Established", "UpToDate", 0, node_id=2)
STANDBY = ResourceState(
    "vol", "Secondary", "no", "UpToDate", 1024, (SERVING, STUCK, OTHER), has_quorum=True
)
DEVICE = Device("vol", "0" * 32, 0, "main", ("n1", "n2", "n3", "n4"), 0, ())
RECONNECT = ["drbdsetup disconnect vol 1", "drbdadm adjust vol"]


@pytest.fixture
def node(fake_node: FakeNode) -> FakeNode:
    fake_node.generation = 9
    fake_node.states["vol"] = STANDBY
    return fake_node


def monitors(
    node: FakeNode, count: int, *, every_s: float = 11.0, state: ResourceState = STANDBY
) -> None:
    for _ in range(count):
        reconnect_stalled.reconnect(node, DEVICE, state)
        node.clock.now_s += every_s


def test_a_minute_of_it_is_enough_and_each_further_attempt_waits_longer(node: FakeNode) -> None:
    monitors(node, 6)
    assert node.commands() == []
    monitors(node, 1)
    assert node.commands() == RECONNECT
    monitors(node, 10)
    assert node.commands() == RECONNECT
    monitors(node, 2)
    assert node.commands() == RECONNECT * 2


def test_an_exchange_that_ended_in_between_is_another_one(node: FakeNode) -> None:
    monitors(node, 5)
    node.clock.now_s += 60
    monitors(node, 6)
    assert node.commands() == []


def test_an_interrupted_reconnect_is_finished_by_the_next_monitor(node: FakeNode) -> None:
    monitors(node, 6)
    silence = CommandError(Problem("SAN-CMD-002", "no answer"))
    node.answer = lambda argv: silence if argv[0] == "drbdadm" else ""
    with pytest.raises(CommandError):
        monitors(node, 1)
    assert state_files.of_device("vol", "outdated-unmarked.n2").exists()


def test_drbd_8_4_is_left_alone(node: FakeNode) -> None:
    node.generation = 8
    monitors(node, 20)
    assert node.commands() == []


def test_no_reconnect_costs_the_primary_its_majority() -> None:
    stuck_with_primary = SERVING._replace(replication="WFBitMapT")
    standby = STANDBY._replace(peers=(stuck_with_primary, OTHER))
    assert may_reconnect(standby, stuck_with_primary)
    alone = standby._replace(peers=(stuck_with_primary, OTHER._replace(connection="Connecting")))
    assert not may_reconnect(alone, stuck_with_primary)
    assert not may_reconnect(standby._replace(peers=(stuck_with_primary,)), stuck_with_primary)
    primary = STANDBY._replace(role="Primary", peers=(STUCK, OTHER))
    assert may_reconnect(primary, STUCK)
    assert not may_reconnect(primary._replace(disk="Diskless"), STUCK)
    filling = OTHER._replace(replication="SyncSource", disk="Inconsistent")
    assert not may_reconnect(primary._replace(peers=(STUCK, filling)), STUCK)


def test_a_disk_that_goes_on_negotiating_is_reconnected_to_one_peer_after_the_other(
    node: FakeNode,
) -> None:
    """By force: a Primary refuses the orderly end, seen with 9.3.3.

    Beside a Primary a later monitor connects, once the Primary has noticed it.
    """
    peers = (SERVING, OTHER)
    negotiating = STANDBY._replace(disk="Negotiating", peers=peers)
    node.states["vol"] = negotiating
    monitors(node, 6, state=negotiating)
    assert node.commands() == []
    monitors(node, 2, state=negotiating)
    assert node.commands() == [
        "drbdsetup disconnect vol 0 --force",
        "drbdsetup disconnect vol 2 --force", "drbdadm adjust vol",
    ]  # fmt: skip
    assert state_files.device_suffixes("vol", "connects-noticed") == [SERVING.name]
    assert state_files.device_suffixes("vol", "outdated-unmarked") == ["n3"]


def test_of_two_replicas_one_that_goes_on_negotiating_is_reconnected() -> None:
    """Its Primary has no second copy before that; of more, none is to lose its majority."""
    negotiating = STANDBY._replace(disk="Negotiating", peers=(SERVING,))
    assert exchanging_peers(negotiating) == (SERVING,)
    assert may_reconnect(negotiating, SERVING)
    alone = negotiating._replace(peers=(SERVING, OTHER._replace(connection="Connecting")))
    assert exchanging_peers(alone) == (SERVING,)
    assert not may_reconnect(alone, SERVING)
    # It is served from the peer's disk.
    assert not may_reconnect(negotiating._replace(role="Primary", peers=(OTHER,)), OTHER)
