# SPDX-License-Identifier: GPL-2.0-or-later
"""A standby stores what the Primary sends, and nothing older: R5."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from sanctl.agents.reservations import follower, replica_note
from sanctl.agents.reservations.replica_note import Replica
from sanctl.drivers import node_channel, reservation_file
from sanctl.drivers.node_channel import Channel
from sanctl.drivers.reservation_file import Kept
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.reservation import Reservations, StoredReservations, Version
from sanctl.system import state_files
from tests.fakes.node import FakeNode

UUID = "a" * 32
A = Reservations((("iqn.x:a", 1),), "iqn.x:a", 5)
PEER = PeerState("n1", "Connected", "Primary", "Established", "UpToDate", 0)
STANDBY = ResourceState("vol1", "Secondary", "no", "UpToDate", 1024, (PEER,))
OWN = Kept(StoredReservations(Version(3, 2), Reservations()), 4)


class Line:
    """A channel whose other end has asked; notes the answer."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.said.append({"kind": kind, **fields})


@pytest.fixture
def replica(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replica:
    fake_node.name = "n2"
    fake_node.states["vol1"] = STANDBY
    found = Replica("vol1", UUID, 1, ("n1", "n2"), str(tmp_path / "file"))
    monkeypatch.setattr(replica_note, "read", lambda name: found if name == "vol1" else None)
    reservation_file.store(found.path, OWN)
    return found


def ask(version: Version, reservations: Reservations = A, **other: Any) -> dict[str, Any]:
    state = reservation_file.encode(StoredReservations(version, reservations))
    wanted = {
        "kind": node_channel.STORE_RESERVATIONS,
        "device": "vol1",
        "uuid": UUID,
        "sender": "n1",
        "state": state,
    }
    line = Line()
    follower.serve(cast(Channel, line), {**wanted, **other})
    (said,) = line.said
    return said


def test_a_newer_state_is_stored_and_the_promise_stays(replica: Replica) -> None:
    for _ in range(2):
        assert ask(Version(5, 0)) == {"kind": node_channel.STORED, "newest": None}
        assert reservation_file.load(replica.path) == Kept(StoredReservations(Version(5, 0), A), 4)


@pytest.mark.parametrize("version", [Version(3, 1), Version(3, 3), Version(4, 0)])
def test_what_is_not_newer_than_file_and_promise_is_refused(
    replica: Replica, version: Version
) -> None:
    assert ask(version) == {"kind": node_channel.STORED, "newest": Version(4, 0)}
    assert reservation_file.load(replica.path) == OWN


def test_the_same_state_is_had_and_another_of_its_number_is_not(replica: Replica) -> None:
    assert ask(Version(3, 2), Reservations())["newest"] is None
    assert ask(Version(3, 2))["newest"] == Version(4, 0)
    assert reservation_file.load(replica.path) == OWN


@pytest.mark.parametrize(
    "state",
    [
        None,
        STANDBY._replace(role="Primary"),
        STANDBY._replace(peers=()),
        STANDBY._replace(peers=(PEER._replace(role="Secondary"),)),
        STANDBY._replace(peers=(PEER._replace(name="n3"),)),
    ],
)
def test_only_of_the_primary_and_not_by_one(
    replica: Replica, fake_node: FakeNode, state: ResourceState | None
) -> None:
    fake_node.states["vol1"] = state
    assert (ask(Version(9, 0))["kind"], reservation_file.load(replica.path)) == ("refused", OWN)


def test_the_lock_that_a_promotion_takes_keeps_it_out(
    replica: Replica, fake_node: FakeNode
) -> None:
    """A push that was taken for good while this node was a standby is not written afterwards."""

    def promoted() -> None:
        fake_node.states["vol1"] = STANDBY._replace(role="Primary")

    with state_files.locked(replica_note.lock_path("vol1"), wait_s=0.0) as is_mine:
        assert is_mine
        fake_node.clock.on_sleep = promoted
        assert ask(Version(9, 0))["kind"] == "refused"
    assert ask(Version(9, 0))["kind"] == "refused"
    assert reservation_file.load(replica.path) == OWN


def test_a_file_that_cannot_be_read_is_replaced(replica: Replica) -> None:
    Path(replica.path).write_text("torn")
    replica_note.missed("vol1").write("t1")
    assert ask(Version(1, 0))["newest"] is None
    assert not replica_note.missed("vol1").exists(), "the next loss is another one"
    kept = reservation_file.load(replica.path)
    assert kept is not None and kept.stored == StoredReservations(Version(1, 0), A)
    # What was promised is lost with it: the sender goes above all that it may have been.
    assert kept.promised > time.time() - 100
    assert ask(Version(1, 1))["newest"] == Version(kept.promised, 0)
    assert ask(Version(kept.promised + 1, 0))["newest"] is None


def test_what_is_kept_is_told(replica: Replica) -> None:
    said = ask(Version(0, 0), kind=node_channel.READ_RESERVATIONS)
    assert reservation_file.decode(said["state"]) == OWN.stored
    Path(replica.path).unlink()
    assert ask(Version(0, 0), kind=node_channel.READ_RESERVATIONS)["state"] is None
    Path(replica.path).write_text("torn")
    assert ask(Version(0, 0), kind=node_channel.READ_RESERVATIONS)["kind"] == "refused"


@pytest.mark.parametrize(
    "other", [{"uuid": "b" * 32}, {"device": "vol2"}, {"state": {}}, {"state": None}, {"sender": 1}]
)
def test_what_is_not_of_this_device_or_not_whole_is_refused(
    replica: Replica, other: dict[str, Any]
) -> None:
    assert ask(Version(9, 0), **other)["kind"] == "refused"
    assert reservation_file.load(replica.path) == OWN
