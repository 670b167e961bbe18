# SPDX-License-Identifier: GPL-2.0-or-later
"""An action begins once the one before it of its resource has ended, also one that was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sanctl.agents import ocf
from sanctl.system import state_files
from tests.support.doc_samples import ROOT

ACTION = """
import sys
sys.path.insert(0, sys.argv[1])
from sanctl.agents import ocf
from sanctl.system import journal, state_files
state_files.RUNTIME = sys.argv[2]
journal.write = lambda message, **fields: print(message, flush=True)
def action():
    print("begins", flush=True)
    sys.stdin.read()
    return 0
sys.exit(ocf.run(sys.argv[3], ["device", "monitor"], {"monitor": action}, ""))
"""


def start(folder: Path, resource: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-c", ACTION, ROOT, folder, resource],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_an_action_begins_when_the_one_before_has_ended(tmp_path: Path, end: str) -> None:
    with start(tmp_path, "vol1") as former, start(tmp_path, "vol2") as other:
        assert line(former) == line(other) == "begins\n"
        with start(tmp_path, "vol1") as latter:
            assert line(latter) == "vol1: waits for an action that has not ended yet\n"
            if end == "ends":
                former.communicate()
            else:
                former.kill()
            assert line(latter) == "begins\n"
            latter.communicate()
            assert latter.returncode == 0
        other.communicate()


def test_an_action_needs_no_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a node whose /run is full or read-only."""
    monkeypatch.setattr(state_files, "RUNTIME", f"{tmp_path}/file")
    Path(state_files.RUNTIME).touch()
    assert ocf.run("vol1", ["device", "monitor"], {"monitor": lambda: 7}, "") == 7


def test_the_lock_is_not_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    assert ocf.run("vol1", ["device", "monitor"], {"monitor": lambda: 7}, "") == 7
    assert len(os.listdir("/proc/self/fd")) == before
