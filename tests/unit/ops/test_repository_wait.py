# SPDX-License-Identifier: GPL-2.0-or-later
"""What a command says that waits for a repository which others use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from sanctl.drivers import backup_notes
from sanctl.ops.repository_wait import say_waits, turn_or_word
from sanctl.ops.session import Session
from sanctl.plan.device.repository_wait import waiting_text
from tests.fakes.pacemaker import FakeReporter
from tests.unit.ops.test_backup import Bed, bed

__all__ = ["bed"]


def session_of(bed: Bed) -> tuple[Session, list[str]]:
    reporter = FakeReporter()
    return Session(bed.env.pacemaker, bed.env.clock, reporter), reporter.lines


@pytest.mark.parametrize(
    ("holder", "devices", "why"),
    [
        ("", (), "another command uses it, on this node or another one"),
        ("process 4711 on n2", (), "process 4711 on n2 has it"),
        ("", ("db", "web"), "on this node backups are under way of db, web"),
        ("process 1 on n2", ("web",), "process 1 on n2 has it; on this node backups are under"),
    ],
)
def test_what_is_said_of_a_wait(holder: str, devices: tuple[str, ...], why: str) -> None:
    text = waiting_text("nas", 55, holder, devices)
    assert text.startswith(f"waiting for repository nas, for up to 55 s: {why}")


def test_borg_says_it_by_the_session(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    session, lines = session_of(bed)
    backup_notes.begin("web", "nas", "n2", 1)
    backup_notes.begin("db", "far", "n2", 1)
    say_waits(session, bed.borg)
    assert bed.borg.on_wait is not None
    bed.borg.on_wait(55)
    assert lines == [
        "waiting for repository nas, for up to 55 s: on this node backups are under way of web"
    ]

    # In its node's turn no other backup of the node has it; its own is noted by then.
    say_waits(session, bed.borg, has_turn=True)
    bed.borg.on_wait(30)
    assert lines[-1].endswith("another command uses it, on this node or another one")
    say_waits(session, bed.borg)

    def unreadable(_repository: str) -> tuple[str, ...]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(backup_notes, "begun_into", unreadable)
    bed.borg.on_wait(9)
    assert "another command uses it" in lines[-1]


@pytest.mark.parametrize(
    ("lock_s", "free_at", "waits", "is_next"),
    [
        (60, 0, [5], True),
        (60, 1, [5, 55], True),
        (60, 2, [5, 55], False),
        (3, 1, [3], False),
    ],
)
def test_a_turn_is_awaited_with_a_word(
    bed: Bed,
    monkeypatch: pytest.MonkeyPatch,
    lock_s: int,
    free_at: int,
    waits: list[int],
    *,
    is_next: bool,
) -> None:
    waited: list[float] = []

    @contextlib.contextmanager
    def turn(_repository: str, *, wait_s: float) -> Iterator[bool]:
        waited.append(wait_s)
        yield len(waited) > free_at

    monkeypatch.setattr(backup_notes, "turn", turn)
    session, lines = session_of(bed)
    bed.borg.lock_s = lock_s
    with turn_or_word(session, bed.borg) as got:
        assert got is is_next
    assert waited == waits and len(lines) == len(waits) - 1


@pytest.mark.parametrize("command", ["list", "prune web --keep-last 1 --yes", "run web"])
def test_a_command_waits_as_long_as_it_is_told(bed: Bed, command: str) -> None:
    assert bed.run(f"backup {command} --wait 7")[0] == 0
    assert bed.borg.lock_s == 7 and bed.borg.on_wait is not None
    name = bed.run("backup run web")[1]["name"]
    assert bed.run(f"backup verify {name} --wait 9")[1][0]["code"] == "SAN-BKP-020"
    assert bed.borg.lock_s == 9
