# SPDX-License-Identifier: GPL-2.0-or-later
"""A start that has no turn leaves its connection to the monitor, where another node serves."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.connections import (
    connect_turn,
    primary_node,
    published_state,
    reconnect_dropped,
)
from sanctl.agents.replica import lost_writes, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdadm
from sanctl.errors import CommandError, Problem
from sanctl.model.device import ReplicaState
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.parse.published_state import parse_replica_state
from sanctl.system import state_files
from tests.fakes.node import FakeNode

DEVICE = Device("vol1", "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ())
ALONE = ResourceState("vol1", "Secondary", "no", "Outdated", 1024, (), minor=3)
NOTE = "connects-later"
GIVEN_UP = PeerState("n2", "StandAlone", "Unknown", "Off", "DUnknown", 0, node_id=1)
IN_CONTACT = PeerState("n3", "Connected", "Primary", "Established", "UpToDate", 0, node_id=2)
TWO_PEERS = ALONE._replace(peers=(GIVEN_UP, IN_CONTACT), has_quorum=True)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNode:
    found = FakeNode(tmp_path).install(monkeypatch)
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 8)
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: False)
    return found


def serves(monkeypatch: pytest.MonkeyPatch, answer: str | Exception | None) -> None:
    def find(*_: object) -> str | None:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(primary_node, "find", find)


def test_the_monitor_connects_in_its_turn(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    serves(monkeypatch, "n2")
    assert reconnect_dropped.leave_to_monitor(node, DEVICE)
    turns = [False, True]
    monkeypatch.setattr(connect_turn, "take", lambda _, *, waited_s: turns.pop(0))
    node.states["vol1"] = ALONE
    reconnect_dropped.reconnect(node, "vol1", ALONE)
    assert node.commands("drbdadm") == [], "others had their turn"
    reconnect_dropped.reconnect(node, "vol1", ALONE)
    assert len(node.commands("drbdadm")) == 1
    assert state_files.device_suffixes("vol1", NOTE) == []
    reconnect_dropped.reconnect(node, "vol1", ALONE)
    assert len(node.commands("drbdadm")) == 1, "they may have diverged"


@pytest.mark.parametrize(
    ("generation", "state", "asked"),
    [
        (8, ALONE, ["drbdadm connect vol1"]),
        (9, TWO_PEERS, ["drbdsetup connect vol1 1"]),
    ],
)
def test_a_disk_that_drbd_has_dropped_is_not_attached_with_the_connection(
    node: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
    generation: int,
    state: ResourceState,
    asked: list[str],
) -> None:
    """`drbdadm adjust` attaches it unmarked, and with flash that has failed noted as valid."""
    monkeypatch.setattr(drbd_kernel, "generation", lambda: generation)
    monkeypatch.setattr(connect_turn, "take", lambda _, *, waited_s: True)
    node.states["vol1"] = state = state._replace(disk="Diskless")
    reconnect_dropped.write_note("vol1", "n2")
    reconnect_dropped.reconnect(node, "vol1", state)
    changes = [each for each in node.commands("drbdadm", "drbdsetup") if "events2" not in each]
    assert changes == asked


def notes(kind: str = "outdated-unmarked") -> list[str]:
    return state_files.device_suffixes("vol1", kind)


def changes(node: FakeNode) -> list[str]:
    return [each for each in node.commands("drbdadm", "drbdsetup") if "events2" not in each]


@pytest.fixture
def nine(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """DRBD 9, whose disk is gone; the turns that were taken, by what had waited."""
    turns: list[float | None] = []

    def take(_minor: object, *, waited_s: float | None) -> bool:
        turns.append(waited_s)
        return True

    monkeypatch.setattr(drbd_kernel, "generation", lambda: 9)
    monkeypatch.setattr(connect_turn, "take", take)
    return turns


def refusing(node: FakeNode, refused: str, *, code: str = "SAN-CMD-003") -> None:
    error = CommandError(Problem(code, "refused"))
    node.answer = lambda argv: error if " ".join(argv) == refused else ""


def test_a_peer_that_is_refused_keeps_no_other_alone(
    node: FakeNode, nine: list[float | None]
) -> None:
    """What broke: one without a path was asked first, and the other stayed StandAlone for ever."""
    other = GIVEN_UP._replace(name="n3", node_id=2)
    node.states["vol1"] = state = ALONE._replace(
        disk="Diskless", peers=(GIVEN_UP, other), has_quorum=True
    )
    reconnect_dropped.write_note("vol1", "n2")
    reconnect_dropped.write_later("vol1", "n2")
    reconnect_dropped.write_note("vol1", "n3")
    reconnect_dropped.write_later("vol1", "n3")
    refusing(node, "drbdsetup connect vol1 1")
    with pytest.raises(CommandError):
        reconnect_dropped.reconnect(node, "vol1", state)
    assert changes(node) == ["drbdsetup connect vol1 1", "drbdsetup connect vol1 2"]
    assert notes(NOTE) == ["n2"] and notes() == []
    state_files.of_device("vol1", f"{NOTE}.n2").remove()
    reconnect_dropped.write_note("vol1", "n2")
    with pytest.raises(CommandError):
        reconnect_dropped.reconnect(node, "vol1", state)
    assert notes() == ["n2"], "of the one that was not asked it stays"
    assert len([each for each in node.journal if "connecting:" in each]) == 1


def test_after_a_peer_that_hangs_no_other_is_asked(
    node: FakeNode, nine: list[float | None]
) -> None:
    """Each would take its seconds, and the monitor has to end."""
    other = GIVEN_UP._replace(name="n3", node_id=2)
    state = ALONE._replace(disk="Diskless", peers=(GIVEN_UP, other), has_quorum=True)
    reconnect_dropped.write_note("vol1", "n2")
    reconnect_dropped.write_note("vol1", "n3")
    refusing(node, "drbdsetup connect vol1 1", code="SAN-CMD-002")
    with pytest.raises(CommandError):
        reconnect_dropped.reconnect(node, "vol1", state)
    assert changes(node) == ["drbdsetup connect vol1 1"]
    assert notes() == ["n2", "n3"]


def test_a_noticed_peer_that_is_refused_keeps_no_other_alone(
    node: FakeNode, nine: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        published_state,
        "of_peer",
        lambda *_: parse_replica_state("connection=Connecting suspended=no"),
    )
    others = [GIVEN_UP._replace(name=f"n{each}", node_id=each - 1) for each in (3, 4)]
    node.states["vol1"] = state = ALONE._replace(
        disk="Diskless", peers=(GIVEN_UP, *others), has_quorum=True
    )
    reconnect_dropped.write_noticed("vol1", "n2")
    reconnect_dropped.write_noticed("vol1", "n3")
    reconnect_dropped.write_note("vol1", "n4")
    refusing(node, "drbdsetup connect vol1 1")
    reconnect_dropped.reconnect(node, "vol1", state)
    assert notes("connects-noticed") == ["n2"]
    reconnect_dropped.write_note("vol1", "n4")
    with pytest.raises(CommandError):
        reconnect_dropped.reconnect(node, "vol1", state._replace(peers=(GIVEN_UP, others[1])))
    assert notes() == []


def test_without_a_disk_and_without_peers_these_are_made_known_first(
    node: FakeNode, nine: list[float | None]
) -> None:
    """What broke: nobody was asked, the note was gone, and the journal said that it connects."""
    state = ALONE._replace(disk="Diskless", has_quorum=True)
    known = state._replace(peers=(GIVEN_UP,))
    reconnect_dropped.write_note("vol1", "n2")
    node.states["vol1"] = state

    def answer(argv: Sequence[str]) -> str:
        if "new-path" in argv:
            node.states["vol1"] = known
        return ""

    node.answer = answer
    reconnect_dropped.reconnect(node, "vol1", state)
    told = ["drbdadm new-peer vol1", "drbdadm new-path vol1"]
    assert changes(node) == [*told, "drbdsetup connect vol1 1"]
    assert notes() == [] and len(nine) == 1


def test_peers_that_stay_unknown_keep_their_notes(node: FakeNode, nine: list[float | None]) -> None:
    node.states["vol1"] = state = ALONE._replace(disk="Diskless", has_quorum=True)
    reconnect_dropped.write_note("vol1", "n2")
    reconnect_dropped.write_later("vol1", "n2")
    for _ in range(3):
        assert reconnect_dropped.reconnect(node, "vol1", state) == state
    assert len(changes(node)) == 2, "they are told it once in some minutes"
    assert notes() == notes(NOTE) == ["n2"] and nine == []
    assert not [each for each in node.journal if "connecting:" in each]


@pytest.mark.parametrize("disk", ["Diskless", "Outdated"])
def test_a_peer_that_the_resource_file_leaves_out_keeps_its_note(
    node: FakeNode, nine: list[float | None], monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    monkeypatch.setattr(resource_file, "only_peer", lambda _: "n3")
    node.states["vol1"] = state = ALONE._replace(disk=disk, peers=(GIVEN_UP,), has_quorum=True)
    reconnect_dropped.write_note("vol1", "n2")
    reconnect_dropped.reconnect(node, "vol1", state)
    assert reconnect_dropped.connect_again(node, "vol1", state, ["n2"]).asked == frozenset()
    assert changes(node) == [] and notes() == ["n2"] and nine == []


def test_an_attempt_that_failed_is_repeated(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves(monkeypatch, "n2")
    assert reconnect_dropped.leave_to_monitor(node, DEVICE)
    monkeypatch.setattr(connect_turn, "take", lambda _, *, waited_s: waited_s is not None)
    node.states["vol1"] = ALONE

    def fail(*_: object) -> None:
        raise CommandError(Problem("SAN-CMD-002", "no answer within 8 s"))

    with monkeypatch.context() as once:
        once.setattr(drbdadm, "adjust", fail)
        with pytest.raises(CommandError):
            reconnect_dropped.reconnect(node, "vol1", ALONE)
    assert state_files.device_suffixes("vol1", NOTE) == ["n2"]
    reconnect_dropped.reconnect(node, "vol1", ALONE)
    assert len(node.commands("drbdadm")) == 1


@pytest.mark.parametrize("kind", ["outdated-unmarked", "filled"])
def test_what_a_handler_notes_after_the_monitors_look_stays(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Seen on a busy node: the peer was in sync by that look, and StandAlone for good after it."""
    monkeypatch.setattr(connect_turn, "take", lambda _, *, waited_s: False)
    in_sync = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0, node_id=1)
    look = TWO_PEERS._replace(disk="UpToDate", peers=(in_sync, IN_CONTACT))
    reconnect_dropped.write_note("vol1", "n2")
    reconnect_dropped.write_filled("vol1", "n2")
    gone = GIVEN_UP._replace(disk="Outdated")
    node.states["vol1"] = look._replace(peers=(gone, IN_CONTACT))
    reconnect_dropped.reconnect(node, "vol1", look)
    assert state_files.device_suffixes("vol1", kind) == ["n2"]
    node.states["vol1"] = look
    reconnect_dropped.reconnect(node, "vol1", look)
    assert state_files.device_suffixes("vol1", kind) == []


