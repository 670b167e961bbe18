# SPDX-License-Identifier: GPL-2.0-or-later
"""Consoles are read on, over a power cycle too."""

from __future__ import annotations

from pathlib import Path

from sanctl.lab.chaos.consoles import Consoles, as_journal
from sanctl.lab.measure import log_patterns


def cycle(log: Path, text: str) -> None:
    """As a machine is switched on again."""
    log.replace(log.with_suffix(".previous.log"))
    log.write_text(text)


def test_each_line_is_told_once_and_none_is_left_out(tmp_path: Path) -> None:
    log, never = tmp_path / "console.log", tmp_path / "none" / "console.log"
    log.write_text("booted long ago\n")
    consoles = Consoles({"n1": log, "n2": never})
    assert consoles.news("n1") == consoles.news("n2") == []
    with log.open("a") as file:
        file.write("one\n")
    assert consoles.news("n1") == ["one"]
    with log.open("a") as file:
        file.write("Kernel panic - not syncing\n")
    cycle(log, "power on\n")
    assert consoles.news("n1") == ["Kernel panic - not syncing", "power on"]
    assert consoles.news("n1") == []
    cycle(log, "again\n")
    assert consoles.news("n1") == ["again"]
    cycle(log, "booted twice\nOops\n")
    cycle(log, "since\n")
    assert consoles.news("n1") == ["booted twice", "Oops", "since"]
    assert consoles.news("n1") == []


def test_a_panic_is_forbidden() -> None:
    lines = ["Linux version 7.2.7", "Kernel panic - not syncing: Attempted to kill init!"]
    (found,) = log_patterns.find(as_journal(lines), is_host=False)
    assert found.startswith("kernel bug")
