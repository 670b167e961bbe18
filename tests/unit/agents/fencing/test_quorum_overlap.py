# SPDX-License-Identifier: GPL-2.0-or-later
"""Quorums that need have no node in common: when the word "fenced" is not enough."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from sanctl.agents.fencing import quorum_overlap
from sanctl.drivers import corosync, drbdsetup
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.vote_mode import MAJORITY_OF_NODES, VoteMode, Votes
from sanctl.parse.corosync import Membership
from sanctl.render.corosync import quorum_section
from sanctl.system import state_files
from sanctl.system.files import read_text_or
from tests.fakes.runner import FakeRunner

TWO_NODE = frozenset({"2Node", "Quorate"})


class _State:
    def __init__(self, disk: str) -> None:
        self.disk = disk
        self.peers = ("n2",)
        self.is_primary = False
        self.has_quorum = True


def weigh(
    monkeypatch: pytest.MonkeyPatch,
    standing: str,
    *,
    disk: str | None = "UpToDate",
    flags: Collection[str] = TWO_NODE,
    members: Collection[str] = ("n1",),
    fencing: str = "true",
    file: VoteMode = VoteMode(votes=Votes.TWO_NODE),  # noqa: B008 - frozen
    generation: int = 8,
    has_joined: bool = True,
) -> str:
    state: Any = None if disk is None else _State(disk)
    seen = Membership("Quorate" in flags, frozenset(members), frozenset(flags))
    monkeypatch.setattr(drbdsetup, "generation", lambda: generation)
    monkeypatch.setattr(drbdsetup, "observe", lambda *_: state)
    monkeypatch.setattr(corosync, "membership", lambda _: seen)
    monkeypatch.setattr(
        quorum_overlap,
        "read_text_or",
        lambda path, text: (
            quorum_section(file) if path == corosync.CONF else read_text_or(path, text)
        ),
    )
    runner = FakeRunner(f"{fencing}\n")
    return quorum_overlap.standing_for_device(
        runner, "vol1", "n2", standing, has_joined=lambda: has_joined
    )


def test_a_member_is_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    assert weigh(monkeypatch, "member", disk="Consistent") == "member"


@pytest.mark.parametrize(
    ("disk", "flags", "expected"),
    [
        # Its CIB, and with it the mark of this replica, comes when it joins Pacemaker.
        ("Consistent", TWO_NODE, "unknown"),
        ("Consistent", {"Quorate", "Qdevice"}, "unknown"),
        ("Consistent", {"Quorate"}, "member"),
        ("UpToDate", TWO_NODE, "member"),
    ],
)
def test_a_member_of_corosync_alone_says_nothing_to_an_untried_replica(
    monkeypatch: pytest.MonkeyPatch, disk: str, flags: Collection[str], expected: str
) -> None:
    assert weigh(monkeypatch, "member", disk=disk, flags=flags, has_joined=False) == expected


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
def test_who_has_joined(state: dict[str, str] | None, expected: bool) -> None:
    element = None if state is None else ET.Element("node_state", state)
    assert quorum_overlap.has_joined(element) is expected


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
def test_a_replica_that_has_not_met_its_peer_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, disk: str | None, flags: Collection[str], expected: str
) -> None:
    assert weigh(monkeypatch, "fenced", disk=disk, flags=flags) == expected


@pytest.mark.parametrize(
    ("flags", "expected"), [(TWO_NODE, "unknown"), ({"Quorate"}, "fenced")], ids=["two", "majority"]
)
def test_drbd_9_is_not_asked_that_but_the_note_of_a_contact(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: Collection[str], expected: str
) -> None:
    """DRBD 9 may call a survivor of a Primary Consistent: heartbeat would not take over."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    seen: dict[str, Any] = {"flags": flags, "generation": 9}
    for disk in ("UpToDate", "Consistent"):
        assert weigh(monkeypatch, "fenced", disk=disk, **seen) == expected
        quorum_overlap.record_connection("vol1")
        assert weigh(monkeypatch, "fenced", disk=disk, **seen) == "fenced"
        quorum_overlap.remove_notes("vol1")
        quorum_overlap.remove_notes("vol1")


def test_an_operators_word_holds_until_the_replica_is_started_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    peer = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 0)
    state = ResourceState("vol1", "Secondary", "no", "Consistent", 1024, (peer,), minor=1)
    for generation in (8, 9):
        kept: dict[str, Any] = {"disk": "Consistent", "generation": generation}
        quorum_overlap.record_operator_trust("vol1")
        assert weigh(monkeypatch, "fenced", **kept) == "fenced"
        assert weigh(monkeypatch, "unknown", **kept) == "unknown", "of the peer it says nothing"
        assert quorum_overlap.may_try_promotion(FakeRunner("true\n"), state, ["n2"])
        quorum_overlap.remove_notes("vol1")
        assert weigh(monkeypatch, "fenced", **kept) == "unknown"
    monkeypatch.setattr(drbdsetup, "generation", lambda: 8)
    assert not quorum_overlap.may_try_promotion(FakeRunner("true\n"), state, ["n2"])


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, "unknown"),
        ({"fencing": "false"}, "fenced"),
        ({"fencing": "false", "members": ("n1", "n2")}, "unknown"),
        ({"fencing": "false", "flags": {"2Node"}}, "unknown"),
        ({"fencing": "false", "flags": {"Quorate"}}, "unknown"),
        ({"fencing": "false", "file": MAJORITY_OF_NODES}, "unknown"),
    ],
)
def test_silence_is_absence_only_where_that_was_accepted(
    monkeypatch: pytest.MonkeyPatch, seen: dict[str, Any], expected: str
) -> None:
    assert weigh(monkeypatch, "unknown", **seen) == expected


