# SPDX-License-Identifier: GPL-2.0-or-later
"""Quorums that need share no node: a fenced peer does not prove that this replica is newest."""

from __future__ import annotations

import errno
import xml.etree.ElementTree as ET
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from sanctl.agents.fencing import joined_peers, quorum_overlap
from sanctl.drivers import corosync, drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.vote_mode import MAJORITY_OF_NODES, VoteMode, Votes
from sanctl.parse.corosync import Membership
from sanctl.render.corosync import quorum_section
from sanctl.system import state_files
from tests.fakes.node import FakeNode
from tests.fakes.runner import FakeRunner

TWO_NODE = frozenset({"2Node", "Quorate"})


CUT = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 0)
MET = CUT._replace(connection="Connected", disk="UpToDate", replication="Established")
NEVER = '<node_state uname="n2" crmd="0" join="down" expected="down"/>'
LEFT = ResourceState("vol1", "Secondary", "no", "UpToDate", 1024, (CUT,), minor=1)


def weigh(
    node: FakeNode,
    standing: str,
    *,
    disk: str | None = "UpToDate",
    flags: Collection[str] = TWO_NODE,
    members: Collection[str] = ("n1",),
    fencing: str = "true",
    file: VoteMode = VoteMode(votes=Votes.TWO_NODE),  # noqa: B008 - frozen
    generation: int = 8,
    has_met: bool = True,
    crmd: str = "9",
) -> str:
    node.generation = generation
    node.states["vol1"] = LEFT._replace(disk=disk, has_quorum=True) if disk else None
    node.membership = Membership("Quorate" in flags, frozenset(members), frozenset(flags))
    Path(corosync.CONF).write_text(quorum_section(file))
    runner = FakeRunner(f"{fencing}\n")
    if has_met:
        meet("n2")
    view = quorum_overlap.ClusterView(runner, ["vol1"])
    state = ET.Element("node_state", crmd=crmd)
    return quorum_overlap.membership_for_device(view, "vol1", "n2", standing, state)


def meet(node: str, **state: str) -> None:
    seen = state or {"join": "member", "crmd": "9", "expected": "member"}
    joined_peers.record_joined(node, ET.Element("node_state", seen))


def lone_node() -> FakeRunner:
    """A node with fencing whose peer has not joined, or was fenced."""
    return FakeRunner(lambda argv: NEVER if argv[0] == "cibadmin" else "true\n")


def connect(
    node_state: str = '<node_state crmd="9" join="member" expected="member"/>',
) -> FakeRunner:
    runner = FakeRunner(node_state)
    joined_peers.record_connection(runner, LEFT._replace(peers=(MET,)), ["n2"])
    return runner


def test_a_member_is_a_member(fake_node: FakeNode) -> None:
    assert weigh(fake_node, "member", disk="Consistent") == "member"


@pytest.mark.parametrize("flags", [TWO_NODE, {"Quorate", "Qdevice"}], ids=str)
@pytest.mark.parametrize("generation", [8, 9])
def test_a_connection_counts_once_the_peer_has_joined_pacemaker(
    fake_node: FakeNode, flags: Collection[str], generation: int
) -> None:
    """What broke: a booted node saw its peer for a moment, and none was fenced for the other."""
    seen: dict[str, Any] = {"flags": flags, "generation": generation, "has_met": False}
    for state in ('<node_state in_ccm="9" crmd="9"/>', "<node_state/>", ""):
        connect(state)
        assert weigh(fake_node, "fenced", **seen) == "unknown", state
    assert weigh(fake_node, "member", **seen) == "member"
    connect()
    assert weigh(fake_node, "fenced", **seen) == "fenced"


