# SPDX-License-Identifier: GPL-2.0-or-later
"""A command that a signal ends says what goes on, and has its line in the journal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_PROGRAM = """
import sys, time
import click
from sanctl.cli import main as entry
from sanctl.cli.environment import Environment
from sanctl.system import journal

def write(text, **fields):
    with open(sys.argv[2], "a") as file:
        file.write(text + chr(10))

journal.write = write

@click.command()
@click.argument("journal_file")
def waits(journal_file):
    with Environment().logged("waits", command_line="waits"):
        print("it waits", flush=True)
        time.sleep(60)

@click.command()
@click.argument("journal_file")
def asks(journal_file):
    click.confirm("Really?", abort=True, err=True)

entry.cli.add_command(waits)
entry.cli.add_command(asks)
entry._commands = lambda: {}
sys.argv[0] = "sanctl"
entry.main()
"""
#: As at a terminal: what `nohup`, or a job in the background, ignores is inherited.
_RESET = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
_PYTHON = (sys.executable, "-c", _RESET, sys.executable)
#: As nohup does it.
_IGNORING = ("sh", "-c", "trap '' HUP; exec \"$@\"", "sh")


def run(tmp_path: Path, number: int, *, ignored: bool = False) -> tuple[int, str, str]:
    """Send a signal to a command that waits; return status, its error output and its journal."""
    file = tmp_path / "journal"
    process = subprocess.Popen(
        [
            *((*_IGNORING, sys.executable) if ignored else _PYTHON),
            "-c",
            _PROGRAM,
            "waits",
            str(file),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "it waits\n"
    process.send_signal(number)
    if ignored:
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    return process.returncode, err, file.read_text()


@pytest.mark.parametrize(
    ("number", "status", "how", "who"),
    [
        (signal.SIGINT, 130, "Ctrl-C", "KeyboardInterrupt"),
        (signal.SIGTERM, -signal.SIGTERM, "SIGTERM", "Terminated"),
        (signal.SIGHUP, -signal.SIGHUP, "the end of its terminal (SIGHUP)", "HungUp"),
    ],
)
def test_each_signal_ends_a_command_in_the_same_way(
    tmp_path: Path, number: int, status: int, how: str, who: str
) -> None:
    found, err, journal = run(tmp_path, number)
    assert found == status, err
    assert f"SAN-CLI-005: stopped by {how}: what was ordered goes on" in err
    assert f"then: sanctl waits {tmp_path}/journal" in err
    assert journal.splitlines() == ["sanctl waits", f"sanctl waits: interrupted ({who})"]


@pytest.mark.parametrize(
    ("number", "status", "text"),
    [
        (signal.SIGINT, 2, "SAN-CLI-002"),
        (signal.SIGTERM, -signal.SIGTERM, "SAN-CLI-005: stopped by SIGTERM"),
        (signal.SIGHUP, -signal.SIGHUP, "SAN-CLI-005: stopped by the end of its terminal"),
    ],
)
def test_at_a_question_ctrl_c_is_a_no_and_no_other_signal_is(
    tmp_path: Path, number: int, status: int, text: str
) -> None:
    """What broke: a script whose command systemd ended was told a mistake in its command line."""
    process = subprocess.Popen(
        [*_PYTHON, "-c", _PROGRAM, "asks", str(tmp_path / "journal")],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert os.read(process.stderr.fileno(), 99).startswith(b"Really?")
    # The question is written a moment before it is read for.
    time.sleep(0.3)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == status, err
    assert text in err.decode()


def test_what_nohup_has_ignored_stays_ignored(tmp_path: Path) -> None:
    found, err, _ = run(tmp_path, signal.SIGHUP, ignored=True)
    assert found == -signal.SIGTERM and "SIGTERM" in err


def test_without_a_terminal_the_journal_has_its_line(tmp_path: Path) -> None:
    """Where nobody reads standard error any more the output fails, and nothing else does."""
    file, (reads, writes) = tmp_path / "journal", os.pipe()
    process = subprocess.Popen(
        [*_PYTHON, "-c", _PROGRAM, "waits", str(file)],
        stdout=subprocess.PIPE,
        stderr=writes,
    )
    os.close(writes)
    assert process.stdout is not None and process.stdout.readline() == b"it waits\n"
    os.close(reads)
    process.stdout.close()
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=30) == -signal.SIGHUP
    assert file.read_text().splitlines()[-1] == "sanctl waits: interrupted (HungUp)"
