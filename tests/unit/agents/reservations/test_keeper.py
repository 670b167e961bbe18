# SPDX-License-Identifier: GPL-2.0-or-later
"""A mark goes only from a replica that has the reservations that are in force: R2, R3."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.reservations import keeper, peer_marks, peers, replica_note
from sanctl.agents.reservations.replica_note import Replica
from sanctl.drivers import reservation_file
from sanctl.drivers.reservation_file import Kept
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.reservation import Reservations, StoredReservations, Version
from sanctl.system import state_files
from tests.fakes.node import FakeNode

A = Reservations((("iqn.x:a", 1),), "iqn.x:a", 5)
PEER = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
PRIMARY = ResourceState("vol1", "Primary", "no", "UpToDate", 1024, (PEER,))


def state(epoch: int, generation: int = 0, reservations: Reservations = A) -> StoredReservations:
    return StoredReservations(Version(epoch, generation), reservations)


class Bed:
    """The replica on n1, and what others say."""

    def __init__(self, node: FakeNode, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.node = node
        node.states["vol1"] = PRIMARY
        self.replica: Replica | None = Replica("vol1", "a" * 32, 1, ("n1", "n2"), f"{folder}/file")
        self.stored: dict[str, StoredReservations | None] = {}
        self.refusal: Version | None = None
        self.is_silent = False
        self.marked = frozenset({"n2"})
        reservation_file.store(f"{folder}/file", Kept(state(3, 2)))
        patch.setattr(replica_note, "read", lambda _: self.replica)
        patch.setattr(peers, "send", self.send)
        patch.setattr(peers, "stored_by", self.stored_by)
        patch.setattr(peer_marks, "read", lambda *_: self.marked)
        patch.setattr(peer_marks, "mark", lambda *_: pytest.fail("the fencing lock is held"))

    def send(
        self, _: Replica, node: str, offered: StoredReservations, **__: float
    ) -> Version | None:
        if self.is_silent:
            raise CommandError(Problem("SAN-RES-003", "away"))
        if self.refusal is None:
            self.stored[node] = offered
        return self.refusal

    def stored_by(self, _: Replica, node: str) -> StoredReservations | None:
        if self.is_silent:
            raise CommandError(Problem("SAN-RES-003", "away"))
        return self.stored[node]

    def may_clear(self) -> bool:
        with keeper.has_current(self.node, "vol1", "n2") as may:
            return may


@pytest.fixture
def bed(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(fake_node, tmp_path, monkeypatch)


def test_a_device_without_reservations_is_as_before(bed: Bed) -> None:
    bed.replica, bed.is_silent = None, True
    assert bed.may_clear() and keeper.is_not_older("vol1", "n2")


def test_the_peer_has_stored_the_state_and_no_change_comes_before_the_removal(bed: Bed) -> None:
    with keeper.has_current(bed.node, "vol1", "n2") as may:
        assert may
        assert bed.stored["n2"] == state(4)
        assert peer_marks.is_clearing("vol1", "n2"), "a removal that is not known to end"
        with state_files.locked(replica_note.lock_path("vol1"), wait_s=0.0) as is_free:
            assert not is_free
    assert not peer_marks.is_clearing("vol1", "n2")


def test_a_removal_that_fails_stays_noted(bed: Bed) -> None:
    with (
        pytest.raises(CommandError),
        keeper.has_current(bed.node, "vol1", "n2") as may,
    ):
        assert may
        raise CommandError(Problem("SAN-CMD-002", "no answer"))
    assert peer_marks.is_clearing("vol1", "n2")


def test_a_peer_that_is_silent_or_refuses_stays_marked(bed: Bed) -> None:
    bed.is_silent = True
    assert not bed.may_clear()
    # It is out of contact, and marked: the state is stored without it.
    bed.node.states["vol1"] = PRIMARY._replace(peers=(PEER._replace(connection="Connecting"),))
    assert not bed.may_clear()
    bed.is_silent, bed.refusal = False, Version(9, 0)
    assert not bed.may_clear()
    assert not peer_marks.is_clearing("vol1", "n2")


def test_not_while_a_change_is_under_way_nor_on_a_node_that_is_demoted(bed: Bed) -> None:
    with state_files.locked(replica_note.lock_path("vol1"), wait_s=0.0):
        assert not bed.may_clear()
    replica_note.set_closing("vol1", is_on=True)
    assert not bed.may_clear()
    replica_note.set_closing("vol1", is_on=False)
    bed.node.states["vol1"] = PRIMARY._replace(role="Secondary")
    assert not bed.may_clear()
    assert bed.stored == {}


@pytest.mark.parametrize(
    ("peer", "may"),
    [
        (state(3, 2), True),
        (state(4, 0), True),
        (state(3, 2, Reservations()), True),
        (state(3, 1), False),
        (None, False),
    ],
)
def test_where_all_are_marked_the_older_one_stays_so(
    bed: Bed, peer: StoredReservations | None, *, may: bool
) -> None:
    bed.stored["n2"] = peer
    assert keeper.is_not_older("vol1", "n2") is may


def test_what_is_not_known_is_not_newer(bed: Bed) -> None:
    bed.stored["n2"] = state(9)
    assert bed.replica is not None
    Path(bed.replica.path).unlink()
    assert not keeper.is_not_older("vol1", "n2")
    Path(bed.replica.path).write_text("torn")
    assert not keeper.is_not_older("vol1", "n2")
    reservation_file.store(bed.replica.path, Kept(state(3, 2)))
    bed.is_silent = True
    assert not keeper.is_not_older("vol1", "n2")


def test_of_three_only_the_contents_count(bed: Bed) -> None:
    assert bed.replica is not None
    bed.replica = bed.replica._replace(nodes=("n1", "n2", "n3"))
    bed.stored = {"n2": state(9), "n3": state(1)}
    assert keeper.is_not_older("vol1", "n2")
    bed.stored["n3"] = state(1, 0, Reservations())
    assert not keeper.is_not_older("vol1", "n2")
    bed.stored["n3"] = None
    assert not keeper.is_not_older("vol1", "n2")
