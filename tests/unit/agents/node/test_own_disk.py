# SPDX-License-Identifier: GPL-2.0-or-later
"""The pool agent says that the CIB is not written to disk, and that the node's own disk is full."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from sanctl.agents.node import own_disk as agent
from sanctl.drivers import own_disk
from sanctl.errors import CommandError, Problem
from sanctl.parse.cib_version import parse_cib_version
from sanctl.parse.published_state import parse_pool_usage
from sanctl.system import state_files
from tests.fakes.node import FakeNode
from tests.fakes.runner import FakeRunner

READ_WRITTEN, READ_LIVE = own_disk.written_cib_version, own_disk.live_cib_version


class Disk:
    """What Pacemaker and the disk say."""

    def __init__(self) -> None:
        self.live: tuple[int, int] | None = (1, 40)
        self.written: tuple[int, int] | OSError | None = (1, 40)

    def read(self) -> tuple[int, int] | None:
        if isinstance(self.written, OSError):
            raise self.written
        return self.written


@pytest.fixture
def disk(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Disk:
    del fake_node
    found = Disk()
    monkeypatch.setattr(own_disk, "live_cib_version", lambda _runner: found.live)
    monkeypatch.setattr(own_disk, "written_cib_version", found.read)
    return found


def look(fake_node: FakeNode, *, after_s: float = 61.0) -> str:
    note = state_files.of_node("cib-on-disk")
    if note.exists():
        then = time.time() - after_s
        os.utime(note.path, (then, then))
    return agent.fields(fake_node)


def test_a_cib_that_stays_behind_for_a_minute_is_published(disk: Disk, fake_node: FakeNode) -> None:
    """What broke: after one write that failed marks were in memory alone, and nothing said so."""
    assert look(fake_node) == ""
    disk.live = (2, 0)
    assert look(fake_node) == "", "it may be being written"
    assert look(fake_node, after_s=30.0) == ""
    disk.live = (2, 1)
    assert look(fake_node) == " cib=unwritten"
    assert look(fake_node, after_s=5.0) == " cib=unwritten"
    assert look(fake_node, after_s=-3600.0) == " cib=unwritten", "the clock was put back"
    assert parse_pool_usage("total=1 free=1 cib=unwritten").is_cib_unwritten
    assert any("not written to disk" in line for line in fake_node.journal)
    disk.written = (2, 1)
    assert look(fake_node) == ""


def test_a_cib_that_changes_at_each_look_is_written(disk: Disk, fake_node: FakeNode) -> None:
    for number in range(41, 45):
        disk.live = (1, number)
        assert look(fake_node) == ""
        disk.written = (1, number)


def test_a_cib_without_a_file_is_unwritten(disk: Disk, fake_node: FakeNode) -> None:
    disk.written = None
    assert look(fake_node) == ""
    assert look(fake_node) == " cib=unwritten"


def test_a_file_that_cannot_be_read_is_unwritten(disk: Disk, fake_node: FakeNode) -> None:
    """What broke: a boot finds no marks in it, and only the journal said so."""
    disk.written = OSError(errno.EIO, "I/O error")
    assert look(fake_node) == ""
    assert look(fake_node) == " cib=unwritten"
    assert any("I/O error" in line for line in fake_node.journal)
    disk.written = disk.live
    assert look(fake_node) == ""


def test_what_is_not_known_is_not_published(disk: Disk, fake_node: FakeNode) -> None:
    disk.written, disk.live = (1, 39), None
    assert look(fake_node) == look(fake_node) == ""


def test_little_room_is_published_in_steps(
    disk: Disk, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    del disk
    monkeypatch.setattr(own_disk, "space_bytes", lambda: (4 << 30, 300 << 20))
    assert agent.fields(fake_node) == f" own-disk={256 << 20}"
    usage = parse_pool_usage(f"total=1 free=1 own-disk={256 << 20}")
    assert usage.own_disk_free_bytes == 256 << 20 and not usage.is_cib_unwritten
    assert parse_pool_usage("total=1 free=1").own_disk_free_bytes is None


def test_little_room_on_run_is_published_beside_it(
    disk: Disk, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starts and handlers fail first when it is full."""
    del disk
    monkeypatch.setattr(own_disk, "run_space_bytes", lambda: (100 << 20, 19 << 20))
    assert agent.fields(fake_node) == f" run-free={16 << 20}"
    assert parse_pool_usage(f"total=1 free=1 run-free={16 << 20}").run_free_bytes == 16 << 20

    def fails() -> tuple[int, int]:
        raise OSError(5, "I/O error")

    monkeypatch.setattr(own_disk, "run_space_bytes", fails)
    assert agent.fields(fake_node) == ""
    monkeypatch.setattr(own_disk, "space_bytes", fails)
    assert agent.fields(fake_node) == ""


def test_the_version_is_read_from_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    element = (
        '<cib crm_feature_set="3.16.2" validate-with="pacemaker-3.9" epoch="57" num_updates="0" '
        'admin_epoch="3" cib-last-written="Fri Nov 27 13:40:00 2026" update-origin="n1">'
    )
    file = tmp_path / "cib.xml"
    file.write_text(element + "<x/>" * 4096)
    monkeypatch.setattr(own_disk, "_CIB_FILE", f"{file}")
    assert READ_WRITTEN() == (3, 57)
    file.unlink()
    assert READ_WRITTEN() is None
    assert READ_LIVE(FakeRunner(f"{element[:-1]}/>")) == (3, 57)
    assert READ_LIVE(FakeRunner("<cib/>")) is None
    assert parse_cib_version("<cib epoch='x'/>") is None
    assert parse_cib_version("") is None


def test_pacemaker_that_does_not_answer_changes_nothing(
    disk: Disk, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.written = (1, 39)
    look(fake_node)
    assert look(fake_node) == " cib=unwritten"

    def silent(_runner: object) -> None:
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    monkeypatch.setattr(own_disk, "live_cib_version", silent)
    assert look(fake_node) == " cib=unwritten"
