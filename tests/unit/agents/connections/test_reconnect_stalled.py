# SPDX-License-Identifier: GPL-2.0-or-later
"""A handshake that does not end is ended and begun anew (DRBD 9)."""

from __future__ import annotations

from typing import Any

import pytest

from sanctl.agents.connections import reconnect_stalled
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.drbd.stalled_handshake import (
    STANDS_AFTER_S,
    dropped_peers,
    exchanging_peers,
    may_reconnect,
    source_for_unfilled,
)
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
    node: FakeNode,
    count: int,
    *,
    every_s: float = 11.0,
    state: ResourceState = STANDBY,
    is_member: bool = True,
) -> None:
    for _ in range(count):
        reconnect_stalled.reconnect(node, DEVICE, state, lambda _: is_member)
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


@pytest.mark.parametrize("disk", ["Outdated", "Consistent"])
@pytest.mark.parametrize("role", ["Primary", "Secondary"])
def test_a_peer_that_is_called_behind_and_lacks_nothing_is_reconnected(
    node: FakeNode, role: str, disk: str
) -> None:
    """Seen with 9.3.3 after a cut of all power: UpToDate by its own word, and for no majority."""
    outdated = STUCK._replace(replication="Established", disk=disk, out_of_sync_kib=0)
    here = STANDBY._replace(role=role, peers=(OTHER, outdated, OTHER._replace(name="n4")))
    node.states["vol"] = here
    monitors(node, 6, state=here)
    assert node.commands() == []
    monitors(node, 1, state=here)
    assert node.commands() == RECONNECT
    assert f"vol: {disk}, with no block that differs, with n2 does not end" in node.journal[-1]
    for change in ({"out_of_sync_kib": 4}, {"out_of_sync_kib": None}, {"disk": "UpToDate"}):
        other = here._replace(peers=(OTHER, outdated._replace(**change)))
        assert exchanging_peers(other) == ()
    assert exchanging_peers(here._replace(disk="Outdated")) == ()
    # Of two replicas the Primary would be frozen by it.
    assert not may_reconnect(here._replace(role="Primary", peers=(outdated,)), outdated)


TARGET = STANDBY._replace(disk="Inconsistent", peers=(SERVING, OTHER))
SOURCE = OTHER._replace(replication="SyncTarget", out_of_sync_kib=9720, received_kib=4096)
WAITING = SERVING._replace(
    replication="PausedSyncT", resync_suspended="dependency", out_of_sync_kib=98296
)
FILLED = TARGET._replace(peers=(WAITING, SOURCE))


