# SPDX-License-Identifier: GPL-2.0-or-later
"""Console lines are returned once each, over a power cycle too."""

from __future__ import annotations

from pathlib import Path

from sanctl.lab.chaos.consoles import ConsoleReader, as_kernel_log
from sanctl.lab.measure import log_patterns


def cycle(log: Path, text: str) -> None:
    """As a machine is switched on again."""
    log.replace(log.with_suffix(".previous.log"))
    log.write_text(text)


def test_each_line_is_returned_once_and_none_is_left_out(tmp_path: Path) -> None:
    log, never = tmp_path / "console.log", tmp_path / "none" / "console.log"
    log.write_text("booted long ago\n")
    consoles = ConsoleReader({"n1": log, "n2": never})
    assert consoles.new_lines("n1") == consoles.new_lines("n2") == []
    with log.open("a") as file:
        file.write("one\n")
    assert consoles.new_lines("n1") == ["one"]
    with log.open("a") as file:
        file.write("Kernel panic - not syncing\n")
    cycle(log, "power on\n")
    assert consoles.new_lines("n1") == ["Kernel panic - not syncing", "power on"]
    assert consoles.new_lines("n1") == []
    cycle(log, "again\n")
    assert consoles.new_lines("n1") == ["again"]
    cycle(log, "booted twice\nOops\n")
    cycle(log, "since\n")
    assert consoles.new_lines("n1") == ["booted twice", "Oops", "since"]
    assert consoles.new_lines("n1") == []


def test_a_panic_is_forbidden() -> None:
    lines = ["Linux version 7.2.7", "Kernel panic - not syncing: Attempted to kill init!"]
    (found,) = log_patterns.find(as_kernel_log(lines), is_host=False)
    assert found.startswith("kernel bug")