def test_a_replica_in_sync_needs_no_note(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    serves(monkeypatch, "n2")
    assert reconnect_dropped.leave_to_monitor(node, DEVICE)
    peer = PeerState("n2", "Connected", "Primary", "Established", "UpToDate", 0)
    reconnect_dropped.reconnect(node, "vol1", ALONE._replace(disk="UpToDate", peers=(peer,)))
    assert state_files.device_suffixes("vol1", NOTE) == []


@pytest.mark.parametrize(
    "answer", ["", None, CommandError(Problem("SAN-CMD-002", "no answer within 8 s"))]
)
def test_the_start_connects_where_nobody_is_known_to_serve(
    answer: str | Exception | None, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves(monkeypatch, answer)
    assert not reconnect_dropped.leave_to_monitor(node, DEVICE)
    assert state_files.device_suffixes("vol1", NOTE) == []


def test_the_start_connects_where_no_note_can_be_left(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves(monkeypatch, "n2")

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_files.StateFile, "write", no_room)
    assert not reconnect_dropped.leave_to_monitor(node, DEVICE)


def test_with_drbd_9_a_start_always_connects(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves(monkeypatch, "n2")
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 9)
    assert not reconnect_dropped.leave_to_monitor(node, DEVICE)


def test_it_publishes_since_when_a_replica_waits_for_its_turn(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    serves(monkeypatch, "n2")
    assert reconnect_dropped.published_field("vol1", ALONE) == "", "DRBD refused its peer"
    assert reconnect_dropped.leave_to_monitor(node, DEVICE)
    written_ns = state_files.of_device("vol1", f"{NOTE}.n2").written_ns()
    assert written_ns is not None
    field = f" connects-later={written_ns // 10**9}"
    assert reconnect_dropped.published_field("vol1", ALONE) == field
    assert reconnect_dropped.published_field("vol1", None) == ""
    tries = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 0)
    connecting = ALONE._replace(peers=(tries,))
    assert reconnect_dropped.published_field("vol1", connecting) == "", "an operator connected it"


def test_who_serves_a_device_is_known_or_not(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = CommandError(Problem("SAN-CMD-002", "no answer"))
    for answer, is_served_by_none in (("", True), ("n2", False), (None, False), (silent, False)):
        serves(monkeypatch, answer)
        assert reconnect_dropped.is_served_by_none(node, DEVICE) is is_served_by_none
    serves(monkeypatch, "")
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 9)
    assert not reconnect_dropped.is_served_by_none(node, DEVICE)


CUT = PeerState("n2", "StandAlone", "Unknown", "Off", "DUnknown", 0, node_id=1)
BACK = CUT._replace(connection="Connected", role="Primary", replication="Established")
BESIDE = ALONE._replace(peers=(CUT,), has_quorum=True)


@pytest.fixture
def primary(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """What the Primary on n2 has published; the connection to it was cut here, n1."""
    said: dict[str, str | None] = {"text": None}

    def of_peer(_runner: object, device: str, peer: str) -> ReplicaState | None:
        assert (device, peer) == ("vol1", "n2")
        return None if said["text"] is None else parse_replica_state(said["text"])

    monkeypatch.setattr(published_state, "of_peer", of_peer)
    node.states["vol1"] = BESIDE
    reconnect_dropped.write_noticed("vol1", "n2")
    return said


@pytest.mark.parametrize(
    "text",
    [
        None,
        "disk=UpToDate",
        "connection=Connected suspended=no",
        "connection=Connecting suspended=fencing",
        "connection=Connecting",
        "peers=n1,n3 connection=Connected,Connecting replication=Established,Off"
        " peer-disk=Outdated,DUnknown suspended=no",
    ],
)
def test_a_primary_whose_handler_may_be_at_work_is_left_alone(
    node: FakeNode, primary: dict[str, str | None], text: str | None
) -> None:
    """What broke: connected before its fence-peer had answered, DRBD cleared both bitmaps."""
    primary["text"] = text
    for _ in range(3):
        reconnect_dropped.reconnect(node, "vol1", BESIDE)
    assert node.commands("drbdadm") == []
    assert state_files.device_suffixes("vol1", "connects-noticed") == ["n2"]


@pytest.mark.parametrize(
    "text",
    [
        "connection=Connecting suspended=no",
        "peers=n1,n3 connection=Connecting,Connected replication=Off,Established"
        " peer-disk=DUnknown,UpToDate suspended=no",
    ],
)
def test_one_that_goes_on_is_connected_once(
    node: FakeNode, primary: dict[str, str | None], text: str
) -> None:
    primary["text"] = text
    refused = CommandError(Problem("SAN-CMD-003", "busy"))
    node.answer = lambda argv: refused
    with pytest.raises(CommandError):
        reconnect_dropped.reconnect(node, "vol1", BESIDE)
    node.answer = lambda argv: ""
    reconnect_dropped.reconnect(node, "vol1", BESIDE)
    assert node.commands("drbdadm") == ["drbdadm adjust vol1"] * 2
    reconnect_dropped.reconnect(node, "vol1", BESIDE)
    assert len(node.commands("drbdadm")) == 2, "they may have diverged"


def test_its_disk_that_was_lost_meanwhile_is_not_attached_with_the_connection(
    node: FakeNode, primary: dict[str, str | None]
) -> None:
    primary["text"] = "connection=Connecting suspended=no"
    reconnect_dropped.reconnect(node, "vol1", BESIDE._replace(disk="Diskless"))
    assert node.commands("drbdadm") == ["drbdadm connect vol1"]


def test_one_that_somebody_has_connected_is_not_waited_for(
    node: FakeNode, primary: dict[str, str | None]
) -> None:
    reconnect_dropped.reconnect(node, "vol1", BESIDE._replace(peers=(BACK,)))
    assert state_files.device_suffixes("vol1", "connects-noticed") == []
    assert primary["text"] is None and node.commands("drbdadm") == []


@pytest.mark.parametrize(
    ("own", "peer", "stays"),
    [
        ("UpToDate", BACK._replace(replication="SyncSource", disk="Inconsistent"), True),
        ("Consistent", BACK._replace(disk="Consistent"), True),
        ("UpToDate", BACK._replace(disk="UpToDate"), False),
        ("Consistent", BACK._replace(disk="Diskless"), False),
        ("Diskless", BACK._replace(disk="Consistent"), False),
        ("Consistent", CUT, False),
    ],
)
def test_that_a_peer_was_filled_is_known_while_both_disks_are_there(
    node: FakeNode, own: str, peer: PeerState, stays: bool
) -> None:
    state = BESIDE._replace(disk=own, peers=(peer,))
    node.states["vol1"] = state
    reconnect_dropped.write_filled("vol1", "n2")
    reconnect_dropped.reconnect(node, "vol1", state)
    assert reconnect_dropped.is_filled("vol1", "n2") is stays
