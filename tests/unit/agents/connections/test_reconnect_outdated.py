# SPDX-License-Identifier: GPL-2.0-or-later
"""An Outdated replica with nothing out of sync is reconnected to the Primary (DRBD 9)."""

from __future__ import annotations

import pytest

from sanctl.agents.connections import reconnect_outdated
from sanctl.agents.replica.parts import Device
from sanctl.drivers import outdated_marks
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import state_files
from tests.fakes.node import FakeNode

SERVING = PeerState("n1", "Connected", "Primary", "Established", "UpToDate", 0, node_id=0)
OTHER = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0, node_id=1)
OVERLOOKED = ResourceState("vol", "Secondary", "no", "Outdated", 1024, (OTHER, SERVING))
GOOD = OVERLOOKED._replace(disk="UpToDate")
DEVICE = Device(
    name="vol",
    uuid="0" * 32,
    size_bytes=0,
    pool="main",
    nodes=("n1", "n2", "n3"),
    minor=0,
    initiators=(),
)
RECONNECT = ["drbdsetup disconnect vol 0", "drbdadm adjust vol"]


MARKED = outdated_marks.SeenMarks(
    0, 0, None, {"vol": outdated_marks.DeviceMarks("0" * 32, (("n1", ""),))}
)


@pytest.fixture
def node(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """The node of the replica, which is good once it is connected again."""
    monkeypatch.setattr(outdated_marks, "read_device", lambda *_: MARKED)
    fake_node.generation = 9
    fake_node.states["vol"] = GOOD
    return fake_node


def look(node: FakeNode, state: ResourceState) -> ResourceState:
    return reconnect_outdated.reconnect(node, DEVICE, state)


def test_the_second_monitor_reconnects_to_the_primary(node: FakeNode) -> None:
    assert look(node, OVERLOOKED) is OVERLOOKED
    node.age("vol", "outdated-since", 10)
    assert look(node, OVERLOOKED) is OVERLOOKED
    assert node.calls == []
    node.age("vol", "outdated-since", 16)
    assert look(node, OVERLOOKED) is GOOD
    assert node.commands() == RECONNECT
    # What did not help is tried ever more rarely.
    node.age("vol", "outdated-since", 16)
    assert look(node, OVERLOOKED) is OVERLOOKED
    node.age("vol", "outdated-since", 31)
    assert look(node, OVERLOOKED) is GOOD
    assert node.commands() == RECONNECT * 2


def test_an_interrupted_reconnect_is_finished_by_the_next_monitor(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(node, OVERLOOKED)
    node.age("vol", "outdated-since", 16)
    silence = CommandError(Problem("SAN-CMD-002", "no answer"))
    node.answer = lambda argv: silence if argv[0] == "drbdadm" else ""
    with pytest.raises(CommandError):
        look(node, OVERLOOKED)
    assert node.commands() == RECONNECT
    assert state_files.of_device("vol", "outdated-unmarked.n1").exists()


def test_an_unmarked_replica_could_be_promoted_wrongly_and_is_left_alone(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    unmarked = MARKED._replace(devices={"vol": MARKED.devices["vol"]._replace(paths=())})
    monkeypatch.setattr(outdated_marks, "read_device", lambda *_: unmarked)
    look(node, OVERLOOKED)
    node.age("vol", "outdated-since", 16)
    assert look(node, OVERLOOKED) is OVERLOOKED
    assert node.calls == []


def test_a_clock_set_back_does_not_delay_the_reconnect(node: FakeNode) -> None:
    look(node, OVERLOOKED)
    node.age("vol", "outdated-since", -3600)
    look(node, OVERLOOKED)
    assert node.commands() == RECONNECT


def test_an_interrupted_state_restarts_the_wait(node: FakeNode) -> None:
    look(node, OVERLOOKED)
    node.age("vol", "outdated-since", 60)
    look(node, OVERLOOKED._replace(peers=(OTHER, SERVING._replace(replication="SyncTarget"))))
    assert look(node, OVERLOOKED) is OVERLOOKED
    assert node.calls == []


def test_the_note_is_removed_when_the_state_ends(node: FakeNode) -> None:
    look(node, OVERLOOKED)
    node.age("vol", "outdated-since", 60)
    assert look(node, GOOD) is GOOD
    assert look(node, OVERLOOKED) is OVERLOOKED
    assert node.calls == []


@pytest.mark.parametrize(
    "state",
    [
        GOOD,
        OVERLOOKED._replace(peers=(OTHER._replace(replication="Off"), SERVING)),
        OVERLOOKED._replace(peers=(OTHER._replace(out_of_sync_kib=4), SERVING)),
        OVERLOOKED._replace(role="Primary"),
        OVERLOOKED._replace(disk="Inconsistent"),
        OVERLOOKED._replace(peers=(OTHER,)),
        OVERLOOKED._replace(peers=(OTHER._replace(replication="WFBitMapT"), SERVING)),
        OVERLOOKED._replace(peers=(OTHER, SERVING._replace(replication="SyncTarget"))),
        OVERLOOKED._replace(peers=(OTHER, SERVING._replace(out_of_sync_kib=4))),
        OVERLOOKED._replace(peers=(OTHER, SERVING._replace(out_of_sync_kib=None))),
        OVERLOOKED._replace(peers=(OTHER, SERVING._replace(disk="Inconsistent"))),
        OVERLOOKED._replace(peers=(OTHER, SERVING._replace(connection="Connecting", role="?"))),
    ],
)
def test_a_replica_that_is_behind_or_busy_is_left_alone(
    node: FakeNode, state: ResourceState
) -> None:
    for _ in range(2):
        assert look(node, state) is state
        assert not state_files.of_device("vol", "outdated-since").exists()
    assert node.calls == []


@pytest.mark.parametrize(
    "peer", [OTHER, OTHER._replace(disk="Consistent"), SERVING], ids=lambda peer: str(peer[2:5])
)
def test_of_two_replicas_whose_disks_were_lost_none_reconnects(
    node: FakeNode, peer: PeerState
) -> None:
    """What is out of sync here says nothing of the peer's bitmap, which the handshake clears."""
    two = DEVICE._replace(nodes=("n1", "n2"))
    state = OVERLOOKED._replace(peers=(peer,))
    state_files.of_device("vol", "outdated-since").write("0")
    node.age("vol", "outdated-since", 60)
    assert reconnect_outdated.reconnect(node, two, state) is state
    assert node.calls == []


def test_drbd_8_4_is_left_alone(node: FakeNode) -> None:
    node.generation = 8
    for _ in range(2):
        assert look(node, OVERLOOKED) is OVERLOOKED
    assert node.calls == []
