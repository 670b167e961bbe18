# SPDX-License-Identifier: GPL-2.0-or-later
"""Fields of a line in the journal: empty ones are left out, a renamed action has both names."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.system import journal


@pytest.fixture
def journald(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket that journald reads; what it has not read waits."""
    monkeypatch.setattr(journal, "_SOCKET", f"{tmp_path}/socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"{tmp_path}/socket")
        receiver.settimeout(1.0)
        yield receiver


@pytest.fixture
def kernel_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "kmsg"
    file.touch()
    monkeypatch.setattr(journal, "_KERNEL_LOG", f"{file}")
    return file


def entry(journald: socket.socket) -> list[tuple[str, str]]:
    """Return the fields of an entry, as journald reads them."""
    found, left = [], journald.recv(1 << 20)
    while left:
        line, _, left = left.partition(b"\n")
        key, has_value, value = line.partition(b"=")
        if not has_value:
            length = int.from_bytes(left[:8], "little")
            value, left = left[8 : 8 + length], left[8 + length + 1 :]
        found.append((key.decode(), value.decode()))
    return found


def test_empty_fields_are_left_out(journald: socket.socket) -> None:
    journal.write("two lines\nof text=1", device="vol1", action="promote", duration_ms=0)
    assert entry(journald) == [
        ("MESSAGE", "two lines\nof text=1"),
        ("PRIORITY", "6"),
        ("SYSLOG_IDENTIFIER", "sanctl"),
        ("SANCTL_DEVICE", "vol1"),
        ("SANCTL_NODE", os.uname().nodename),
        ("SANCTL_ACTION", "promote"),
        ("SANCTL_DURATION_MS", "0"),
    ]


def test_a_journald_that_hangs_is_not_waited_for(
    journald: socket.socket, kernel_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What broke: a fence-peer handler gave no answer, and a node did not fence itself."""
    sent = 0
    while not kernel_log.read_text():
        journal.write("two lines\nof text", priority=journal.ERROR)
        sent += 1
        assert sent < 100_000
    assert kernel_log.read_text() == "<3>sanctl: two lines of text\n"
    assert capsys.readouterr().err == ""
    assert dict(entry(journald))["MESSAGE"] == "two lines\nof text"


def test_of_a_message_that_is_too_large_the_begin_is_kept(journald: socket.socket) -> None:
    journal.write("x" * (8 << 20), device="vol1")
    found = dict(entry(journald))
    assert found["MESSAGE"] == "x" * (32 << 10) and found["SANCTL_DEVICE"] == "vol1"


@pytest.mark.parametrize(("present", "former"), journal.FORMER_ACTIONS.items())
def test_a_renamed_action_is_found_by_both_names(
    journald: socket.socket, present: str, former: str
) -> None:
    journal.write("text", action=present)
    assert {("SANCTL_ACTION", present), ("SANCTL_ACTION", former)} <= set(entry(journald))


def test_no_present_name_is_a_former_one() -> None:
    assert not journal.FORMER_ACTIONS.keys() & set(journal.FORMER_ACTIONS.values())


def test_without_a_journal_the_message_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(journal, "_SOCKET", "/nonexistent/socket")
    journal.write("text", action="promote")
    assert capsys.readouterr().err == "sanctl: text\n"


@pytest.mark.parametrize("error", [ImportError("no _socket"), OSError(5, "disk")])
def test_nothing_that_logging_meets_ends_an_action(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A disk that does not answer has the module, and who read standard error has gone."""

    class Gone:
        def write(self, _: str) -> int:
            raise BrokenPipeError(32, "nobody reads")

    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(journal, "_send", fail)
    monkeypatch.setattr(sys, "stderr", Gone())
    journal.write("it goes on")
