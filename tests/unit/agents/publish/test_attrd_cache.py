# SPDX-License-Identifier: GPL-2.0-or-later
"""Attributes are published again after some time, a change and to a new pacemaker-attrd."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from sanctl.agents.publish import attrd_cache
from sanctl.system import state_files


class Node:
    """A node's processes and its state files."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.notes = folder / "proc", folder / "run"
        self.proc.mkdir()
        self.notes.mkdir()
        self.run("1", "systemd")
        (self.proc / "meminfo").touch()

    def run(self, process: str, program: str) -> None:
        (self.proc / process).mkdir()
        (self.proc / process / "comm").write_text(f"{program}\n")

    def end(self, process: str) -> None:
        (self.proc / process / "comm").unlink()
        (self.proc / process).rmdir()


def vol1() -> state_files.StateFile:
    return attrd_cache.of_device("vol1")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path)
    monkeypatch.setattr(attrd_cache, "_PROC", str(made.proc))
    monkeypatch.setattr(state_files, "RUNTIME", str(made.notes))
    return made


@pytest.mark.parametrize(
    ("written_before_s", "is_known"),
    [(0.0, True), (30.0, True), (61.0, False), (-3600.0, False)],
)
def test_a_record_counts_for_a_minute_whatever_the_clock_did(
    node: Node, written_before_s: float, is_known: bool
) -> None:
    """The age of a record from the future is not known."""
    attrd_cache.record(vol1(), "7", "9000 disk=UpToDate")
    written_s = time.time() - written_before_s
    os.utime(node.notes / "devices/vol1/attrd-cache.state", (written_s, written_s))
    assert attrd_cache.is_current(vol1(), "7", "9000 disk=UpToDate") is is_known


def test_a_record_counts_within_the_time_that_is_asked_for(node: Node) -> None:
    attrd_cache.record(vol1(), "7", "9000")
    written_s = time.time() - 300.0
    os.utime(node.notes / "devices/vol1/attrd-cache.state", (written_s, written_s))
    assert attrd_cache.is_current(vol1(), "7", "9000", within_s=310.0)
    assert not attrd_cache.is_current(vol1(), "7", "9000", within_s=290.0)
    attrd_cache.have_published_again(vol1())
    assert not attrd_cache.is_current(vol1(), "7", "9000", within_s=1e6)
    assert attrd_cache.published_fields(vol1()) == ["7", "9000"]
    attrd_cache.have_published_again(attrd_cache.of_score("vol1"))
    assert attrd_cache.devices_with_score() == [], "none is made"


def test_a_period_is_as_long_as_there_are_replicas(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def length_s() -> float:
        return sum(attrd_cache.period_of_device("vol1", is_in_sync=True))

    assert length_s() == pytest.approx(115.0), "there is no folder yet"
    for number in range(30):
        attrd_cache.record(attrd_cache.of_score(f"vol{number}"), "7", "9000")
    (node.notes / "devices/.removed.vol99.17").mkdir()
    assert state_files.count_devices() == 30
    assert length_s() == pytest.approx(345.0)

    def fail(_path: str) -> list[str]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(state_files, "_entries", fail)
    assert length_s() == pytest.approx(115.0), "not known: as few"


def test_a_changed_value_is_not_current(node: Node) -> None:
    assert not attrd_cache.is_current(vol1(), "7", "9000 disk=UpToDate")
    assert attrd_cache.published_fields(vol1()) == []
    attrd_cache.record(vol1(), "7", "9000 disk=UpToDate")
    assert not attrd_cache.is_current(vol1(), "7", "5 disk=Outdated")
    assert "disk=UpToDate" in attrd_cache.published_fields(vol1())
    vol1().remove()
    vol1().remove()
    assert not attrd_cache.is_current(vol1(), "7", "9000 disk=UpToDate")


def test_no_record_is_current_after_a_restart_of_the_daemon(node: Node) -> None:
    node.run("812", "pacemaker-attrd")
    first = attrd_cache.attrd_pid()
    assert first == "812"
    attrd_cache.record(vol1(), first, "9000")
    assert attrd_cache.is_current(vol1(), attrd_cache.attrd_pid(), "9000")
    node.end("812")
    assert attrd_cache.attrd_pid() == ""
    assert not attrd_cache.is_current(vol1(), attrd_cache.attrd_pid(), "9000")
    node.run("1044", "pacemaker-attrd")
    assert attrd_cache.attrd_pid() == "1044"
    assert not attrd_cache.is_current(vol1(), attrd_cache.attrd_pid(), "9000")


def test_a_pid_that_another_program_has_is_not_the_daemon(node: Node) -> None:
    node.run("812", "pacemaker-attrd")
    assert attrd_cache.attrd_pid() == "812"
    node.end("812")
    node.run("812", "bash")
    assert attrd_cache.attrd_pid() == ""


@pytest.mark.parametrize(
    ("pid", "age_s", "is_due"),
    [("7", 6.0, True), ("7", 1.0, False), ("8", 6.0, False), ("", 6.0, False)],
)
def test_values_must_be_in_the_cib_after_some_seconds(
    node: Node, pid: str, age_s: float, is_due: bool
) -> None:
    attrd_cache.record(attrd_cache.of_pools(), "7", "main=total=1")
    written_s = time.time() - age_s
    os.utime(node.notes / "node/attrd-cache.pools", (written_s, written_s))
    assert attrd_cache.must_be_in_cib(attrd_cache.of_pools(), pid) is is_due
    assert not attrd_cache.must_be_in_cib(attrd_cache.of_votes(), pid)
