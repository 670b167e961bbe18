# SPDX-License-Identifier: GPL-2.0-or-later
"""An action begins once the one before it of its resource has ended, also one that was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
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
def stop():
    print(f"begins, {ocf.remaining_s(0.0):.1f} s left", flush=True)
    return 0
sys.stderr = sys.stdout
actions = {"start": action, "monitor": action, "stop": stop}
def not_begun(action):
    print(f"{action} is not begun", flush=True)
    raise ValueError("of whatever kind")
sys.exit(ocf.run(sys.argv[3], ["device", sys.argv[4]], actions, "", not_begun=not_begun))
"""
WAITS = "vol1: waits for an action that has not ended yet\n"
LIMIT_S = 2.0


def start(
    folder: Path, resource: str, action: str = "monitor", timeout_s: float = 60.0
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-c", ACTION, ROOT, folder, resource, action],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"OCF_RESKEY_CRM_meta_timeout": f"{timeout_s * 1000:.0f}"},
        text=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def output(process: subprocess.Popen[str]) -> str:
    """Return what a process says to its end, which has to come by itself."""
    try:
        return process.communicate(timeout=20.0)[0]
    finally:
        process.kill()


@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_an_action_begins_when_the_one_before_has_ended(tmp_path: Path, end: str) -> None:
    with start(tmp_path, "vol1") as former, start(tmp_path, "vol2") as other:
        assert line(former) == line(other) == "begins\n"
        with start(tmp_path, "vol1") as latter:
            assert line(latter) == WAITS
            if end == "ends":
                former.communicate()
            else:
                former.kill()
            assert line(latter) == "begins\n"
            latter.communicate()
            assert latter.returncode == 0
        other.communicate()


def test_a_stop_goes_on_after_half_of_its_time(tmp_path: Path) -> None:
    """Without quorum it must come to its end, or the node is not rebooted."""
    with start(tmp_path, "vol1") as former:
        assert line(former) == "begins\n"
        with start(tmp_path, "vol1", "stop", timeout_s=3.0 + 2 * LIMIT_S) as latter:
            out = output(latter)
        former.communicate()
    waits, warning, begins = out.splitlines(keepends=True)
    assert waits == WAITS
    assert warning.startswith("vol1: a former action has not ended within ")
    assert warning.endswith("; the stop goes on without it\n")
    assert 0.5 * LIMIT_S < float(begins.split()[1]) <= LIMIT_S
    assert latter.returncode == 0


def test_any_other_action_fails_after_half_of_its_time(tmp_path: Path) -> None:
    with start(tmp_path, "vol1") as former:
        assert line(former) == "begins\n"
        with start(tmp_path, "vol1", "monitor", timeout_s=4.0) as latter:
            out = output(latter)
        former.communicate()
    waits, noted, reason, _logged = out.splitlines(keepends=True)
    assert (waits, noted) == (WAITS, "monitor is not begun\n")
    assert reason.startswith("ocf-exit-reason:SAN-AGENT-015: vol1: a former action ")
    assert latter.returncode == ocf.ERR_GENERIC


def test_the_time_of_an_action_is_counted_from_the_begin_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from when it comes to ask: the client and the interpreter have begun before."""
    monkeypatch.setenv("OCF_RESKEY_CRM_meta_timeout", "60000")
    monkeypatch.setattr(ocf._Begin, "at_s", None)
    assert ocf.remaining_s(0.0) == 57.0
    with start(tmp_path, "vol1") as process:
        assert line(process) == "begins\n"
        time.sleep(0.5)
        ocf.begin_with(process.pid)
        process.communicate()
    assert 50.0 < ocf.remaining_s(0.0) < 56.6
    monkeypatch.setattr(ocf._Begin, "at_s", time.monotonic() - 70.0)
    assert ocf.remaining_s(0.0) == 1.0
    monkeypatch.delenv("OCF_RESKEY_CRM_meta_timeout")
    assert ocf.remaining_s(50.0) == 50.0


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


def test_whether_an_action_of_another_resource_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the pool agent asks: its own lock, and that of the other, are what they were."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    assert not ocf.is_action_running("vol1"), "not known"
    seen: list[bool] = []

    def look() -> int:
        with start(tmp_path, "vol1") as former:
            assert line(former) == "begins\n"
            seen.extend(map(ocf.is_action_running, ("vol1", "vol2")))
            former.kill()
        seen.append(ocf.is_action_running("vol1"))
        with start(tmp_path, "vol1") as free, start(tmp_path, "pool") as own:
            assert line(free) == "begins\n"
            assert line(own) == WAITS.replace("vol1", "pool")
            own.kill()
            free.kill()
        return 0

    assert ocf.run("pool", ["pool", "monitor"], {"monitor": look}, "") == 0
    assert seen == [True, False, False]
    assert not ocf.is_action_running("vol1"), "not known any more"