@pytest.mark.parametrize(
    ("disk", "connection", "seen", "expected"),
    [
        ("Consistent", "Connecting", (TWO_NODE, {"n1"}), False),
        ("Consistent", "Connecting", ({"Quorate", "Qdevice"}, {"n1"}), False),
        # The other one is there, and will say what it knows.
        ("Consistent", "Connecting", (TWO_NODE, {"n1", "n2"}), True),
        ("Consistent", "Connected", (TWO_NODE, {"n1"}), True),
        ("UpToDate", "Connecting", (TWO_NODE, {"n1"}), True),
        # A witness would know.
        ("Consistent", "Connecting", ({"Quorate"}, {"n1", "n3"}), True),
    ],
)
def test_nobody_is_promoted_in_vain(
    monkeypatch: pytest.MonkeyPatch,
    disk: str,
    connection: str,
    seen: tuple[Collection[str], Collection[str]],
    expected: bool,
) -> None:
    flags, members = seen
    peer = PeerState("n2", connection, "Unknown", "Off", "DUnknown", 0)
    state = ResourceState("vol1", "Secondary", "no", disk, 1024, (peer,), minor=1)
    told = Membership("Quorate" in flags, frozenset(members), frozenset(flags))
    monkeypatch.setattr(drbdsetup, "generation", lambda: 8)
    monkeypatch.setattr(corosync, "membership", lambda _: told)
    joined = '<node_state uname="n2" join="{}" crmd="1795347765"/>'

    def answers(join: str, fencing: str) -> FakeRunner:
        return FakeRunner(
            lambda argv: joined.format(join) if argv[0] == "cibadmin" else f"{fencing}\n"
        )

    assert quorum_overlap.may_try_promotion(answers("member", "true"), state, ["n2"]) is expected
    if "n2" in members:
        assert not quorum_overlap.may_try_promotion(answers("down", "true"), state, ["n2"])
    # Without fencing, by the operator's word, whoever is out is taken as gone.
    assert quorum_overlap.may_try_promotion(answers("down", "false"), state, ["n2"])


CUT = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 0)
LEFT = ResourceState("vol1", "Secondary", "no", "UpToDate", 1024, (CUT,), minor=1)
MET = CUT._replace(connection="Connected", disk="UpToDate", replication="Established")


def left_over(
    monkeypatch: pytest.MonkeyPatch,
    state: ResourceState,
    *,
    flags: Collection[str] = ("Quorate", "Qdevice"),
    generation: int = 8,
) -> bool:
    seen = Membership(True, frozenset({"n1"}), frozenset(flags))
    monkeypatch.setattr(drbdsetup, "generation", lambda: generation)
    monkeypatch.setattr(corosync, "membership", lambda _: seen)
    return quorum_overlap.predates_cluster_start(FakeRunner(), state)


@pytest.fixture
def lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two lives of the cluster software, of which the first is the present one."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    found = [tmp_path / "first", tmp_path / "second"]
    for each in found:
        each.mkdir()
    monkeypatch.setattr(quorum_overlap, "_LIFE", str(found[0]))
    return found


def test_a_replica_left_from_before_is_found(
    monkeypatch: pytest.MonkeyPatch, lives: list[Path]
) -> None:
    assert left_over(monkeypatch, LEFT)
    # As after `crm_resource --cleanup`, which probes, too: it has lost its peer in this life.
    quorum_overlap.record_connection("vol1")
    assert not left_over(monkeypatch, LEFT)
    monkeypatch.setattr(quorum_overlap, "_LIFE", str(lives[1]))
    assert left_over(monkeypatch, LEFT)
    # Connected it is told what it lacks; and that counts in this life.
    assert not left_over(monkeypatch, LEFT._replace(peers=(MET,)))
    assert not left_over(monkeypatch, LEFT)
    # What an operator has called good is.
    monkeypatch.setattr(quorum_overlap, "_LIFE", str(lives[0]))
    quorum_overlap.record_operator_trust("vol1")
    assert not left_over(monkeypatch, LEFT)


@pytest.mark.parametrize(
    "change",
    [{"role": "Primary"}, {"disk": "Consistent"}, {"disk": "Outdated"}, {"peers": ()}],
    ids=str,
)
def test_what_cannot_be_promoted_for_it_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, lives: list[Path], change: dict[str, Any]
) -> None:
    assert not left_over(monkeypatch, LEFT._replace(**change))


def test_where_votes_keep_notes_nothing_is_started_anew(
    monkeypatch: pytest.MonkeyPatch, lives: list[Path]
) -> None:
    assert not left_over(monkeypatch, LEFT, flags={"Quorate"})
    assert not left_over(monkeypatch, LEFT, generation=9)


def test_drbd_9_has_met_nobody_in_a_new_life(
    monkeypatch: pytest.MonkeyPatch, lives: list[Path]
) -> None:
    quorum_overlap.record_connection("vol1")
    assert weigh(monkeypatch, "fenced", generation=9) == "fenced"
    monkeypatch.setattr(quorum_overlap, "_LIFE", str(lives[1]))
    assert weigh(monkeypatch, "fenced", generation=9) == "unknown"


def test_without_a_word_for_its_life_a_note_counts_for_the_boot(
    monkeypatch: pytest.MonkeyPatch, lives: list[Path]
) -> None:
    monkeypatch.setattr(quorum_overlap, "_LIFE", str(lives[0] / "not there"))
    assert left_over(monkeypatch, LEFT)
    quorum_overlap.record_connection("vol1")
    assert not left_over(monkeypatch, LEFT)