def test_where_run_is_full_the_handlers_own_process_knows_who_has_joined(
    fake_node: FakeNode, lives: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: /run was full since the start: the Primary stayed frozen for a fenced peer."""

    def no_room(_note: object, _text: str = "") -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(state_files.StateFile, "write", no_room)
    be_in(fake_node, lives[0])
    assert weigh(fake_node, "fenced", has_met=False) == "unknown"
    meet("n2")
    assert weigh(fake_node, "fenced", has_met=False) == "fenced"
    be_in(fake_node, lives[1])
    assert weigh(fake_node, "fenced", has_met=False) == "unknown"


def test_the_note_of_a_release_before_counts(fake_node: FakeNode) -> None:
    """The release is exchanged under running replicas: a fail-over right then is none refused."""
    state_files.of_device("vol1", "connected").write(joined_peers.cluster_start_id())
    assert weigh(fake_node, "fenced", has_met=False) == "fenced"


def test_the_note_of_a_release_before_is_moved_to_where_short_monitors_look(
    fake_node: FakeNode,
) -> None:
    """What broke: all monitors of such a replica were whole ones, until it was restarted."""
    old = fake_node.folder / "met-vol1"
    old.write_text(joined_peers.cluster_start_id())
    assert connect().calls == []
    assert "connected" in state_files.device_notes("vol1") and not old.exists()
    assert weigh(fake_node, "fenced", has_met=False) == "fenced"


def test_the_note_of_an_earlier_start_of_pacemaker_is_removed(
    fake_node: FakeNode, lives: list[Path]
) -> None:
    """A short monitor goes by the note's name: it took a peer for joined that had not."""
    be_in(fake_node, lives[0])
    connect()
    be_in(fake_node, lives[1])
    connect('<node_state in_ccm="9" crmd="9"/>')
    assert "connected" not in state_files.device_notes("vol1")
    connect()
    assert "connected" in state_files.device_notes("vol1")


def test_a_connection_is_asked_for_until_it_is_noted(fake_node: FakeNode) -> None:
    unjoined = '<node_state in_ccm="9" crmd="9"/>'
    assert len(connect(unjoined).calls) == len(connect(unjoined).calls) == 1
    assert len(connect().calls) == 1
    assert connect().calls == []
    # Another device, or the replica started anew: what is known of the peer is enough.
    joined_peers.remove_notes("vol1")
    assert connect().calls == []
    assert state_files.of_device("vol1", "connected").exists()


def test_where_the_cib_does_not_answer_nothing_is_noted(fake_node: FakeNode) -> None:
    silent = FakeRunner(CommandError(Problem("SAN-CMD-002", "no answer")))
    joined_peers.record_connection(silent, LEFT._replace(peers=(MET,)), ["n2"])
    joined_peers.record_connection(FakeRunner(), LEFT, [])
    assert weigh(fake_node, "fenced", has_met=False) == "unknown"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"join": "member", "crmd": "online"}, True),
        ({"join": "member", "crmd": "1795347765"}, True),
        ({"join": "pending", "crmd": "1795347765"}, False),
        ({"join": "down", "crmd": "0"}, False),
        ({"join": "member", "crmd": "0"}, False),
        ({"join": "member", "crmd": "offline"}, False),
        ({"join": "member"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_which_node_state_has_joined(state: dict[str, str] | None, expected: bool) -> None:
    element = None if state is None else ET.Element("node_state", state)
    assert joined_peers.has_joined(element) is expected


@pytest.mark.parametrize(
    ("disk", "flags", "expected"),
    [
        ("UpToDate", TWO_NODE, "fenced"),
        ("Consistent", TWO_NODE, "unknown"),
        (None, TWO_NODE, "unknown"),
        # A quorum device keeps no notes.
        ("Consistent", {"Quorate", "Qdevice"}, "unknown"),
        ("UpToDate", {"Quorate", "Qdevice"}, "fenced"),
        # With a majority the mark, if there is one, is in every quorum's CIB.
        ("Consistent", {"Quorate"}, "fenced"),
    ],
)
def test_a_replica_that_was_never_connected_is_not_trusted(
    fake_node: FakeNode, disk: str | None, flags: Collection[str], expected: str
) -> None:
    assert weigh(fake_node, "fenced", disk=disk, flags=flags) == expected


@pytest.mark.parametrize(
    ("flags", "expected"), [(TWO_NODE, "unknown"), ({"Quorate"}, "fenced")], ids=["two", "majority"]
)
def test_with_drbd_9_the_note_of_a_connection_decides(
    fake_node: FakeNode, flags: Collection[str], expected: str
) -> None:
    """DRBD 9 may call the survivor of a Primary Consistent: with heartbeat none took over."""
    seen: dict[str, Any] = {"flags": flags, "generation": 9}
    for disk in ("UpToDate", "Consistent"):
        assert weigh(fake_node, "fenced", disk=disk, **seen) == expected
        connect()
        assert weigh(fake_node, "fenced", disk=disk, **seen) == "fenced"
        joined_peers.remove_notes("vol1")
        joined_peers.remove_notes("vol1")


def test_with_drbd_9_a_connection_before_the_join_counts_once_the_peer_has_joined(
    fake_node: FakeNode, lives: list[Path]
) -> None:
    """What broke: in maintenance one probe alone looks: the Primary froze for a dead peer."""
    seen: dict[str, Any] = {"generation": 9, "has_met": False}
    fake_node.generation = 9
    be_in(fake_node, lives[0])
    connect('<node_state in_ccm="9" crmd="9"/>')
    assert weigh(fake_node, "fenced", **seen) == "unknown"
    meet("n2")
    assert weigh(fake_node, "fenced", **seen) == "fenced"
    # In a later start of Pacemaker, and of the replica, it has to connect again.
    be_in(fake_node, lives[1])
    assert weigh(fake_node, "fenced", generation=9) == "unknown"
    be_in(fake_node, lives[0])
    joined_peers.remove_notes("vol1")
    assert weigh(fake_node, "fenced", generation=9) == "unknown"


def test_one_look_asks_drbd_once(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """What broke: of a single device each question started a program."""
    asked: list[str] = []

    def observe(_runner: object, device: str) -> ResourceState:
        asked.append(device)
        return LEFT._replace(has_quorum=True)

    monkeypatch.setattr(drbdsetup, "observe", observe)
    fake_node.generation = 9
    view = quorum_overlap.ClusterView(FakeRunner("true\n"), ["vol1"])
    said = quorum_overlap.membership_for_device(view, "vol1", "n2", "fenced", None)
    assert (said, asked) == ("fenced", ["vol1"])
    assert view.state("vol1") == view.state("vol1") and asked == ["vol1"]


def test_an_operators_trust_holds_until_the_replica_is_restarted(fake_node: FakeNode) -> None:
    peer = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 0)
    state = ResourceState("vol1", "Secondary", "no", "Consistent", 1024, (peer,), minor=1)
    for generation in (8, 9):
        kept: dict[str, Any] = {"disk": "Consistent", "generation": generation}
        joined_peers.record_operator_trust("vol1")
        assert weigh(fake_node, "fenced", **kept) == "fenced"
        assert weigh(fake_node, "unknown", **kept) == "unknown", "of the peer it says nothing"
        assert quorum_overlap.may_try_promotion(FakeRunner("true\n"), state, ["n2"])
        joined_peers.remove_notes("vol1")
        assert weigh(fake_node, "fenced", **kept) == "unknown"
    fake_node.generation = 8
    assert not quorum_overlap.may_try_promotion(lone_node(), state, ["n2"])


def test_an_operators_trust_ends_with_a_connection_that_counts(
    fake_node: FakeNode, lives: list[Path]
) -> None:
    """What broke: weeks later its peer served alone and died, and old data was served."""
    joined_peers.record_operator_trust("vol1")
    connect("<node_state/>")
    assert joined_peers.is_trusted("vol1"), "the peer has not joined yet"
    connect()
    assert not joined_peers.is_trusted("vol1")
    # Of a release before, or where an agent was killed: both notes are there.
    joined_peers.record_operator_trust("vol1")
    connect()
    be_in(fake_node, lives[1])
    assert left_over(fake_node, LEFT), "it has lost its peer while no cluster software ran"
    assert weigh(fake_node, "fenced", has_met=False) == "unknown"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, "unknown"),
        ({"fencing": "false"}, "fenced"),
        ({"fencing": "false", "members": ("n1", "n2")}, "unknown"),
        # Corosync runs there, and Pacemaker has died.
        ({"fencing": "false", "members": ("n1", "n2"), "crmd": "offline"}, "fenced"),
        ({"fencing": "false", "members": ("n1", "n2"), "crmd": "0"}, "fenced"),
        ({"members": ("n1", "n2"), "crmd": "offline"}, "unknown"),
        ({"fencing": "false", "flags": {"2Node"}}, "unknown"),
        ({"fencing": "false", "flags": {"Quorate"}}, "unknown"),
        ({"fencing": "false", "file": MAJORITY_OF_NODES}, "unknown"),
    ],
)
def test_a_silent_peer_is_gone_only_where_fencing_is_off(
    fake_node: FakeNode, seen: dict[str, Any], expected: str
) -> None:
    assert weigh(fake_node, "unknown", **seen) == expected


