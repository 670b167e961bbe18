# SPDX-License-Identifier: GPL-2.0-or-later
"""All replicas store a state, or are marked, before it is in the own file: R1, R4, R7."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sanctl.agents import ocf
from sanctl.agents.reservations import follower, peer_marks, peers, replica_note
from sanctl.agents.reservations.replica_note import Replica
from sanctl.agents.reservations.store import NotPrimaryError, Store
from sanctl.drivers import reservation_file
from sanctl.drivers.reservation_file import Kept
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.reservation import Reservations, StoredReservations, Version
from tests.fakes.node import FakeNode

UUID = "a" * 32
A = Reservations((("iqn.x:a", 1),), "iqn.x:a", 5)
B = Reservations((("iqn.x:a", 1), ("iqn.x:b", 2)), "iqn.x:b", 5)
NONE = Reservations()
PEER = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
PRIMARY = ResourceState("vol1", "Primary", "no", "UpToDate", 1024, (PEER,))


class Died(BaseException):
    """The process is killed."""


class Bed:
    """The Primary n1, and its peer n2 with a file of its own: the pushes arrive, or do not."""

    def __init__(self, node: FakeNode, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.node, self.patch = node, patch
        node.states["vol1"] = PRIMARY
        self.own = Replica("vol1", UUID, 1, ("n1", "n2"), str(folder / "n1.reservations"))
        self.peer = self.own._replace(path=str(folder / "n2.reservations"))
        self.is_reached = True
        self.loses_answer = False
        self.sent: list[StoredReservations] = []
        self.marked: set[str] = set()
        self.may_be_marked = False
        self.marks_set = 0
        self.files: list[tuple[Version, int]] = []
        self.dies_at = ""
        patch.setattr(peers, "send", self.send)
        patch.setattr(peer_marks, "read", lambda *_: frozenset(self.marked))
        patch.setattr(peer_marks, "mark", self.mark)
        patch.setattr(follower, "_is_from_primary", lambda *_: True)
        patch.setattr(ocf, "crash_point", self.crash)
        for replica in (self.own, self.peer):
            self.write(replica, Kept(StoredReservations(Version(0, 0), NONE)))

    def write(self, replica: Replica, kept: Kept) -> None:
        reservation_file.store(replica.path, kept)

    def crash(self, step: str) -> None:
        if step == self.dies_at:
            raise Died

    def send(self, _: Replica, node: str, state: StoredReservations, **__: float) -> Version | None:
        assert node == "n2"
        self.sent.append(state)
        kept = reservation_file.load(self.own.path)
        assert kept is not None
        assert kept.promised >= state.version.epoch, "sent before it was promised"
        assert kept.stored != state, "the own file was written first"
        self.files.append((kept.stored.version, kept.promised))
        if not self.is_reached:
            raise CommandError(Problem("SAN-RES-003", "n2 is away"))
        newest = follower._store(self.peer, "n1", reservation_file.encode(state))
        if self.loses_answer:
            raise CommandError(Problem("SAN-RES-003", "the answer is lost"))
        return newest

    def mark(self, *_: object) -> bool:
        self.marks_set += 1
        if self.may_be_marked:
            self.marked.add("n2")
        return self.may_be_marked

    def store(self, *, may_mark: bool = True) -> Store:
        return Store(self.node, may_mark=may_mark)

    def kept(self, replica: Replica) -> Kept:
        found = reservation_file.load(replica.path)
        assert found is not None
        return found


@pytest.fixture
def bed(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(fake_node, tmp_path, monkeypatch)


def test_the_first_state_is_that_of_the_file_in_a_new_epoch(bed: Bed) -> None:
    bed.write(bed.own, Kept(StoredReservations(Version(3, 4), A, "t"), 5))
    settled = bed.store().settle(bed.own)
    assert settled.state == StoredReservations(Version(6, 0), A, "t")
    assert settled.stored_by == {"n2"}
    assert bed.kept(bed.own) == Kept(settled.state, 6)
    assert bed.kept(bed.peer).stored == settled.state
    assert bed.files == [(Version(3, 4), 6)]


def test_each_process_begins_an_epoch_and_changes_count_within(bed: Bed) -> None:
    first = bed.store()
    first.settle(bed.own)
    assert first.change(bed.own, A).version == Version(1, 1)
    assert first.change(bed.own, B).version == Version(1, 2)
    assert first.change(bed.own, B).version == Version(1, 2), "nothing has changed"
    later = bed.store()
    assert later.change(bed.own, A).version == Version(2, 1)
    # Another process has stored since.
    assert first.change(bed.own, B).version == Version(3, 1)
    assert bed.kept(bed.peer).stored == bed.kept(bed.own).stored


def test_what_a_dead_process_has_promised_is_not_used_again(bed: Bed) -> None:
    """What it has sent may arrive later, and must not be taken for what comes now."""
    for step in ("reservations-promised", "reservations-others-stored"):
        bed.dies_at = step
        with pytest.raises(Died):
            bed.store().settle(bed.own)
    bed.dies_at = ""
    assert bed.kept(bed.peer).stored.version == Version(2, 0)
    assert bed.store().settle(bed.own).state.version == Version(3, 0)


@pytest.mark.parametrize("step", ["reservations-others-stored", "reservations-own-stored"])
def test_a_process_that_dies_in_a_change(bed: Bed, step: str) -> None:
    store = bed.store()
    store.settle(bed.own)
    bed.dies_at = step
    with pytest.raises(Died):
        store.change(bed.own, A)
    bed.dies_at = ""
    assert bed.kept(bed.peer).stored.version == Version(1, 1)
    done = bed.store().change(bed.own, A)
    # The own file is written last: what it has, the peer has, and it can be answered.
    assert done.version == (
        Version(2, 1) if step == "reservations-others-stored" else Version(1, 1)
    )
    assert bed.kept(bed.peer).stored == bed.kept(bed.own).stored == done


def test_a_change_that_is_given_up_leaves_its_number(bed: Bed) -> None:
    """The peer may have it: another state of that number would be taken for the same."""
    store = bed.store()
    store.settle(bed.own)
    bed.loses_answer = True
    with pytest.raises(CommandError, match="SAN-RES-003"):
        store.change(bed.own, A, until=0.0)
    assert bed.kept(bed.peer).stored == StoredReservations(Version(1, 1), A)
    assert bed.kept(bed.own).stored.reservations == NONE
    bed.loses_answer = False
    assert store.change(bed.own, B).version == Version(2, 1)
    assert bed.kept(bed.peer).stored.reservations == B


def test_a_peer_that_has_promised_more_is_gone_above(bed: Bed) -> None:
    bed.write(bed.peer, Kept(StoredReservations(Version(2, 3), A), 7))
    assert bed.store().settle(bed.own).state.version == Version(8, 0)
    assert bed.kept(bed.peer) == Kept(StoredReservations(Version(8, 0), NONE), 7)


def test_it_waits_for_a_peer_that_neither_answers_nor_is_marked(bed: Bed) -> None:
    bed.is_reached = False
    waits = 0

    def on_sleep() -> None:
        nonlocal waits
        waits += 1
        assert bed.kept(bed.own).stored.version == Version(0, 0)
        bed.is_reached = waits == 5

    bed.node.clock.on_sleep = on_sleep
    assert bed.store().settle(bed.own).state.version == Version(1, 0)
    assert waits == 5
    assert len([line for line in bed.node.journal if "n2 is away" in line]) == 1


def test_a_peer_that_is_gone_is_marked(bed: Bed) -> None:
    bed.is_reached, bed.may_be_marked = False, True
    settled = bed.store().settle(bed.own)
    assert (settled.stored_by, bed.marks_set) == (frozenset(), 1)
    assert bed.kept(bed.own).stored.version == Version(1, 0)


def test_the_mark_of_a_peer_out_of_contact_is_looked_at_first(bed: Bed) -> None:
    """A promotion after a crash does not wait for an address that does not answer."""
    gone = PEER._replace(connection="Connecting", role="Unknown", disk="DUnknown")
    bed.node.states["vol1"] = PRIMARY._replace(peers=(gone,))
    bed.marked.add("n2")
    bed.store().settle(bed.own)
    assert bed.sent == [] and bed.marks_set == 0


def test_a_mark_whose_removal_may_be_under_way_does_not_count(bed: Bed) -> None:
    bed.is_reached = False
    bed.marked.add("n2")
    with pytest.raises(ZeroDivisionError), peer_marks.removing("vol1", "n2"):
        raise ZeroDivisionError
    assert peer_marks.is_clearing("vol1", "n2")
    with pytest.raises(CommandError, match="n2 within the time"):
        bed.store(may_mark=False).settle(bed.own, until=0.0)
    assert bed.marks_set == 0
    bed.may_be_marked = True
    bed.store().settle(bed.own)
    assert bed.marks_set == 1, "set anew"


def test_a_removal_that_has_ended_is_not_noted(bed: Bed) -> None:
    del bed
    with peer_marks.removing("vol1", "n2"):
        assert peer_marks.is_clearing("vol1", "n2")
    assert not peer_marks.is_clearing("vol1", "n2")


def end_by_demotion(bed: Bed) -> None:
    replica_note.set_closing("vol1", is_on=True)


def end_by_role(bed: Bed) -> None:
    bed.node.states["vol1"] = PRIMARY._replace(role="Secondary")


@pytest.mark.parametrize("end", [end_by_demotion, end_by_role])
def test_a_change_that_waits_ends_with_the_role(bed: Bed, end: Callable[[Bed], None]) -> None:
    bed.is_reached = False
    bed.node.clock.on_sleep = lambda: end(bed)
    with pytest.raises(NotPrimaryError, match="SAN-RES-004"):
        bed.store().settle(bed.own)
    assert bed.kept(bed.own).stored.version == Version(0, 0)


@pytest.mark.parametrize("end", [end_by_demotion, end_by_role])
def test_nothing_is_written_after_the_role_has_ended(
    bed: Bed, end: Callable[[Bed], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ocf, "crash_point", lambda step: end(bed) if step.endswith("others-stored") else None
    )
    with pytest.raises(NotPrimaryError):
        bed.store().settle(bed.own)
    assert bed.kept(bed.own).stored.version == Version(0, 0)


def test_a_missing_or_torn_file_is_not_made_up(bed: Bed) -> None:
    Path(bed.own.path).write_text("{")
    for _ in range(2):
        with pytest.raises(CommandError, match="SAN-RES-002"):
            bed.store().change(bed.own, A)
        Path(bed.own.path).unlink(missing_ok=True)
    assert bed.sent == []


def test_an_order_that_was_carried_out_goes_along(bed: Bed) -> None:
    store = bed.store()
    store.change(bed.own, A)
    assert store.change(bed.own, NONE, cleared="t1").cleared == "t1"
    assert bed.store().change(bed.own, A).cleared == "t1"
    assert bed.kept(bed.peer).stored.cleared == "t1"
