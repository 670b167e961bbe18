# SPDX-License-Identifier: GPL-2.0-or-later
"""A CIB that stays behind on disk is written again once the disk takes it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from sanctl.agents.node import cib_writes
from sanctl.agents.node import own_disk as agent
from sanctl.drivers import cib_daemon, corosync, node_attributes, own_disk
from sanctl.errors import CommandError, Problem
from sanctl.parse.corosync import Membership
from sanctl.system import state_files
from tests.fakes.node import FakeNode


class Bed:
    """What a try asks and does; nothing of it is this machine's."""

    def __init__(self, node: FakeNode, patch: pytest.MonkeyPatch) -> None:
        self.node = node
        self.done: list[str] = []
        self.free_bytes, self.is_quorate, self.takes_signal = 2 << 30, True, True
        patch.setattr(own_disk, "space_bytes", lambda: (4 << 30, self.free_bytes))
        patch.setattr(
            corosync,
            "membership",
            lambda _: Membership(is_quorate=self.is_quorate, members=frozenset()),
        )
        patch.setattr(cib_daemon, "enable_writes", self.enable)
        patch.setattr(
            node_attributes,
            "set_permanent",
            lambda *words, **_: self.done.append(f"set {words[2]}"),
        )
        patch.setattr(
            node_attributes,
            "delete_permanent",
            lambda *words, **_: self.done.append(f"delete {words[2]}"),
        )

    def enable(self) -> bool:
        self.done.append("signal")
        return self.takes_signal

    def pass_s(self, seconds: float) -> None:
        note = state_files.of_node("cib-writes-resumed")
        then = time.time() - seconds
        os.utime(note.path, (then, then))


ALL = ["signal", "set sanctl-written", "delete sanctl-written"]


@pytest.fixture
def bed(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(fake_node, monkeypatch)


def test_it_is_told_and_a_change_is_made(bed: Bed) -> None:
    assert cib_writes.resume(bed.node) and bed.done == ALL
    assert any("told to write" in line for line in bed.node.journal)


def test_what_does_not_help_is_done_again_ever_later(bed: Bed) -> None:
    cib_writes.resume(bed.node)
    for pause_s in (600.0, 1200.0, 2400.0, 4800.0, 9600.0, 19200.0, 38400.0, 76800.0, 86400.0):
        bed.pass_s(pause_s - 10.0)
        assert not cib_writes.resume(bed.node)
        bed.pass_s(pause_s + 10.0)
        assert cib_writes.resume(bed.node), pause_s
    for _ in range(3):
        bed.pass_s(86390.0)
        assert not cib_writes.resume(bed.node)
        bed.pass_s(86410.0)
        assert cib_writes.resume(bed.node)
    # A clock that was put back keeps nothing from being told.
    bed.pass_s(-3600.0)
    assert cib_writes.resume(bed.node)


def test_one_that_has_helped_delays_no_later_one(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    written = (1, 40)
    monkeypatch.setattr(own_disk, "live_cib_version", lambda _: (1, 41))
    monkeypatch.setattr(own_disk, "written_cib_version", lambda: written)
    note = state_files.of_node("cib-on-disk")
    for times in (1, 2):
        for _ in range(2):
            agent.fields(bed.node)
            os.utime(note.path, (time.time() - 61.0,) * 2)
        assert bed.done == ALL * times
        written = (1, 41)
        assert agent.fields(bed.node) == ""
        os.utime(note.path, (time.time() - 61.0,) * 2)
        written = (1, 40)


def test_on_a_full_disk_it_is_not_told_and_at_once_when_there_is_room(bed: Bed) -> None:
    bed.free_bytes = 1 << 20
    assert not cib_writes.resume(bed.node) and bed.done == []
    bed.free_bytes = 2 << 30
    assert cib_writes.resume(bed.node) and bed.done == ALL


def test_without_quorum_nothing_is_changed(bed: Bed) -> None:
    bed.is_quorate = False
    assert not cib_writes.resume(bed.node) and bed.done == []


def test_a_daemon_that_would_end_by_the_signal_gets_no_change_either(bed: Bed) -> None:
    bed.takes_signal = False
    assert not cib_writes.resume(bed.node) and bed.done == ["signal"]
    assert not cib_writes.resume(bed.node) and bed.done == ["signal"], "not with each look"


def test_the_look_that_publishes_it_has_it_told(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_disk, "live_cib_version", lambda _: (1, 41))
    monkeypatch.setattr(own_disk, "written_cib_version", lambda: (1, 40))
    note = state_files.of_node("cib-on-disk")
    assert "unwritten" not in agent.fields(bed.node) and bed.done == []
    os.utime(note.path, (time.time() - 61.0,) * 2)
    assert "cib=unwritten" in agent.fields(bed.node) and bed.done == ALL
    # Between two looks it is published, and nothing is done.
    bed.pass_s(601.0)
    assert "cib=unwritten" in agent.fields(bed.node) and bed.done == ALL


def test_what_fails_is_logged_and_published_all_the_same(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_: object) -> Membership:
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    monkeypatch.setattr(corosync, "membership", silent)
    monkeypatch.setattr(own_disk, "live_cib_version", lambda _: (1, 41))
    monkeypatch.setattr(own_disk, "written_cib_version", lambda: None)
    agent.fields(bed.node)
    os.utime(state_files.of_node("cib-on-disk").path, (time.time() - 61.0,) * 2)
    assert "cib=unwritten" in agent.fields(bed.node)
    assert any("was not told" in line for line in bed.node.journal)


@pytest.mark.parametrize(
    ("parent", "caught", "is_told"),
    [
        ("pacemakerd", "0000000000001000", True),
        # By its default action SIGPIPE ends a process.
        ("pacemakerd", "0000000000000800", False),
        # A child that writes the CIB just now.
        ("pacemaker-based", "0000000000001000", False),
    ],
)
def test_who_gets_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parent: str, caught: str, is_told: bool
) -> None:
    for process, comm, ppid in (("7", parent, 1), ("12", "pacemaker-based", 7), ("9", "sh", 7)):
        (tmp_path / process).mkdir()
        (tmp_path / process / "comm").write_text(f"{comm}\n")
        (tmp_path / process / "status").write_text(
            f"Name:\t{comm}\nPPid:\t{ppid}\nSigCgt:\t{caught}\n"
        )
    (tmp_path / "13").mkdir()  # it has ended meanwhile
    (tmp_path / "self").mkdir()
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(cib_daemon, "_PROC", str(tmp_path))
    monkeypatch.setattr(os, "kill", lambda *words: sent.append(words))
    if parent == "pacemaker-based":
        (tmp_path / "7/status").write_text("Name:\tx\nPPid:\t1\nSigCgt:\t0\n")
    assert cib_daemon.enable_writes() is is_told
    assert sent == ([(12, signal.SIGPIPE)] if is_told else [])