@pytest.mark.parametrize("generation", [8, 9])
def test_without_fencing_no_promotion_is_tried_that_is_refused(
    fake_node: FakeNode, generation: int
) -> None:
    """What broke: it was a candidate, and the handler refused it for ever."""
    seen: dict[str, Any] = {"disk": "Consistent", "generation": generation, "has_met": False}
    assert weigh(fake_node, "fenced", **seen) == "unknown"
    assert weigh(fake_node, "fenced", fencing="false", **seen) == "fenced"


@pytest.mark.parametrize(
    ("disk", "connection", "seen", "expected"),
    [
        ("Consistent", "Connecting", (TWO_NODE, {"n1"}), False),
        ("Consistent", "Connecting", ({"Quorate", "Qdevice"}, {"n1"}), False),
        # The other one is there, and will say what it knows.
        ("Consistent", "Connecting", (TWO_NODE, {"n1", "n2"}), True),
        # Connected with one that has not joined: that one, too, could be promoted without it.
        ("UpToDate", "Connected", (TWO_NODE, {"n1"}), False),
        ("UpToDate", "Connecting", (TWO_NODE, {"n1"}), False),
        ("UpToDate", "Connected", (TWO_NODE, {"n1", "n2"}), True),
        # A witness would know.
        ("Consistent", "Connecting", ({"Quorate"}, {"n1", "n3"}), True),
    ],
)
def test_no_promotion_is_tried_that_the_handler_must_refuse(
    fake_node: FakeNode,
    disk: str,
    connection: str,
    seen: tuple[Collection[str], Collection[str]],
    expected: bool,
) -> None:
    flags, members = seen
    peer = PeerState("n2", connection, "Unknown", "Off", "DUnknown", 0)
    state = ResourceState("vol1", "Secondary", "no", disk, 1024, (peer,), minor=1)
    fake_node.membership = Membership("Quorate" in flags, frozenset(members), frozenset(flags))
    joined = '<node_state uname="n2" join="{}" crmd="1795347765"/>' if "n2" in members else NEVER

    def answers(join: str, fencing: str) -> FakeRunner:
        return FakeRunner(
            lambda argv: joined.format(join) if argv[0] == "cibadmin" else f"{fencing}\n"
        )

    assert quorum_overlap.may_try_promotion(answers("member", "true"), state, ["n2"]) is expected
    if "n2" in members and disk == "Consistent":
        assert not quorum_overlap.may_try_promotion(answers("down", "true"), state, ["n2"])
    # Without fencing, by the operator's word, whoever is out is taken as gone.
    assert quorum_overlap.may_try_promotion(answers("down", "false"), state, ["n2"])
    # One that serves goes on serving; and a device of one replica asks for nobody.
    primary = state._replace(role="Primary")
    assert quorum_overlap.may_try_promotion(answers("down", "true"), primary, ["n2"])
    assert quorum_overlap.may_try_promotion(answers("down", "true"), state, [])