@pytest.mark.parametrize("every_s", [11.0, 70.0])
def test_a_resync_that_stands_still_is_begun_anew(node: FakeNode, every_s: float) -> None:
    """Seen with 9.3.3 and four replicas: not one block in ten minutes, and nothing suspended."""
    node.states["vol"] = FILLED
    before = int(STANDS_AFTER_S // every_s) + 1
    monitors(node, before, state=FILLED, every_s=every_s)
    assert node.commands() == []
    monitors(node, 1, state=FILLED, every_s=every_s)
    assert node.commands() == ["drbdsetup disconnect vol 2", "drbdadm adjust vol"]
    # Each connection counts anew what it has received, and begins with a handshake.
    for again, times in enumerate((2, 4), start=1):
        source = SOURCE._replace(received_kib=again)
        monitors(
            node,
            1,
            state=FILLED._replace(peers=(WAITING, source._replace(replication="WFBitMapT"))),
        )
        anew = FILLED._replace(peers=(WAITING, source))
        monitors(node, int(times * STANDS_AFTER_S // every_s) + 1, state=anew, every_s=every_s)
        assert len(node.commands()) == 2 * again, "the next attempt waits longer"
        monitors(node, 1, state=anew, every_s=every_s)
        assert len(node.commands()) == 2 * again + 2
    moved = FILLED._replace(peers=(WAITING, SOURCE._replace(out_of_sync_kib=9716)))
    monitors(node, before + 1, state=moved, every_s=every_s)
    assert len(node.commands()) == 8, "it has moved since"


def test_a_resync_of_which_no_amount_is_known_does_not_stand_still(node: FakeNode) -> None:
    unknown = FILLED._replace(peers=(WAITING, SOURCE._replace(out_of_sync_kib=None)))
    monitors(node, 40, state=unknown)
    assert node.commands() == []


@pytest.mark.parametrize(
    "change",
    [
        {"out_of_sync_kib": 9716},
        {"received_kib": 4100},
        {"resync_suspended": "user"},
        {"replication": "PausedSyncT"},
    ],
    ids=str,
)
def test_one_that_goes_on_or_is_held_back_is_left_alone(
    node: FakeNode, change: dict[str, Any]
) -> None:
    other = FILLED._replace(peers=(WAITING, SOURCE._replace(**change)))
    for _ in range(12):
        monitors(node, 2, state=FILLED)
        monitors(node, 1, state=other)
    assert node.commands() == []


def test_a_resync_that_ended_without_an_end_is_begun_anew(node: FakeNode) -> None:
    """Seen with 9.3.3: the source became Primary meanwhile, and the target stayed Inconsistent."""
    node.states["vol"] = TARGET
    monitors(node, 6, state=TARGET)
    assert node.commands() == []
    monitors(node, 1, state=TARGET)
    assert node.commands() == ["drbdsetup disconnect vol 0", "drbdadm adjust vol"]
    # Of two replicas it is no second copy.
    assert may_reconnect(TARGET._replace(peers=(SERVING,)), SERVING)


@pytest.mark.parametrize(
    "peers",
    [
        # A verify has found blocks that differ: the other one would end a resync at once.
        (SERVING, OTHER._replace(out_of_sync_kib=8)),
        (SERVING, OTHER._replace(out_of_sync_kib=None)),
        # What one that is away knows is not seen.
        (SERVING, OTHER._replace(connection="Connecting", replication="Off", disk="DUnknown")),
        # It is being filled, or is about to be.
        (SERVING._replace(replication="SyncTarget"), OTHER),
        (SERVING._replace(replication="PausedSyncT"), OTHER),
        # Neither has data that could be sent.
        (OTHER._replace(disk="Inconsistent"),),
    ],
)
def test_a_target_of_which_more_is_known_is_left_alone(peers: tuple[PeerState, ...]) -> None:
    assert exchanging_peers(TARGET._replace(peers=peers)) == ()


@pytest.mark.parametrize("role", ["Primary", "Secondary"])
def test_a_good_replica_leaves_an_inconsistent_one_connected(role: str) -> None:
    """Another node may be filling it."""
    left = OTHER._replace(disk="Inconsistent")
    assert exchanging_peers(STANDBY._replace(role=role, peers=(left,))) == ()


def test_a_peer_that_is_none_of_the_devices_any_more_is_left_alone(node: FakeNode) -> None:
    gone = OTHER._replace(name="n9", connection="StandAlone", replication="Off")
    monitors(node, 8, state=STANDBY._replace(peers=(SERVING, gone)))
    assert state_files.device_suffixes("vol", "connects-later") == []


def test_a_standby_with_the_primarys_data_connects_to_the_other_one_again(node: FakeNode) -> None:
    alone = OTHER._replace(connection="StandAlone", replication="Off", disk="DUnknown")
    standby = STANDBY._replace(peers=(SERVING, alone))
    monitors(node, 6, state=standby)
    assert state_files.device_suffixes("vol", "connects-later") == []
    monitors(node, 1, state=standby)
    assert state_files.device_suffixes("vol", "connects-later") == ["n3"]
    assert node.commands() == []


@pytest.mark.parametrize(
    "state",
    [
        STANDBY._replace(role="Primary"),
        STANDBY._replace(disk="Inconsistent"),
        STANDBY._replace(peers=(SERVING._replace(role="Secondary"), OTHER)),
        STANDBY._replace(peers=(SERVING._replace(replication="SyncTarget"), OTHER)),
        STANDBY._replace(peers=(SERVING._replace(connection="StandAlone"),)),
    ],
)
def test_who_does_not_have_the_primarys_data_connects_to_none(state: ResourceState) -> None:
    others = tuple(
        peer if peer.name != "n3" else peer._replace(connection="StandAlone", replication="Off")
        for peer in state.peers
    )
    assert dropped_peers(state._replace(peers=others)) == ()


HALF = STANDBY._replace(
    disk="Inconsistent",
    peers=(SERVING._replace(out_of_sync_kib=8168), OTHER._replace(out_of_sync_kib=32)),
)


FILL = "drbdsetup invalidate 0 --sync-from-peer-node-id=0 --reset-bitmap=no"


@pytest.fixture
def half(node: FakeNode) -> FakeNode:
    """A node with such a disk, beside a Primary."""
    node.states["vol"] = HALF
    return node


def test_a_disk_that_nothing_fills_is_filled_by_the_primary(half: FakeNode) -> None:
    """Seen with 9.3.3 for ten minutes, after a cut in a move; no connection is to end for it."""
    monitors(half, 6, state=HALF)
    assert half.commands() == []
    monitors(half, 1, state=HALF)
    assert half.commands() == [FILL]
    monitors(half, 10, state=HALF)
    assert half.commands() == [FILL]
    monitors(half, 2, state=HALF)
    assert half.commands() == [FILL] * 2


def test_a_resync_that_has_begun_since_the_monitors_look_goes_on(half: FakeNode) -> None:
    filled = HALF.peers[0]._replace(replication="SyncTarget")
    half.states["vol"] = HALF._replace(peers=(filled, HALF.peers[1]))
    monitors(half, 20, state=HALF)
    assert half.commands() == []


def test_a_source_that_is_no_member_would_refuse(half: FakeNode) -> None:
    monitors(half, 20, state=HALF, is_member=False)
    assert half.commands() == []


@pytest.mark.parametrize(
    "state",
    [
        HALF._replace(disk="UpToDate"),
        # A resync runs, or waits, or a verify; or a peer is away, which may know of more.
        HALF._replace(peers=(HALF.peers[0], OTHER._replace(replication="SyncTarget"))),
        HALF._replace(peers=(HALF.peers[0], OTHER._replace(replication="PausedSyncT"))),
        HALF._replace(peers=(HALF.peers[0], OTHER._replace(connection="Connecting"))),
        # The Primary's bitmap does not name all that is missing.
        HALF._replace(peers=(HALF.peers[0], OTHER._replace(out_of_sync_kib=9000))),
        HALF._replace(peers=(HALF.peers[0], OTHER._replace(out_of_sync_kib=None))),
        HALF._replace(peers=(HALF.peers[0]._replace(role="Secondary"), OTHER)),
        HALF._replace(peers=(HALF.peers[0]._replace(disk="Inconsistent"), OTHER)),
        # Where nothing is named, a handshake settles it.
        HALF._replace(peers=(SERVING, OTHER)),
    ],
)
def test_no_other_disk_is_filled_so(state: ResourceState) -> None:
    assert source_for_unfilled(state) is None
    assert source_for_unfilled(HALF) == HALF.peers[0]
    assert source_for_unfilled(HALF._replace(disk="Outdated")) == HALF.peers[0]


def test_a_suspect_replica_is_not_filled_by_bitmaps(
    half: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: True)
    monitors(half, 20, state=HALF)
    assert half.commands() == []
