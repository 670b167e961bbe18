# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host is told: once all replicas have its change, or it is true; never before."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sanctl.agents.reservations import (
    in_force,
    listener,
    peers,
    replica_note,
    service,
    service_unit,
)
from sanctl.agents.reservations.ahead import Ahead
from sanctl.agents.reservations.replica_note import Replica
from sanctl.drivers import fuse, lio, lio_backstore, lio_reservations, reservation_file
from sanctl.drivers.fuse import Write
from sanctl.drivers.reservation_file import Kept
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.reservation import Reservations, StoredReservations, Version
from sanctl.system import state_files, timed_call
from tests.fakes.node import FakeNode

UUID = "a" * 32
H, J = "iqn.x:h", "iqn.x:j"
NONE = Reservations()
HELD = Reservations(((H, 1), (J, 2)), H, 5)
ONE = Reservations(((H, 1),))
PEER = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
PRIMARY = ResourceState("vol1", "Primary", "no", "UpToDate", 1024, (PEER,))
STANDBY = PRIMARY._replace(role="Secondary", peers=(PEER._replace(role="Primary"),))


CLEARED = b"No Registrations or Reservations\n\0"


def text(reservations: Reservations) -> bytes:
    if not reservations.registrations:
        return b"No Registrations or Reservations\0"
    blocks = []
    for number, (iqn, key) in enumerate(reservations.registrations):
        holds = iqn == reservations.holder
        held = f"res_holder=1\nres_type={reservations.type:02x}\n" if holds else "res_holder=0\n"
        blocks.append(
            f"PR_REG_START: {number}\ninitiator_node={iqn}\nsa_res_key={key}\n{held}"
            f"PR_REG_END: {number}\n"
        )
    return "".join(blocks).encode() + b"\0"