@pytest.mark.parametrize("expected", ["member", "down"])
def test_a_peer_that_was_lost_while_it_joined_has_not(fake_node: FakeNode, expected: str) -> None:
    """A coordinator expects it from its offer on, and it may have marked this replica by itself."""
    flags = frozenset({"Quorate", "Qdevice"})
    fake_node.membership = Membership(True, frozenset({"n1"}), flags)
    lost = f'<node_state uname="n2" join="down" crmd="0" expected="{expected}"/>'
    runner = FakeRunner(lambda argv: lost if argv[0] == "cibadmin" else "true\n")
    assert not quorum_overlap.may_try_promotion(runner, LEFT, ["n2"])
    joined_peers.record_others(runner, ["n2"])
    assert weigh(fake_node, "fenced", flags=flags, has_met=False) == "unknown"


def test_a_start_notes_who_has_joined(fake_node: FakeNode) -> None:
    """What broke: the Primary died before the first monitor, and its standby had no score."""
    flags = frozenset({"Quorate", "Qdevice"})
    fake_node.membership = Membership(True, frozenset({"n1"}), flags)
    there = '<node_state uname="n2" join="member" crmd="9" expected="member"/>'
    joined_peers.record_others(FakeRunner(lambda _: there), ["n2"])
    nobody = FakeRunner()
    joined_peers.record_others(nobody, ["n2"])
    assert nobody.calls == [], "asked once"
    assert quorum_overlap.may_try_promotion(lone_node(), LEFT, ["n2"])
    assert weigh(fake_node, "fenced", flags=flags, has_met=False) == "fenced"
    # It has not been connected, whoever has joined.
    assert not quorum_overlap.may_try_promotion(
        lone_node(), LEFT._replace(disk="Consistent"), ["n2"]
    )


