# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel has in force: of a file that is known, before hosts are served, and in order."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sanctl.agents import ocf
from sanctl.agents.replica import device_files
from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import (
    hooks,
    in_force,
    let_in,
    peers,
    replica_note,
    service_unit,
    upkeep,
)
from sanctl.agents.reservations.replica_note import Replica
from sanctl.drivers import lio, lio_reload, lio_reservations, node_attributes, reservation_file
from sanctl.drivers.reservation_file import Kept
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.published_reservations import parse_published
from sanctl.model.reservation import Reservations, StoredReservations, Version
from sanctl.system import state_files
from tests.fakes.node import FakeNode

H, J = "iqn.x:i", "iqn.x:j"
VOL = Device("vol1", "a" * 32, 1, "main", ("n1", "n2"), 1, (H, J), reservations=True)
OFF = VOL._replace(reservations=False)
HELD = Reservations(((H, 1), (J, 2)), H, 5)
NONE = Reservations()
PEER = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
PRIMARY = ResourceState("vol1", "Primary", "no", "UpToDate", 1024, (PEER,))


class Reload(NamedTuple):
    """What a target was given, and whether it took reservations."""

    given: Reservations
    was_on: bool


class Bed:
    """A replica here; LIO in memory: what it is given for who has no entry stays pending."""

    def __init__(self, node: FakeNode, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.node = node
        node.states["vol1"] = PRIMARY
        self.path = str(folder / "vol1.reservations")
        self.entries = [H, J]
        self.is_on = True
        self.kernel: Reservations | None = NONE
        self.is_whole = self.is_exported = True
        self.reloads: list[Reload] = []
        self.sent: list[StoredReservations] = []
        self.is_silent = False
        self.published: dict[str, str] = {}
        patch.setattr(device_files, "note_path", lambda *_: self.path)
        patch.setattr(peers, "send", self.send)
        self.is_mounted = True
        patch.setattr(service_unit, "run", lambda *_, **__: setattr(self, "is_mounted", True))
        patch.setattr(service_unit, "begin", lambda _: setattr(self, "is_mounted", True))
        patch.setattr(service_unit, "is_mounted", lambda: self.is_mounted)
        patch.setattr(lio, "is_exported", lambda _: self.is_exported)
        patch.setattr(lio, "initiators", lambda _: self.entries)
        #: Those whose LUN is not mapped: what they have registered is gone already.
        self.unmapped: set[str] = set()
        patch.setattr(
            lio,
            "mapped_initiators",
            lambda _: [each for each in self.entries if each not in self.unmapped],
        )
        self.alua = "Active/Optimized"
        patch.setattr(lio, "alua_state", lambda *_: self.alua)
        patch.setattr(lio, "remove", lambda *_: None)
        patch.setattr(lio_reload, "reload", self.reload)
        self.is_enabled = True
        patch.setattr(lio_reload, "disable", lambda *_: setattr(self, "is_enabled", False))
        patch.setattr(lio_reload, "enable", lambda *_: setattr(self, "is_enabled", True))
        patch.setattr(lio_reload, "is_whole", lambda *_: self.is_whole and self.is_enabled)
        patch.setattr(lio_reservations, "read", lambda _: self.kernel)
        patch.setattr(lio_reservations, "read_registrations", lambda _: self.registered())
        self.is_writing = True
        patch.setattr(lio_reservations, "is_writing", lambda _: self.is_writing)
        patch.setattr(lio_reservations, "is_on", lambda _: self.is_on)
        patch.setattr(lio_reservations, "set_mode", self.set_mode)
        patch.setattr(
            node_attributes, "publish_private", lambda _, name, text: self.publish(name, text)
        )
        patch.setattr(node_attributes, "delete", lambda _, name: self.published.pop(name, None))

    def send(
        self, _: Replica, node: str, state: StoredReservations, *, within_s: float = 1.0
    ) -> Version | None:
        assert node == "n2" and within_s > 0
        if self.is_silent:
            raise CommandError(Problem("SAN-RES-003", "away"))
        self.sent.append(state)
        return None

    def disable_and(self, *, is_silent: bool) -> None:
        self.is_enabled, self.is_silent = False, is_silent

    def registered(self) -> list[tuple[str, int]] | None:
        return None if self.kernel is None else list(self.kernel.registrations)

    def publish(self, name: str, text: str) -> None:
        self.published[name] = text

    def reload(self, _name: str, _minor: int, given: Reservations) -> None:
        self.reloads.append(Reload(given, self.is_on))
        self.kernel = given.limited_to(self.entries) if self.is_on else NONE
        if given.holder not in self.entries:
            # It has the one alone that is given as the holder, of all registrants, too.
            self.kernel = self.kernel._replace(holder=None, type=None)
        self.is_whole = self.is_enabled = True
        # target_core_pr.c, __core_scsi3_check_aptpl_registration
        self.is_writing = self.is_writing or bool(given.registrations)

    def set_mode(self, _: str, *, is_on: bool) -> None:
        self.is_on = is_on

    def keep(self, reservations: Reservations, *, cleared: str = "") -> None:
        reservation_file.store(
            self.path, Kept(StoredReservations(Version(3, 2), reservations, cleared), 3)
        )
        in_force._settled("vol1").write("n1 n2")

    def kept(self) -> StoredReservations:
        found = reservation_file.load(self.path)
        assert found is not None
        return found.stored

    def look(self, device: Device = VOL, *, is_active: bool = True, pid: str = "7") -> bool:
        return upkeep.look_after(self.node, device, is_active=is_active, attrd_pid=pid)


@pytest.fixture
def bed(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(fake_node, tmp_path, monkeypatch)


def test_a_start_gives_the_target_what_the_file_has_for_its_list(bed: Bed) -> None:
    assert in_force.at_start(bed.node, VOL) == NONE, "a standby may be without a file"
    bed.keep(HELD)
    assert in_force.at_start(bed.node, VOL) == HELD
    assert in_force.at_start(bed.node, VOL._replace(initiators=(J,))) == Reservations(((J, 2),))
    assert os.path.exists(replica_note.lock_path("vol1"))
    Path(bed.path).write_text("torn")
    assert in_force.at_start(bed.node, VOL) == NONE


def test_a_start_of_a_device_that_is_off_empties_the_file_and_keeps_its_version(bed: Bed) -> None:
    assert in_force.at_start(bed.node, OFF) is None
    bed.keep(HELD)
    assert in_force.at_start(bed.node, OFF) is None
    assert bed.kept() == StoredReservations(Version(3, 2), NONE)


@pytest.mark.parametrize("text", [None, "torn"])
def test_a_replica_whose_reservations_are_not_known_is_not_promoted(
    bed: Bed, text: str | None
) -> None:
    if text is not None:
        Path(bed.path).write_text(text)
    for _ in range(2):
        with pytest.raises(CommandError, match="SAN-RES-002"):
            in_force.check_before_promotion(VOL, is_first=False)
    in_force.check_before_promotion(OFF, is_first=False)


def test_the_first_activation_has_none(bed: Bed) -> None:
    in_force.check_before_promotion(VOL, is_first=True)
    assert bed.kept() == StoredReservations(Version(0, 0), NONE)
    bed.keep(HELD)
    in_force.check_before_promotion(VOL, is_first=True)
    assert bed.kept().reservations == HELD


def test_an_order_of_before_does_not_make_up_for_a_file(bed: Bed) -> None:
    """One that was carried out long ago must not free the device; one that is given now does."""
    before = VOL._replace(clear_reservations="t1")
    for _ in range(2):
        with pytest.raises(CommandError, match="SAN-RES-002"):
            in_force.check_before_promotion(before, is_first=False)
    in_force.check_before_promotion(VOL._replace(clear_reservations="t2"), is_first=False)
    state = bed.kept()
    assert (state.reservations, state.cleared) == (NONE, "t2")
    assert state.version.epoch > time.time() - 100, "newer than what is away"


@pytest.mark.parametrize("seen", ["start", "promotion"])
def test_nor_does_one_of_before_a_file_that_is_lost_once_more(bed: Bed, seen: str) -> None:
    """What broke: the first loss was noted for good; an order of since then freed the device."""
    with pytest.raises(CommandError, match="SAN-RES-002"):
        in_force.check_before_promotion(VOL, is_first=False)
    bed.keep(HELD, cleared="t1")
    ordered = VOL._replace(clear_reservations="t1")
    if seen == "start":
        in_force.at_start(bed.node, ordered)
    else:
        in_force.check_before_promotion(ordered, is_first=False)
    Path(bed.path).unlink()
    with pytest.raises(CommandError, match="SAN-RES-002"):
        in_force.check_before_promotion(ordered, is_first=False)


def test_a_promotion_stores_what_it_serves_before_hosts_see_it(bed: Bed) -> None:
    bed.keep(HELD)
    with in_force.locked(VOL):
        in_force.settle(bed.node, VOL, time.monotonic() + 5.0)
        assert bed.sent == [StoredReservations(Version(4, 0), HELD)]
        assert in_force.bring_up_to_date(VOL) and bed.kernel == HELD
        assert not in_force.bring_up_to_date(VOL)
    assert len(bed.reloads) == 1


def test_a_promotion_fails_where_another_replica_may_lack_it(bed: Bed) -> None:
    bed.keep(HELD)
    bed.is_silent = True
    with pytest.raises(CommandError, match="n2 within the time"), in_force.locked(VOL):
        in_force.settle(bed.node, VOL, time.monotonic() + 1.0)
    assert bed.kept().version == Version(3, 2)


def test_hosts_are_let_in_after_that_and_under_the_lock(bed: Bed) -> None:
    bed.keep(HELD)
    steps = ocf.Steps("vol1", "promote")
    with hooks.promoting(bed.node, VOL, steps, time.monotonic() + 5.0):
        assert bed.sent[-1] == bed.kept() and bed.kernel == HELD
        with state_files.locked(replica_note.lock_path("vol1"), wait_s=0.0) as is_free:
            assert not is_free
    bed.is_silent = True
    with (
        pytest.raises(CommandError),
        hooks.promoting(bed.node, VOL, steps, time.monotonic() + 1.0),
    ):
        pytest.fail("hosts are let in")
    with hooks.promoting(bed.node, OFF, steps, 0.0):
        pass


def test_what_serves_already_is_promoted_without_all_that(bed: Bed) -> None:
    """What broke: promoted once more, for a change of parameters, it failed with its standby."""
    bed.keep(HELD)
    bed.kernel, bed.is_writing = HELD._replace(holder=J), False
    bed.is_silent = True
    steps = ocf.Steps("vol1", "promote")
    with hooks.promoting(bed.node, VOL, steps, time.monotonic() + 1.0, was_primary=True):
        pass
    assert bed.reloads == [] and bed.kernel.holder == J, "a monitor stores what LIO has told"
    Path(bed.path).unlink()
    hooks.check_before_promotion(VOL, is_first=False, was_primary=True)
    # One that was killed before it served does all of it.
    for alua, was_primary in (("Standby", True), ("Active/Optimized", False)):
        bed.keep(HELD)
        bed.alua = alua
        with (
            pytest.raises(CommandError, match="SAN-RES-003"),
            hooks.promoting(bed.node, VOL, steps, time.monotonic() + 1.0, was_primary=was_primary),
        ):
            pytest.fail("hosts are let in")
        Path(bed.path).unlink()
        with pytest.raises(CommandError, match="SAN-RES-002"):
            hooks.check_before_promotion(VOL, is_first=False, was_primary=was_primary)


def test_nobody_is_served_while_the_holder_has_no_entry(bed: Bed) -> None:
    """What broke: without its secret here LIO dropped the reservation, and others wrote."""
    bed.keep(HELD)
    bed.entries = [J]
    for refused in (
        lambda: in_force.check_before_promotion(VOL, is_first=False),
        lambda: in_force.at_promotion(VOL),
    ):
        with pytest.raises(CommandError, match=r"SAN-RES-005.*iqn\.x:i holds vol1"):
            refused()
    assert bed.reloads == []
    bed.keep(Reservations(HELD.registrations, H, 7))
    in_force.check_before_promotion(VOL, is_first=False)  # J is one of the holders.
    bed.keep(Reservations(HELD.registrations, J, 5))
    assert in_force.at_promotion(VOL)


@pytest.mark.parametrize(
    "device",
    [
        VOL._replace(initiators=(J,)),
        VOL._replace(clear_reservations="t1"),
    ],
)
def test_a_holder_that_was_taken_off_on_purpose_keeps_no_device_down(
    bed: Bed, device: Device
) -> None:
    bed.keep(HELD)
    bed.entries = [J]
    in_force.check_before_promotion(device, is_first=False)
    in_force.at_promotion(device)
    assert bed.look(device) and bed.kept().reservations.holder is None
    bed.look(device)
    if device.clear_reservations:
        assert bed.kept().reservations == NONE == bed.kernel
    bed.keep(HELD, cleared="t1")
    with pytest.raises(CommandError, match="SAN-RES-005"):
        in_force.at_promotion(VOL._replace(clear_reservations="t1"))


def test_of_all_registrants_those_hold_it_that_have_an_entry(bed: Bed) -> None:
    """What broke: LIO was told of a holder without an entry alone, and the node never served."""
    kept = Reservations(HELD.registrations, H, 7)
    bed.keep(kept)
    bed.entries = [J]
    assert in_force.at_promotion(VOL)
    assert bed.kernel == kept.limited_to([J]) == Reservations(((J, 2),), J, 7)
    assert bed.kept().reservations == kept, "H comes back with what it has registered"


def test_an_order_to_clear_counts_from_the_promotion_on(bed: Bed) -> None:
    """So it is a way out where LIO does not put in force what is kept."""
    ordered = VOL._replace(clear_reservations="t1")
    bed.keep(HELD)
    bed.kernel = HELD
    assert in_force.at_promotion(ordered) and bed.kernel == NONE
    assert bed.kept().reservations == HELD, "the first monitor stores it"
    bed.look(ordered)
    assert bed.kept().reservations == NONE == bed.kernel
    bed.keep(HELD, cleared="t1")
    in_force.at_promotion(ordered)
    assert bed.kernel == HELD, "carried out before"


def test_what_is_half_unmapped_keeps_what_it_had(bed: Bed) -> None:
    """What broke: a reload that was killed half way, and the next monitor stored what was left."""
    bed.keep(HELD)
    bed.is_writing, bed.unmapped, bed.kernel = False, {H}, Reservations(((J, 2),))
    bed.is_whole = False
    bed.look()
    assert bed.kept().reservations == HELD == bed.kernel


def test_nor_does_one_where_nobody_is_let_in(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """But then nobody is let in without it."""
    monkeypatch.setattr(lio_reload, "disable", lambda *_: None)
    bed.keep(HELD)
    bed.entries = []
    in_force.check_before_promotion(VOL, is_first=False)
    in_force.at_promotion(VOL._replace(initiators=(), held="run why"))
    with pytest.raises(CommandError, match="SAN-RES-005"), let_in.letting_in(VOL, [J]):
        pytest.fail("J is let in")
    bed.alua = "Standby"
    with let_in.letting_in(VOL, [J]):
        bed.entries = [J]
    bed.alua, bed.entries = "Active/Optimized", []
    with let_in.letting_in(VOL, [H, J]):
        bed.entries = [H, J]
    assert bed.kernel == HELD


@pytest.mark.parametrize("is_broken_off", [False, True])
def test_nor_are_the_others_let_in_where_the_kernel_refuses_the_holder(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, *, is_broken_off: bool
) -> None:
    """What broke: that it has an entry was taken for granted before the kernel was asked."""

    def remove(_: str, *, keep: Collection[str]) -> None:
        assert not bed.is_enabled and not keep
        bed.entries = []

    monkeypatch.setattr(lio, "remove_initiators", remove)
    bed.keep(HELD)
    bed.entries = []
    with (
        pytest.raises(ZeroDivisionError if is_broken_off else CommandError),
        let_in.letting_in(VOL, [H, J]),
    ):
        bed.entries = [J]
        if is_broken_off:
            raise ZeroDivisionError
    assert bed.entries == [] and bed.is_enabled and bed.kernel == NONE
    # Where that fails, too, no host may log in.
    monkeypatch.setattr(lio, "remove_initiators", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError), let_in.letting_in(VOL, [H, J]):
        bed.entries = [J]
    assert not bed.is_enabled


def test_a_device_that_never_had_any_costs_nothing(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lio, "is_exported", lambda _: pytest.fail("looked at"))
    assert hooks.at_start(bed.node, OFF) is None
    hooks.check_before_promotion(OFF, is_first=False)
    with hooks.demoting(OFF):
        assert not hooks.look_after(bed.node, OFF, is_active=True, attrd_pid="")
    with hooks.has_current(bed.node, "vol1", "n2") as may:
        assert may and hooks.is_not_older("vol1", "n2")


def test_who_holds_it_is_asked_last_and_only_where_all_else_is_right(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may spin under that lock."""
    asked: list[str] = []

    def read(_: str) -> Reservations | None:
        asked.append("holder")
        return bed.kernel

    monkeypatch.setattr(lio_reservations, "read", read)
    bed.keep(HELD)
    bed.kernel = Reservations(((H, 1),), H, 5)
    assert not in_force.is_in_force(VOL, HELD)
    bed.kernel, bed.is_writing = HELD, False
    assert not in_force.is_in_force(VOL, HELD)
    bed.kernel, bed.is_writing = NONE, True
    assert in_force.is_in_force(VOL, NONE) and asked == []
    bed.kernel = HELD
    assert in_force.is_in_force(VOL, HELD) and asked == ["holder"]
    assert not in_force.is_in_force(VOL, HELD._replace(holder=J))


def test_a_target_that_was_off_forgets_what_it_remembers_first(bed: Bed) -> None:
    bed.keep(HELD)
    bed.is_on, bed.kernel = False, Reservations(((J, 9),))
    assert in_force.bring_up_to_date(VOL)
    assert bed.reloads == [Reload(NONE, was_on=False), Reload(HELD, was_on=True)]
    assert bed.kernel == HELD


def test_who_is_kept_out_for_a_while_stays_registered(bed: Bed) -> None:
    bed.keep(HELD)
    bed.entries = []
    closed = VOL._replace(initiators=(), held="run why")
    bed.is_whole = False
    assert bed.look(closed) and bed.kept().reservations == HELD
    # The kernel would keep it for a later entry, whatever came since.
    assert bed.reloads[-1].given == NONE


def test_a_host_that_this_release_cannot_read_stays_registered(bed: Bed) -> None:
    """Which initiators it has is not known here: none is known to have been taken off."""
    bed.keep(HELD)
    bed.entries, bed.kernel = [J], Reservations(((J, 2),))
    bed.look(VOL._replace(initiators=(J,), unreadable_hosts=("db",)))
    assert bed.kept().reservations == HELD


def test_who_is_let_in_again_has_what_it_had_before_it_writes(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(lio_reload, "disable", lambda *_: done.append("disabled"))
    bed.keep(HELD)
    bed.entries = []
    letting_in = hooks.letting_in(VOL)
    assert letting_in is not None and hooks.letting_in(OFF) is None
    with letting_in([H, J]):
        done.append("let in")
        bed.entries = [H, J]
        assert replica_note.is_reloading("vol1")
    assert done == ["disabled", "let in"] and bed.kernel == HELD
    assert in_force.mirrored("vol1") == HELD
    # One without a registration: no session ends for that, and no host's change waits.
    bed.keep(Reservations(((H, 1),)))
    bed.entries = [H]
    with letting_in([J]):
        bed.entries = [H, J]
        with state_files.locked(replica_note.lock_path("vol1"), wait_s=0.0) as is_free:
            assert is_free
    assert len(bed.reloads) == 1 and done == ["disabled", "let in"]


def test_who_cannot_be_let_in_does_not_keep_the_others_out(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: the TPG stayed disabled, and the node was taken for a failed one."""
    monkeypatch.setattr(lio_reload, "disable", lambda *_: setattr(bed, "is_whole", False))
    bed.keep(HELD)
    bed.entries = [H]
    with pytest.raises(ZeroDivisionError), let_in.letting_in(VOL, [J]):
        assert not bed.is_whole
        raise ZeroDivisionError
    assert bed.is_whole and bed.kernel == HELD.limited_to([H])


def test_who_has_nothing_registered_waits_for_no_change(bed: Bed) -> None:
    """What broke: a monitor waited 15 s for a replica that did not answer, to let in a new host."""
    bed.keep(Reservations(((H, 1),)))
    bed.entries = [H]
    with state_files.locked(replica_note.lock_path("vol1")):
        with let_in.letting_in(VOL, [J]):
            bed.entries = [H, J]
        assert bed.node.clock.passed_s == 0.0 and bed.reloads == []
        # One that has does, and so do the first ones; but a monitor has more to do.
        for entries, new in (([J], H), ([], J)):
            bed.entries = entries
            bed.node.clock.begin_s = bed.node.clock.now_s
            with (
                pytest.raises(CommandError, match=r"SAN-RES-004.*within 3 s"),
                let_in.letting_in(VOL, [new]),
            ):
                pytest.fail("let in")
            assert bed.node.clock.passed_s < 4.0


def test_whose_command_waits_is_kept_out_all_the_same(bed: Bed) -> None:
    """The service answers it as void meanwhile; what it has changed is looked at anew."""
    with hooks.keeping_out(VOL):
        assert replica_note.is_reloading("vol1")
    assert not replica_note.unkept("vol1").exists(), "no command waits"
    with (
        state_files.locked(replica_note.held_path("vol1"), shared=True),
        hooks.keeping_out(VOL),
    ):
        assert replica_note.unkept("vol1").exists()
    # Whoever else reloads the target answers it, too.
    with state_files.locked(replica_note.reload_path("vol1")), hooks.keeping_out(VOL):
        assert bed.node.clock.passed_s < 2.0
    with hooks.keeping_out(OFF):
        assert not replica_note.is_reloading("vol1")


def test_who_was_refused_and_is_taken_has_what_it_had_registered(bed: Bed) -> None:
    """What broke: it got its entry alone, and the next host's command made it lose all of it."""
    bed.keep(HELD)
    bed.entries, bed.kernel = [J], Reservations(((J, 2),))
    with let_in.letting_in(VOL, [H], are_refused=True):
        assert bed.is_enabled, "the kernel refuses it again: no session ends for that"
        with state_files.locked(replica_note.lock_path("vol1"), wait_s=0.0) as is_free:
            assert not is_free, "a host's change would be stored without it"
    assert bed.reloads == [] and bed.kept().reservations == HELD
    with let_in.letting_in(VOL, [H], are_refused=True):
        bed.entries = [H, J]
    assert bed.kernel == HELD == in_force.mirrored("vol1") and len(bed.reloads) == 1
    # Also where the kernel refuses another one after it.
    bed.entries, bed.kernel = [J], Reservations(((J, 2),))
    with pytest.raises(ZeroDivisionError), let_in.letting_in(VOL, [H], are_refused=True):
        bed.entries = [H, J]
        raise ZeroDivisionError
    assert bed.kernel == HELD
    # One that has nothing registered waits for nothing.
    bed.keep(Reservations(((J, 2),)))
    bed.entries = [J]
    with (
        state_files.locked(replica_note.lock_path("vol1")),
        let_in.letting_in(VOL, [H], are_refused=True),
    ):
        bed.entries = [H, J]
    assert len(bed.reloads) == 2


def test_what_is_registered_is_read_again_under_the_lock(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that is stored while that one is waited for is not undone."""
    bed.keep(HELD)
    bed.entries = [J]
    locked = in_force.locked

    @contextlib.contextmanager
    def waited(device: Device, **how: float) -> Iterator[None]:
        with locked(device, **how):
            bed.keep(HELD._replace(holder=J))
            yield

    monkeypatch.setattr(in_force, "locked", waited)
    with let_in.letting_in(VOL, [H]):
        bed.entries = [H, J]
    assert bed.kernel == HELD._replace(holder=J)


def test_what_the_kernel_has_dropped_with_an_entry_is_in_force_again(bed: Bed) -> None:
    """Denied and allowed between two monitors."""
    bed.keep(HELD)
    bed.kernel = Reservations(((J, 2),))
    bed.look()
    assert bed.kernel == HELD == bed.kept().reservations


@pytest.mark.parametrize("is_active", [True, False])
def test_a_target_that_writes_no_changes_is_reloaded(bed: Bed, is_active: bool) -> None:
    """LIO ends that with a CLEAR, and with a REGISTER that failed."""
    bed.keep(HELD)
    bed.kernel = HELD
    bed.look(is_active=is_active)
    assert bed.reloads == []
    bed.is_writing = False
    bed.look(is_active=is_active)
    assert [each.given for each in bed.reloads] == [HELD]


def test_what_lio_has_told_hosts_and_not_written_is_stored_before_a_reload(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: a preemption that was answered was undone, and the host that was dead held it."""
    preempted = Reservations(((J, 2),), J, 5)

    def read(_: str) -> Reservations | None:
        assert not bed.is_enabled and replica_note.is_reloading("vol1"), "a host may change it"
        return bed.kernel

    monkeypatch.setattr(lio_reservations, "read", read)
    bed.keep(HELD)
    bed.kernel, bed.is_writing = preempted, False
    bed.is_silent = True
    with monkeypatch.context() as patch:
        patch.setattr(lio_reload, "disable", lambda *_: pytest.fail("a session ends for nothing"))
        with pytest.raises(CommandError, match="SAN-RES-003"):
            bed.look()
    assert bed.is_enabled and bed.reloads == [], "hosts are served on, and it is tried again"
    bed.is_silent = False
    # The peer goes in the moment after it has answered.
    with monkeypatch.context() as patch:
        patch.setattr(lio_reload, "disable", lambda *_: bed.disable_and(is_silent=True))
        with pytest.raises(CommandError, match="SAN-RES-003"):
            bed.look()
    assert bed.is_enabled and bed.reloads == [] and bed.kept().reservations == HELD
    bed.is_silent = False
    with pytest.raises(CommandError, match="SAN-RES-004"), let_in.letting_in(VOL, [H]):
        pytest.fail("its reload would undo that")
    bed.look()
    assert bed.kept().reservations == preempted == bed.kernel == bed.sent[-1].reservations
    assert bed.is_enabled and bed.is_writing and len(bed.reloads) == 1
    bed.look()
    assert len(bed.reloads) == 1


def test_what_was_told_while_nobody_kept_it_is_stored(bed: Bed) -> None:
    """What broke: a RESERVE of then was in no file, and a failover let everybody write."""
    bed.keep(Reservations(HELD.registrations))
    bed.kernel = HELD
    bed.look()
    assert bed.kept().reservations.holder is None, "a host's command may be under way"
    replica_note.note_all_unkept()
    bed.is_silent = True
    with pytest.raises(CommandError, match="SAN-RES-003"):
        bed.look()
    assert bed.is_enabled and bed.reloads == []
    bed.is_silent = False
    bed.look()
    assert bed.kept().reservations == HELD == bed.kernel == bed.sent[-1].reservations
    assert bed.is_enabled and len(bed.reloads) == 1
    bed.look()
    assert len(bed.reloads) == 1
    # A promotion has in force what is kept.
    bed.alua, bed.kernel = "Standby", HELD._replace(holder=J)
    replica_note.note_all_unkept()
    assert in_force.at_promotion(VOL) and bed.kernel == HELD
    bed.alua = "Active/Optimized"
    bed.is_mounted = False
    bed.look()
    assert bed.is_mounted, "each monitor has the service run"
    assert len(bed.reloads) == 2 and not replica_note.unkept("vol1").exists()


def test_what_lio_does_not_list_is_not_stored_and_that_is_said(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: it was lost without a word, where more were registered than a page lists."""

    def warnings() -> int:
        return sum("LIO has more registrations than it lists" in line for line in bed.node.journal)

    bed.keep(HELD)
    in_force.note_mirrored("vol1", HELD)
    bed.kernel = None
    bed.look()
    assert warnings() == 0, "all is kept"
    replica_note.note_all_unkept()
    with let_in.letting_in(VOL, [H]):
        pass
    assert warnings() == 1 and len(bed.reloads) == 1
    bed.kernel = None
    bed.look()
    assert warnings() == 2 and bed.kept().reservations == HELD
    assert len(bed.reloads) == 1, "no session ends for what cannot be stored"
    bed.look()
    assert warnings() == 2
    bed.alua = "Standby"
    replica_note.note_all_unkept()
    bed.look(is_active=False)
    assert warnings() == 2, "a standby's is undone as ever"
    # More register between the two looks.
    bed.alua = "Active/Optimized"
    monkeypatch.setattr(lio_reservations, "read_registrations", lambda _: [(H, 1)])
    bed.look()
    assert warnings() == 3 and bed.reloads[-1].given == HELD == bed.kept().reservations
    assert bed.is_enabled and len(bed.reloads) == 2


def test_without_the_service_no_session_ends_for_what_is_not_kept(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: with a service that did not start, all hosts logged in again every 10 s."""

    def fail(*_: object, **__: object) -> None:
        raise CommandError(Problem("SAN-RES-006", "it does not run"))

    bed.keep(Reservations(HELD.registrations))
    bed.kernel = HELD
    replica_note.unkept("vol1").write()
    with monkeypatch.context() as patch:
        patch.setattr(service_unit, "begin", fail)
        patch.setattr(lio_reload, "disable", lambda *_: pytest.fail("a session ends for nothing"))
        bed.look()
    assert bed.reloads == [] and replica_note.unkept("vol1").exists()
    bed.look()
    assert bed.kept().reservations == HELD and not replica_note.unkept("vol1").exists()


@pytest.mark.parametrize(
    "error",
    [
        CommandError(Problem("SAN-RES-006", "it does not run")),
        OSError(errno.EIO, "whether it is mounted is not known"),
    ],
)
def test_a_service_that_does_not_run_keeps_a_monitor_from_nothing(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    def wait(*_: object, **__: object) -> None:
        pytest.fail("a monitor waits for a service that a device which is on does not need")

    monkeypatch.setattr(service_unit, "run", wait)
    monkeypatch.setattr(service_unit, "begin", fail)
    bed.keep(HELD)
    bed.entries, bed.kernel = [J], Reservations(((J, 2),))
    bed.look(VOL._replace(initiators=(J,)))
    assert bed.kept().reservations == bed.kernel
    bed.is_on = False
    monkeypatch.setattr(service_unit, "run", fail)
    with pytest.raises(type(error)):
        bed.look(VOL._replace(initiators=(J,)))


def test_with_that_who_is_kept_out_loses_nothing_and_before_it_serves_nothing_is_stored(
    bed: Bed,
) -> None:
    bed.keep(HELD._replace(holder=J))
    bed.entries, bed.kernel, bed.is_writing = [H], Reservations(((H, 9),)), False
    bed.look(VOL._replace(held="run why"))
    assert bed.kept().reservations == Reservations(((H, 9), (J, 2)), J, 5)
    bed.keep(HELD)
    bed.entries, bed.kernel, bed.is_writing = [H, J], Reservations(((J, 2),), J, 5), False
    bed.alua = "Standby"
    bed.look()
    assert bed.kept().reservations == HELD == bed.kernel
    # Nobody is registered, and LIO writes nothing: no host is taken for one that cleared.
    bed.kernel, bed.is_writing, bed.alua = NONE, False, "Active/Optimized"
    bed.look()
    assert bed.kept().reservations == HELD == bed.kernel


def test_a_promotion_undoes_what_a_waiting_command_has_changed(bed: Bed) -> None:
    bed.keep(HELD)
    bed.kernel = HELD
    assert not in_force.at_promotion(VOL) and bed.reloads == []
    bed.kernel = None  # not asked: the kernel may spin until the command is answered
    in_force.note_mirrored("vol1", HELD)
    with state_files.locked(replica_note.held_path("vol1"), shared=True):
        assert in_force.at_promotion(VOL)
    assert [each.given for each in bed.reloads] == [HELD]


def test_more_than_lio_lists_is_compared_with_what_it_was_given(bed: Bed) -> None:
    bed.keep(HELD)
    bed.kernel = None
    in_force.note_mirrored("vol1", HELD)
    assert not in_force.bring_up_to_date(VOL) and bed.reloads == []
    in_force.note_mirrored("vol1", NONE)
    assert in_force.bring_up_to_date(VOL)


def test_a_standby_mirrors_what_it_was_sent_unless_a_command_waits(bed: Bed) -> None:
    bed.keep(HELD)
    with state_files.locked(replica_note.held_path("vol1"), shared=True):
        assert not bed.look(is_active=False) and bed.reloads == []
    with state_files.locked(replica_note.lock_path("vol1")):
        assert not bed.look(is_active=False) and bed.reloads == []
    assert bed.look(is_active=False) and bed.kernel == HELD
    assert not bed.look(is_active=False)
    assert bed.sent == [] and bed.published == {}


def test_a_standby_that_a_command_waits_for_to_follow_ends_it(bed: Bed) -> None:
    bed.keep(HELD)
    bed.kernel = None  # not asked, as above
    replica_note.behind("vol1").write()
    with state_files.locked(replica_note.held_path("vol1"), shared=True):
        assert bed.look(is_active=False)
        assert [each.given for each in bed.reloads] == [HELD]
        assert not bed.look(is_active=False), "once"


def test_the_active_node_publishes_once_for_each_daemon(bed: Bed) -> None:
    bed.keep(HELD, cleared="t0")
    bed.kernel = HELD
    assert bed.look() and not bed.look()
    found = parse_published(bed.published["sanctl.reservations.vol1"])
    assert found is not None
    assert (found.version, found.reservations, found.cleared) == (Version(3, 2), HELD, "t0")
    assert bed.look(pid="8") and not bed.look(pid="8")
    assert bed.reloads == [] and bed.sent == []


def test_what_was_published_is_taken_back_with_the_role(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: a node that serves once more was taken at its word of the last time."""
    name = "sanctl.reservations.vol1"
    bed.keep(HELD)
    bed.kernel = HELD
    for end in (
        lambda: bed.look(is_active=False),
        lambda: hooks.at_stop(bed.node, VOL),
    ):
        bed.alua = "Active/Optimized"
        bed.look()
        assert name in bed.published
        bed.alua = "Standby"
        end()
        assert bed.published == {}
    assert not bed.look(is_active=False)
    bed.alua = "Active/Optimized"
    bed.look()

    def silent(*_: object) -> None:
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    monkeypatch.setattr(node_attributes, "delete", silent)
    hooks.at_stop(bed.node, VOL)  # A stop does not fail for it.


def test_nothing_waits_for_the_daemon_that_forgets_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: a promotion waited while a standby's monitor asked pacemaker-attrd."""
    bed.keep(HELD)
    bed.kernel = HELD
    bed.look()
    asked = []

    def delete(_: object, name: str) -> None:
        with state_files.locked(replica_note.lock_path("vol1"), wait_s=0.0) as is_free:
            assert is_free, "no change is made meanwhile"
        asked.append(name)

    monkeypatch.setattr(node_attributes, "delete", delete)
    assert bed.look(is_active=False) and len(asked) == 1
    # A stop that has too little time left would have the node fenced. One that begins now.
    monkeypatch.setattr(ocf._Begin, "at_s", None)
    bed.look()
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_timeout", "20000")
    hooks.at_stop(bed.node, VOL)
    assert len(asked) == 1
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_timeout", "120000")
    hooks.at_stop(bed.node, VOL)
    assert len(asked) == 2


def test_an_order_to_clear_is_carried_out_once(bed: Bed) -> None:
    bed.keep(HELD)
    bed.kernel = HELD
    ordered = VOL._replace(clear_reservations="t1")
    with state_files.locked(replica_note.held_path("vol1"), shared=True):
        bed.look(ordered)
        assert bed.reloads == [] and bed.kept().cleared == "", "a host's command is under way"
    assert bed.look(ordered)
    assert (bed.kernel, bed.kept()) == (NONE, StoredReservations(Version(4, 1), NONE, "t1"))
    assert bed.sent[-1] == bed.kept()
    bed.kernel = Reservations(((H, 1),))  # registered again
    bed.keep(bed.kernel, cleared="t1")
    bed.look(ordered)
    assert len(bed.reloads) == 1 and bed.kept().reservations == bed.kernel


def test_an_order_that_a_replica_does_not_store_stands(bed: Bed) -> None:
    bed.keep(HELD)
    bed.kernel = HELD
    bed.is_silent = True
    ordered = VOL._replace(clear_reservations="t1")
    for _ in range(2):
        with pytest.raises(CommandError, match="SAN-RES-003"):
            bed.look(ordered)
    assert bed.kept() == StoredReservations(Version(3, 2), HELD)
    assert len(bed.reloads) == 1
    bed.is_silent = False
    assert bed.look(ordered)
    assert (bed.kept().reservations, bed.kept().cleared) == (NONE, "t1")


def test_who_is_taken_off_the_list_does_not_come_back(bed: Bed) -> None:
    bed.keep(HELD)
    bed.entries, bed.kernel = [J], Reservations(((J, 2),))
    bed.look(VOL._replace(initiators=(J,)))
    assert bed.kept().reservations == bed.kernel == bed.sent[-1].reservations
    assert bed.reloads == []


def test_a_command_that_is_under_way_is_not_undone(bed: Bed) -> None:
    """LIO has changed its memory; the service stores that, once it gets the lock."""
    bed.keep(HELD)
    bed.kernel = Reservations(((J, 2),))
    with state_files.locked(replica_note.held_path("vol1"), shared=True):
        bed.look()
    assert bed.reloads == [] and bed.kept().reservations == HELD


def test_switched_on_all_replicas_know_before_a_host_may(bed: Bed) -> None:
    bed.is_on, bed.kernel = False, HELD
    bed.is_silent = True
    with pytest.raises(CommandError, match="SAN-RES-003"):
        bed.look()
    assert not bed.is_on and bed.reloads == []
    bed.is_silent = False
    assert bed.look()
    assert bed.is_on and bed.kernel == NONE and bed.kept().reservations == NONE
    assert bed.sent[-1] == bed.kept()
    assert "sanctl.reservations.vol1" in bed.published


def test_switched_on_what_an_earlier_time_has_left_ends(bed: Bed) -> None:
    bed.is_on = False
    bed.keep(HELD)
    bed.look()
    assert bed.kept() == StoredReservations(Version(4, 1), NONE)


def test_a_standby_that_is_switched_on_later_has_what_it_was_sent(bed: Bed) -> None:
    bed.is_on, bed.kernel = False, Reservations(((J, 9),))
    assert bed.look(is_active=False) and bed.is_on and bed.kernel == NONE
    bed.is_on = False
    bed.keep(HELD)
    assert bed.look(is_active=False) and bed.kernel == HELD


def test_switched_off(bed: Bed) -> None:
    bed.keep(HELD)
    bed.kernel = HELD
    bed.look()
    assert bed.look(OFF) and not bed.look(OFF)
    assert (bed.is_on, bed.kernel, bed.published) == (False, NONE, {})
    assert bed.reloads == [Reload(NONE, was_on=True)]
    assert bed.kept() == StoredReservations(Version(3, 2), NONE)
    assert replica_note.read("vol1") is None


def test_a_demotion_ends_what_waits_and_a_promotion_begins_anew(bed: Bed) -> None:
    bed.keep(HELD)
    with in_force.demoting(VOL):
        assert replica_note.is_closing("vol1")
    assert not replica_note.is_closing("vol1")
    with pytest.raises(ZeroDivisionError), in_force.demoting(VOL):
        raise ZeroDivisionError
    assert replica_note.is_closing("vol1"), "it failed: no host's command is stored until then"
    assert not bed.look()
    in_force.check_before_promotion(VOL, is_first=False)
    assert not replica_note.is_closing("vol1")
    with (
        state_files.locked(replica_note.lock_path("vol1")),
        pytest.raises(CommandError, match="SAN-RES-004"),
        in_force.demoting(VOL),
    ):
        pytest.fail("a change is under way")


@pytest.mark.parametrize(
    ("release", "are_kept"),
    [("6.9.0", True), ("7.2.7-generic", True), ("6.8.12", False), ("6.1.0-28-amd64", False)],
)
def test_a_kernel_that_hands_nothing_out_again_keeps_none(
    monkeypatch: pytest.MonkeyPatch, release: str, *, are_kept: bool
) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "n1", release, "", "")))
    assert hooks.are_kept_here() is are_kept
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "n1", "", "", "")))
    assert not hooks.are_kept_here()


def test_a_replica_that_has_none_gets_it_without_a_change(bed: Bed) -> None:
    """One that was added, or has lost its file: it could never be promoted."""
    bed.keep(HELD)
    bed.kernel = HELD
    in_force._settled("vol1").remove()
    bed.look()
    assert [each.reservations for each in bed.sent] == [HELD]
    bed.look()
    assert len(bed.sent) == 1
    bed.look(VOL._replace(nodes=("n2", "n1")))
    assert len(bed.sent) == 2
    in_force._settled("vol1").make_old()
    bed.look(VOL._replace(nodes=("n2", "n1")))
    assert len(bed.sent) == 3
