# SPDX-License-Identifier: GPL-2.0-or-later
"""Long-lived processes are found again and killed with all their children."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sanctl.errors import CommandError
from sanctl.lab.machines import process


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + 10
    while text not in process.tail(log):
        assert time.monotonic() < deadline, process.tail(log)
        time.sleep(0.01)


def test_a_session_ends_with_all_its_processes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    leader = process.spawn(["sh", "-c", "sleep 60 & sleep 60 & echo ready; wait"], log=log)
    try:
        wait_for(log, "ready")
        assert leader.is_alive()
        assert len(process.session_members(leader.pid)) == 3
    finally:
        process.end_session(leader)
    assert not leader.is_alive()
    assert process.session_members(leader.pid) == []


def test_a_process_is_found_again_by_another_command(tmp_path: Path) -> None:
    leader = process.spawn(["sleep", "60"], log=tmp_path / "log")
    try:
        leader.save(tmp_path / "pid")
        found = process.Process.load(tmp_path / "pid")
        assert found is not None
        assert found.is_alive()
    finally:
        process.end_session(leader)
    assert not found.is_alive()


def test_a_reused_id_is_not_mistaken_for_the_process() -> None:
    assert not process.Process(1, "another start time").is_alive()


@pytest.mark.parametrize("content", ["", "nonsense", "1 2 3"])
def test_a_damaged_pid_file_names_no_process(tmp_path: Path, content: str) -> None:
    path = tmp_path / "pid"
    path.write_text(content)
    assert process.Process.load(path) is None
    assert process.Process.load(tmp_path / "none") is None


def test_the_end_of_the_log_is_part_of_the_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="it broke"):
        process.run_logged(
            ["sh", "-c", "echo it broke; exit 3"],
            log=tmp_path / "log",
            timeout_s=10,
            tick=lambda _: None,
        )


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="longer than"):
        process.run_logged(
            ["sleep", "60"], log=tmp_path / "log", timeout_s=0.1, tick=lambda _: None
        )


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no-such-program"):
        process.spawn(["no-such-program"], log=tmp_path / "log")