@pytest.mark.parametrize("generation", [8, 9])
def test_a_replica_that_has_been_connected_is_tried_without_a_question(
    fake_node: FakeNode, generation: int
) -> None:
    fake_node.generation = generation
    connect()
    nobody = FakeRunner()
    assert quorum_overlap.may_try_promotion(nobody, LEFT, ["n2"]) and nobody.calls == []


@pytest.mark.parametrize(
    ("others", "mode", "is_asked"),
    [
        (("n2", "n3"), MAJORITY_OF_NODES, False),
        (("n2", "n3"), VoteMode(votes=Votes.QDEVICE, host="10.0.0.9"), True),
        (("n2", "n3"), None, True),
        # The file may be ahead of what is in force, and of two replicas none asks for a majority.
        (("n2",), MAJORITY_OF_NODES, True),
    ],
    ids=str,
)
def test_with_three_replicas_and_a_majority_of_nodes_no_monitor_asks_corosync(
    fake_node: FakeNode, others: Collection[str], mode: VoteMode | None, is_asked: bool
) -> None:
    """What broke: with a node down since the start each monitor of a standby asked."""
    fake_node.generation = 9
    Path(corosync.CONF).write_text(quorum_section(mode) if mode else "")
    runner = FakeRunner("Quorate: Yes\n")
    assert quorum_overlap.may_try_promotion(runner, LEFT, others)
    assert bool(runner.calls) is is_asked
    Path(corosync.CONF).unlink()
    Path(corosync.CONF).mkdir()
    assert quorum_overlap.may_try_promotion(runner, LEFT, others) and runner.calls


@pytest.mark.parametrize("generation", [8, 9])
@pytest.mark.parametrize("flags", [TWO_NODE, {"Quorate", "Qdevice"}], ids=str)
def test_the_sole_survivor_serves_again_after_a_restart(
    fake_node: FakeNode, generation: int, flags: Collection[str]
) -> None:
    """What broke: n2 was off for days, n1 was restarted, and nobody served until n2 was back."""
    fake_node.generation = generation
    fake_node.membership = Membership(True, frozenset({"n1"}), frozenset(flags))

    def tries(disk: str, *peers: PeerState) -> bool:
        state = LEFT._replace(disk=disk, peers=peers)
        fake_node.states["vol1"] = state
        is_tried = quorum_overlap.may_try_promotion(lone_node(), state, ["n2"])
        view = quorum_overlap.ClusterView(FakeRunner("true\n"), ["vol1"])
        said = quorum_overlap.membership_for_device(view, "vol1", "n2", "fenced", None)
        assert said == ("fenced" if is_tried else "unknown")
        return is_tried

    for behind in ("Outdated", "Inconsistent"):
        assert tries("UpToDate", CUT._replace(disk=behind))
        assert not tries("Consistent", CUT._replace(disk=behind))
        assert not tries("Outdated", CUT._replace(disk=behind))
        assert not tries("UpToDate", MET._replace(disk=behind))
    assert not tries("UpToDate", CUT)
    assert not tries("UpToDate")


