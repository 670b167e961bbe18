"""Quorums that need have no node in common: when the word "fenced" is not enough."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from sanctl.agents import pair
from sanctl.drivers import corosync, drbd
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.quorum import PLAIN, Tally, Votes
from sanctl.parse.corosync import Membership
from sanctl.render.corosync import quorum_section
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
    file: Tally = Tally(votes=Votes.TWO_NODE),  # noqa: B008 - frozen
    generation: int = 8,
) -> str:
    state: Any = None if disk is None else _State(disk)
    seen = Membership("Quorate" in flags, frozenset(members), frozenset(flags))
    monkeypatch.setattr(drbd, "generation", lambda: generation)
    monkeypatch.setattr(drbd, "observe", lambda *_: state)
    monkeypatch.setattr(corosync, "membership", lambda _: seen)
    monkeypatch.setattr(pair, "read_text_or", lambda *_: quorum_section(file))
    return pair.weigh(FakeRunner(f"{fencing}\n"), "vol1", "n2", standing)


def test_a_member_is_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    assert weigh(monkeypatch, "member", disk="Consistent") == "member"


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
    monkeypatch.setattr(pair, "_NOTES", str(tmp_path))
    seen: dict[str, Any] = {"flags": flags, "generation": 9}
    for disk in ("UpToDate", "Consistent"):
        assert weigh(monkeypatch, "fenced", disk=disk, **seen) == expected
        pair.note_contact("vol1")
        assert weigh(monkeypatch, "fenced", disk=disk, **seen) == "fenced"
        pair.forget("vol1")
        pair.forget("vol1")


def test_an_operators_word_holds_until_the_replica_is_started_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pair, "_NOTES", str(tmp_path))
    peer = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 0)
    state = ResourceState("vol1", "Secondary", "no", "Consistent", 1024, (peer,), minor=1)
    for generation in (8, 9):
        kept: dict[str, Any] = {"disk": "Consistent", "generation": generation}
        pair.note_trust("vol1")
        assert weigh(monkeypatch, "fenced", **kept) == "fenced"
        assert weigh(monkeypatch, "unknown", **kept) == "unknown", "of the peer it says nothing"
        assert pair.may_ask(FakeRunner("true\n"), state, ["n2"])
        pair.forget("vol1")
        assert weigh(monkeypatch, "fenced", **kept) == "unknown"
    monkeypatch.setattr(drbd, "generation", lambda: 8)
    assert not pair.may_ask(FakeRunner("true\n"), state, ["n2"])


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, "unknown"),
        ({"fencing": "false"}, "fenced"),
        ({"fencing": "false", "members": ("n1", "n2")}, "unknown"),
        ({"fencing": "false", "flags": {"2Node"}}, "unknown"),
        ({"fencing": "false", "flags": {"Quorate"}}, "unknown"),
        ({"fencing": "false", "file": PLAIN}, "unknown"),
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
    monkeypatch.setattr(drbd, "generation", lambda: 8)
    monkeypatch.setattr(corosync, "membership", lambda _: told)
    assert pair.may_ask(FakeRunner("true\n"), state, ["n2"]) is expected
    # Without fencing, by the operator's word, whoever is out is taken as gone.
    assert pair.may_ask(FakeRunner("false\n"), state, ["n2"])