class Bed:
    """The service on n1, whose folder has other targets' files, too."""

    def __init__(self, node: FakeNode, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.node = node
        node.states["vol1"] = PRIMARY
        self.replica: Replica | None = Replica("vol1", UUID, 1, ("n1", "n2"), f"{folder}/file")
        self.path = f"{folder}/file"
        self.entries = [H, J]
        self.kernel: Reservations | None = NONE
        self.stored: list[StoredReservations] = []
        self.is_silent = False
        self.interrupted = threading.Event()
        self.numbers = itertools.count(1)
        self.below = folder / "below"
        self.below.mkdir()
        patch.setattr(replica_note, "of_serial", self.of_serial)
        patch.setattr(peers, "send", self.send)
        patch.setattr(lio_backstore, "serials", lambda: [UUID])
        #: Those whose LUN is not mapped any more: their entry is about to go.
        self.unmapped: set[str] = set()
        patch.setattr(
            lio,
            "mapped_initiators",
            lambda _: [each for each in self.entries if each not in self.unmapped],
        )
        patch.setattr(lio, "initiators", lambda _: tuple(self.entries))
        self.alua = "Active/Optimized"
        self.is_writing = True
        patch.setattr(lio, "alua_state", lambda *_: self.alua)
        patch.setattr(lio_reservations, "read_registrations", lambda _: self.registered())
        patch.setattr(lio_reservations, "is_writing", lambda _: self.is_writing)
        patch.setattr(peers, "stored_by", lambda *_: self.of_primary())
        self.keep(Version(3, 2), NONE)
        handle = os.open(self.below, os.O_RDONLY)
        self.writes = service.Writes(handle)

    def of_serial(self, serial: str) -> Replica | None:
        return self.replica if serial == UUID else None

    def registered(self) -> list[tuple[str, int]] | None:
        return None if self.kernel is None else list(self.kernel.registrations)

    def of_primary(self) -> StoredReservations | None:
        return self.kept()

    def send(self, _: Replica, _node: str, state: StoredReservations, **__: float) -> None:
        if self.is_silent:
            raise CommandError(Problem("SAN-RES-003", "away"))
        self.stored.append(state)

    def keep(self, version: Version, reservations: Reservations) -> None:
        state = StoredReservations(version, reservations)
        reservation_file.store(self.path, Kept(state, version.epoch))

    def kept(self) -> StoredReservations:
        found = reservation_file.load(self.path)
        assert found is not None
        return found.stored

    def command(self, after: Reservations, *, kernel: Reservations | None = None) -> int:
        self.kernel = after if kernel is None else kernel
        return self.write(text(after))

    def write(self, data: bytes, number: int | None = None) -> int:
        return self.writes.answer(
            Write(
                f"aptpl_{UUID}",
                data,
                is_resent=False,
                interrupted=self.interrupted,
                number=next(self.numbers) if number is None else number,
            )
        )

    def waits(self, times: int, then: Callable[[], None]) -> None:
        """Have something happen after the service has waited so often."""
        left = times

        def slept() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                then()

        self.node.clock.on_sleep = slept


@pytest.fixture
def bed(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(fake_node, tmp_path, monkeypatch)


def test_the_active_node_answers_once_all_have_stored_it(bed: Bed) -> None:
    assert bed.command(HELD) == 0
    assert bed.kept() == bed.stored[-1] == StoredReservations(Version(4, 1), HELD)
    assert bed.command(ONE) == 0
    assert bed.kept().version == Version(4, 2)


def test_it_waits_for_a_peer(bed: Bed) -> None:
    bed.is_silent = True

    def arrives() -> None:
        assert bed.kept().reservations == NONE
        bed.is_silent = False

    bed.waits(20, arrives)
    assert bed.command(HELD) == 0 and bed.stored[-1].reservations == HELD


def test_an_older_text_is_not_stored_over_what_is_in_force(bed: Bed) -> None:
    assert bed.command(ONE, kernel=HELD) == 0
    assert bed.kept().reservations == Reservations(HELD.registrations)
    # A holder is one that is registered.
    assert bed.command(HELD, kernel=Reservations(((J, 2),))) == 0
    assert bed.kept().reservations == Reservations(((J, 2),))


def test_of_two_commands_at_once_the_later_text_says_who_holds_it(bed: Bed) -> None:
    """What broke: a reservation that a host was told of was not there after a failover."""
    before = Reservations(HELD.registrations)
    for number, after in ((7, HELD), (5, before), (6, HELD._replace(holder=J))):
        bed.kernel = HELD
        assert bed.write(text(after), number=number) == 0
        assert bed.kept().reservations == HELD
    bed.kernel = before
    assert bed.write(text(before), number=8) == 0 and bed.kept().reservations == before
    # Who has unregistered since holds nothing.
    assert bed.write(text(HELD), number=10) == 0
    bed.kernel = Reservations(((J, 2),))
    assert bed.write(text(bed.kernel), number=9) == 0 and bed.kept().reservations == bed.kernel


def test_before_it_serves_nothing_of_a_promoted_target_is_stored(bed: Bed) -> None:
    """What broke: LIO's state of before the last push, with what had been taken away in it."""
    bed.alua = "Standby"

    def serves() -> None:
        assert bed.kept().version == Version(3, 2) and bed.stored == []
        bed.alua = "Active/Optimized"

    bed.waits(20, serves)
    assert bed.command(ONE) == 0 and bed.kept().reservations == ONE
    assert bed.alua == "Active/Optimized", "it waited for that"


def test_a_clear_takes_those_along_that_are_kept_out(bed: Bed) -> None:
    bed.keep(Version(3, 2), HELD)
    bed.entries = [H]
    assert bed.write(CLEARED) == 0
    assert bed.kept().reservations == NONE
    # One that registers at once, whose text comes later, stays.
    bed.kernel = ONE
    assert bed.write(CLEARED) == 0
    assert bed.kept().reservations == ONE


def test_a_last_unregister_is_no_clear(bed: Bed) -> None:
    """What broke: hosts that were kept out just then lost what they had, and the reservation."""
    bed.keep(Version(3, 2), HELD._replace(holder=J))
    bed.entries = [H]
    assert bed.command(NONE) == 0
    assert bed.kept().reservations == Reservations(((J, 2),), J, 5)


def test_a_standby_answers_what_the_active_node_has_stored(bed: Bed) -> None:
    """It may have what is on its way, and a third replica, which takes over, has not."""
    bed.node.states["vol1"] = STANDBY
    bed.keep(Version(3, 3), ONE)
    committed = StoredReservations(Version(3, 2), NONE)
    bed.of_primary = lambda: committed  # type: ignore[method-assign]

    def stored() -> None:
        bed.of_primary = bed.kept  # type: ignore[method-assign]

    bed.waits(50, stored)
    assert bed.command(ONE) == 0
    assert bed.node.clock.passed_s >= 4.0


def test_a_target_that_would_write_no_more_is_not_told_an_error(bed: Bed) -> None:
    """LIO writes changes once it has written a registration (pr_aptpl_active)."""
    bed.node.states["vol1"] = STANDBY
    bed.is_writing = False
    bed.waits(80, bed.interrupted.set)
    assert bed.command(ONE) == 0


def test_the_end_of_a_session_waits_for_nothing(bed: Bed) -> None:
    """Not for a text that cannot be read, nor for a monitor that is about to reload."""
    bed.node.states["vol1"] = STANDBY
    bed.waits(5, bed.interrupted.set)
    assert bed.write(b"cut of") == 0
    bed.interrupted.clear()
    bed.keep(Version(3, 2), HELD)
    with state_files.locked(replica_note.held_path("vol1"), wait_s=0.0):
        bed.waits(5, bed.interrupted.set)
        assert bed.command(NONE) == 0


def test_what_lio_cannot_list_is_taken_from_the_text(bed: Bed) -> None:
    bed.kernel = None
    assert bed.write(text(HELD)) == 0
    assert bed.kept().reservations == HELD


def test_a_host_that_is_kept_out_meanwhile_loses_nothing(bed: Bed) -> None:
    bed.keep(Version(3, 2), Reservations(((J, 2),), J, 5))
    bed.entries = [H]
    assert bed.command(ONE) == 0
    assert bed.kept().reservations == Reservations(((H, 1), (J, 2)), J, 5)


def test_nor_does_one_whose_entry_is_half_gone(bed: Bed) -> None:
    bed.keep(Version(3, 2), Reservations(((J, 2),), J, 5))
    bed.unmapped = {J}
    assert bed.command(ONE) == 0
    assert bed.kept().reservations == Reservations(((H, 1), (J, 2)), J, 5)


def test_nor_does_one_that_is_kept_out_in_that_very_moment(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry, and with it what the kernel has, goes while what is registered is read."""
    bed.keep(Version(3, 2), HELD._replace(holder=J))

    def read(_: str) -> list[tuple[str, int]]:
        bed.entries = [H]
        return list(ONE.registrations)

    monkeypatch.setattr(lio_reservations, "read_registrations", read)
    assert bed.command(ONE) == 0
    assert bed.kept().reservations == HELD._replace(holder=J)


@pytest.mark.parametrize("data", [b"cut of", text(HELD)[:-30]])
def test_a_text_that_cannot_be_read_is_not_answered(bed: Bed, data: bytes) -> None:
    with pytest.raises(AssertionError, match="waits for ever"):
        bed.write(data)
    assert bed.kept().version == Version(3, 2)


def test_without_a_file_nothing_is_answered(bed: Bed) -> None:
    Path(bed.path).unlink()
    for state in (PRIMARY, STANDBY):
        bed.node.states["vol1"] = state
        bed.node.clock.begin_s = bed.node.clock.now_s
        with pytest.raises(AssertionError, match="waits for ever"):
            bed.command(ONE)


def test_a_registration_on_a_standby_is_true_once_the_active_node_has_it(bed: Bed) -> None:
    bed.node.states["vol1"] = STANDBY
    bed.waits(5, lambda: bed.keep(Version(3, 3), HELD))
    assert bed.command(ONE) == 0
    assert bed.stored == [] and bed.kept().reservations == HELD
    assert in_force.mirrored("vol1") == ONE


def test_a_registration_that_the_active_node_does_not_have_fails(bed: Bed) -> None:
    bed.node.states["vol1"] = STANDBY
    assert bed.command(ONE) == errno.EIO
    assert 3.0 <= bed.node.clock.passed_s < 5.0


@pytest.mark.parametrize("before", [HELD, ONE._replace(holder=H, type=5)])
def test_what_takes_away_is_not_answered_before_it_is_true(bed: Bed, before: Reservations) -> None:
    """LIO would answer GOOD whatever it is told: a preemption that nobody else knows of."""
    bed.node.states["vol1"] = STANDBY
    in_force.note_mirrored("vol1", before)
    bed.keep(Version(3, 2), before)

    def look() -> None:
        with state_files.locked(replica_note.held_path("vol1"), wait_s=0.0) as is_free:
            assert not is_free, "a monitor would reload"
        bed.keep(Version(3, 3), NONE)

    bed.waits(200, look)
    assert bed.command(NONE) == 0
    assert bed.node.clock.passed_s >= 19.0
    with state_files.locked(replica_note.held_path("vol1"), wait_s=0.0) as is_free:
        assert is_free


def test_what_waits_for_a_standby_to_follow_has_a_monitor_reload(bed: Bed) -> None:
    """A host that was preempted registers anew: this target has its key, and another holder."""
    bed.node.states["vol1"] = STANDBY
    in_force.note_mirrored("vol1", HELD)
    bed.keep(Version(3, 2), HELD._replace(holder=J))
    note = replica_note.behind("vol1")

    def look() -> None:
        assert note.exists() and bed.node.clock.passed_s < 4.0
        note.remove()
        bed.waits(50, bed.interrupted.set)

    bed.waits(34, look)
    assert bed.command(HELD) == 0
    assert not note.exists(), "noted once"


def test_a_host_that_is_kept_out_here_has_no_monitor_reload(bed: Bed) -> None:
    """What was mirrored is of the others alone: a reload would bring nothing else."""
    bed.node.states["vol1"] = STANDBY
    bed.entries.remove(J)
    in_force.note_mirrored("vol1", HELD.limited_to((H,)))
    bed.keep(Version(3, 2), HELD)
    bed.waits(80, bed.interrupted.set)
    assert bed.command(ONE) == 0
    assert not replica_note.behind("vol1").exists()


def test_what_no_reload_makes_true_has_no_monitor_reload(bed: Bed) -> None:
    """A RELEASE that the node that serves has not seen: its own session alone ends."""
    bed.node.states["vol1"] = STANDBY
    in_force.note_mirrored("vol1", HELD)
    bed.keep(Version(3, 2), HELD)
    bed.waits(80, bed.interrupted.set)
    assert bed.command(HELD._replace(holder=None, type=None)) == 0
    assert not replica_note.behind("vol1").exists()


def test_a_command_that_waits_is_stored_by_a_promotion(bed: Bed) -> None:
    bed.node.states["vol1"] = STANDBY
    in_force.note_mirrored("vol1", HELD)
    bed.keep(Version(3, 2), HELD)

    def promoted() -> None:
        bed.node.states["vol1"] = PRIMARY

    bed.waits(50, promoted)
    assert bed.command(NONE) == 0
    assert bed.kept() == StoredReservations(Version(4, 1), NONE)


def test_a_command_whose_session_ends_does_not_keep_a_standby(bed: Bed) -> None:
    """The kernel waits for it before it ends the session, and a monitor for the lock."""
    bed.node.states["vol1"] = STANDBY
    in_force.note_mirrored("vol1", HELD)
    bed.keep(Version(3, 2), HELD)
    bed.waits(50, bed.interrupted.set)
    assert bed.command(NONE) == 0
    assert bed.kept() == StoredReservations(Version(3, 2), HELD) and bed.stored == []


def test_a_command_does_not_keep_a_promotion_from_its_reload(bed: Bed) -> None:
    in_force.note_mirrored("vol1", HELD)
    bed.keep(Version(3, 2), HELD)
    path, reload_path = replica_note.lock_path("vol1"), replica_note.reload_path("vol1")
    with (
        state_files.locked(path, wait_s=0.0) as is_mine,
        contextlib.ExitStack() as reload,
    ):
        assert is_mine

        def reloads() -> None:
            assert reload.enter_context(state_files.locked(reload_path, wait_s=0.0))
            bed.interrupted.set()

        bed.waits(20, reloads)
        assert bed.command(NONE) == 0
    assert bed.kept() == StoredReservations(Version(3, 2), HELD)


def test_nor_does_one_that_waits_for_a_replica_keep_its_host_from_being_taken_off(bed: Bed) -> None:
    """What broke: the monitor hung in the kernel, with the host that was to be kept out."""
    bed.is_silent = True
    with contextlib.ExitStack() as out:

        def takes_off() -> None:
            with state_files.locked(replica_note.lock_path("vol1"), wait_s=0.0) as is_free:
                assert not is_free, "its change is being stored"
            lock = state_files.locked(replica_note.reload_path("vol1"), wait_s=0.0)
            assert out.enter_context(lock)
            bed.interrupted.set()

        bed.waits(3, takes_off)
        assert bed.command(HELD) == 0
    assert bed.kept() == StoredReservations(Version(3, 2), NONE)
    assert replica_note.unkept("vol1").exists(), "nothing undoes what it has changed in LIO"
    # One of another host is stored once that is over.
    bed.interrupted.clear()
    bed.is_silent = False
    with contextlib.ExitStack() as out:
        lock = state_files.locked(replica_note.reload_path("vol1"), wait_s=0.0)
        assert out.enter_context(lock)

        def is_over() -> None:
            assert bed.stored == [] and bed.kept().version == Version(3, 2)
            out.close()

        bed.waits(30, is_over)
        assert bed.command(ONE) == 0 and bed.kept().reservations == ONE


def test_what_the_node_that_serves_cannot_note_is_not_void(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: who was taken off the list had changed what no monitor looked at any more."""

    def refuse(_: state_files.StateFile, __: str = "") -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write = state_files.StateFile.write
    monkeypatch.setattr(state_files.StateFile, "write", refuse)
    bed.interrupted.set()
    with state_files.locked(replica_note.reload_path("vol1"), wait_s=0.0) as is_mine:
        assert is_mine
        # That reload undoes it, and a promotion goes by what is kept.
        bed.alua = "Standby"
        assert bed.command(HELD) == 0
        bed.alua = "Active/Optimized"
        begin_s = bed.node.clock.passed_s

        def has_room() -> None:
            assert bed.stored == []
            monkeypatch.setattr(state_files.StateFile, "write", write)

        bed.waits(6, has_room)
        assert bed.command(HELD) == 0
    assert bed.node.clock.passed_s - begin_s > 3.0
    assert replica_note.unkept("vol1").exists() and bed.kept().version == Version(3, 2)


def test_the_active_node_stores_what_a_host_that_is_gone_has_changed(bed: Bed) -> None:
    """The change is in force: others see it, and a failover must not undo it."""
    bed.interrupted.set()
    assert bed.command(HELD) == 0
    assert bed.kept().reservations == HELD


def test_a_command_of_before_a_restart_waits_until_all_of_it_is_true(bed: Bed) -> None:
    """What it has changed is not known any more; an error could be a GOOD that is false."""
    bed.node.states["vol1"] = STANDBY
    in_force.note_mirrored("vol1", ONE)
    bed.waits(100, lambda: bed.keep(Version(3, 3), ONE))
    assert bed.command(ONE) == 0
    assert bed.node.clock.passed_s >= 9.0


def test_a_device_of_which_nothing_is_noted_waits_and_others_files_are_kept(bed: Bed) -> None:
    assert (
        bed.writes.answer(
            Write(
                "aptpl_other", b"text\0", is_resent=False, interrupted=threading.Event(), number=1
            )
        )
        == 0
    )
    assert (bed.below / "aptpl_other").read_bytes() == b"text\0"
    replica, bed.replica = bed.replica, None

    def noted() -> None:
        bed.replica = replica

    bed.waits(5, noted)
    assert bed.command(ONE) == 0 and bed.kept().reservations == ONE
    assert sorted(os.listdir(bed.below)) == ["aptpl_other"]


def test_the_names_that_a_later_process_knows(bed: Bed) -> None:
    (bed.below / "aptpl_other").touch()
    assert set(bed.writes.known_names()) == {"aptpl_other", f"aptpl_{UUID}"}


class Systemd:
    """systemd, and the kernel's mounts at the folder, for `service.main`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.kept: list[int] = []
        self.said: list[str] = []
        self.mounts: list[int] = []
        self.asked: list[int] = []
        #: What systemd and the kernel did, and whether the device was noted by then.
        self.noted: list[tuple[str, bool]] = []
        module = ModuleType("systemd")
        module.daemon = SimpleNamespace(  # type: ignore[attr-defined]
            listen_fds=lambda: list(self.kept), notify=self.notify
        )
        patch.setitem(sys.modules, "systemd", module)
        patch.setattr(timed_call, "allow_in_threads", lambda: None)
        patch.setattr(listener, "listen", lambda: None)
        patch.setattr(Ahead, "follow", lambda _: None)
        patch.setattr(service_unit, "folder", lambda: str(folder))
        patch.setattr(service_unit, "is_mounted", lambda: bool(self.mounts))
        patch.setattr(fuse, "mount", self.mount)
        patch.setattr(fuse, "unmount", lambda _: self.mounts.pop())
        patch.setattr(fuse, "Folder", self.served)

    def mount(self, path: str) -> int:
        assert path == str(self.folder) and not self.mounts
        self._look("mount")
        self.mounts.append(77)
        return 77

    def notify(self, text: str, fds: list[int] | None = None) -> None:
        self._look(text.partition("=")[0])
        self.said.append(" ".join([text.replace("\n", " "), *(str(each) for each in fds or [])]))

    def _look(self, step: str) -> None:
        self.noted.append((step, replica_note.unkept("vol1").exists()))

    def served(self, connection: int, *_: object) -> Any:
        return SimpleNamespace(
            ask_again=lambda: self.asked.append(connection),
            serve=lambda: self.said.append("serves"),
        )


@pytest.fixture
def systemd(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    return Systemd(tmp_path / "pr", monkeypatch)


@pytest.mark.parametrize("mounts", [[], [66, 66]])
def test_the_first_process_has_its_connection_kept(systemd: Systemd, mounts: list[int]) -> None:
    """Also over the mount of one that died before that."""
    systemd.mounts = list(mounts)
    state_files.of_device("vol1", "reservations").write()
    assert service.main() == 0
    assert replica_note.unkept("vol1").exists(), "LIO may have told hosts what nobody keeps"
    # One that dies in between is followed by one that notes it anew.
    steps = [("mount", False), ("FDSTORE", True), ("FDSTORE", True), ("READY", True)]
    assert systemd.noted == steps
    below, connection, *rest = systemd.said
    assert below.startswith("FDSTORE=1 FDNAME=below ")
    assert connection == "FDSTORE=1 FDNAME=fuse 77"
    assert rest == ["READY=1", "serves"]
    assert systemd.asked == [] and systemd.mounts == [77]


def test_a_mount_that_fails_for_good_has_nothing_noted(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: each monitor reloaded for the note of the latest of the processes that failed."""

    def refuse(_: str) -> int:
        raise OSError(errno.ENODEV, "No such device")

    state_files.of_device("vol1", "reservations").write()
    monkeypatch.setattr(fuse, "mount", refuse)
    with pytest.raises(OSError, match="No such device"):
        service.main()
    assert not replica_note.unkept("vol1").exists() and systemd.said == []


def test_a_full_run_does_not_keep_it_from_the_mount(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    state_files.of_device("vol1", "reservations").write()
    monkeypatch.setattr(state_files.StateFile, "write", refuse)
    assert service.main() == 0 and systemd.mounts == [77]


def test_the_next_one_asks_for_what_was_not_answered(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd.kept, systemd.mounts = [3, 4], [77]
    monkeypatch.setenv("LISTEN_FDNAMES", "fuse:below")
    state_files.of_device("vol1", "reservations").write()
    assert service.main() == 0
    assert not replica_note.unkept("vol1").exists()
    assert (systemd.said, systemd.asked, systemd.mounts) == (["READY=1", "serves"], [3], [77])


def test_a_connection_that_ended_is_made_anew(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd.kept = [4]
    monkeypatch.setenv("LISTEN_FDNAMES", "below")
    assert service.main() == 0
    assert systemd.mounts == [77] and systemd.asked == []
    # What broke: the folder was kept twice, and systemd, which keeps two, refused the connection.
    assert [each for each in systemd.said if "FDSTORE" in each] == ["FDSTORE=1 FDNAME=fuse 77"]