def left_over(
    node: FakeNode,
    state: ResourceState,
    *,
    flags: Collection[str] = ("Quorate", "Qdevice"),
    generation: int = 8,
) -> bool:
    node.generation = generation
    node.membership = Membership(True, frozenset({"n1"}), frozenset(flags))
    joined = FakeRunner('<node_state crmd="9" join="member" expected="member"/>')
    return quorum_overlap.predates_cluster_start(joined, state, ["n2"])


@pytest.fixture
def lives(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two lives of the cluster software, of which the first is the present one."""
    found = [fake_node.folder / "first", fake_node.folder / "second"]
    for each in found:
        each.mkdir()
    monkeypatch.setattr(joined_peers, "PACEMAKER_CGROUP", str(fake_node.folder / "unit"))
    be_in(fake_node, found[0])
    return found


def be_in(node: FakeNode, life: Path) -> None:
    (node.folder / "unit").unlink(missing_ok=True)
    (node.folder / "unit").symlink_to(life)


def test_a_replica_from_before_the_cluster_start_is_found(
    fake_node: FakeNode, lives: list[Path]
) -> None:
    assert left_over(fake_node, LEFT)
    # As after `crm_resource --cleanup`, which probes, too: it has lost its peer in this life.
    connect()
    assert not left_over(fake_node, LEFT)
    be_in(fake_node, lives[1])
    assert left_over(fake_node, LEFT)
    # Connected it is told what it lacks; and that counts in this life.
    assert not left_over(fake_node, LEFT._replace(peers=(MET,)))
    assert not left_over(fake_node, LEFT)
    # What an operator has called good is.
    be_in(fake_node, lives[0])
    joined_peers.record_operator_trust("vol1")
    assert not left_over(fake_node, LEFT)


@pytest.mark.parametrize("generation", [8, 9])
def test_a_primary_that_serves_alone_counts_as_connected_after_a_cluster_start(
    fake_node: FakeNode, lives: list[Path], generation: int
) -> None:
    """What broke: demoted after an update of Pacemaker, while its peer was off, it was blocked."""
    be_in(fake_node, lives[0])
    serves = LEFT._replace(role="Primary")
    seen: dict[str, Any] = {"generation": generation, "has_met": False}
    for other in (
        serves._replace(suspended="fencing"),
        serves._replace(disk="Consistent"),
        serves._replace(peers=(CUT, CUT)),
        LEFT,
    ):
        left_over(fake_node, other, generation=generation)
        assert weigh(fake_node, "fenced", **seen) == "unknown", other
    assert not left_over(fake_node, serves, generation=generation)
    assert weigh(fake_node, "fenced", **seen) == "fenced"


@pytest.mark.parametrize(
    "change",
    [{"role": "Primary"}, {"disk": "Consistent"}, {"disk": "Outdated"}, {"peers": ()}],
    ids=str,
)
def test_a_replica_that_cannot_be_promoted_wrongly_is_left_alone(
    fake_node: FakeNode, lives: list[Path], change: dict[str, Any]
) -> None:
    assert not left_over(fake_node, LEFT._replace(**change))


def test_where_quorums_intersect_no_replica_is_restarted(
    fake_node: FakeNode, lives: list[Path]
) -> None:
    assert not left_over(fake_node, LEFT, flags={"Quorate"})
    assert not left_over(fake_node, LEFT, generation=9)


def test_with_drbd_9_a_new_cluster_start_has_no_connection_noted(
    fake_node: FakeNode, lives: list[Path]
) -> None:
    connect()
    assert weigh(fake_node, "fenced", generation=9) == "fenced"
    be_in(fake_node, lives[1])
    assert weigh(fake_node, "fenced", generation=9) == "unknown"


def test_without_a_cluster_start_id_a_note_counts_for_the_boot(
    fake_node: FakeNode, lives: list[Path]
) -> None:
    be_in(fake_node, lives[0] / "not there")
    assert left_over(fake_node, LEFT)
    connect()
    assert not left_over(fake_node, LEFT)
