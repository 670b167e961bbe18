# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl bench path`: all four layers give figures, and nothing that it made is left."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from sanctl.lab.bench import path_config
from sanctl.lab.harness.lab_session import LabSession, sanctl_argv
from sanctl.lab.harness.scenario import await_members_online
from sanctl.lab.measure.path_figures import LAYERS
from tests.support import left_behind
from tests.support.json_contract import breaches

_DEADLINE_S = 500.0


def bench(bed: LabSession, report: Path) -> subprocess.Popen[str]:
    """Start the bench with the least that it can measure."""
    words = (
        "bench", "path", "--name", bed.lab.name, "--block-sizes", "4k", "--depths", "1",
        "--seconds", "2", "--repeat", "3", "--report", str(report), "--output", "json",
    )  # fmt: skip
    return subprocess.Popen(
        # A shell that runs tests in the background has them ignore Ctrl-C.
        ["env", "--default-signal=INT", *sanctl_argv(*words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_all_layers_give_figures_and_nothing_is_left(bed: LabSession, tmp_path: Path) -> None:
    await_members_online(bed)
    before = left_behind.look(bed)
    running = bench(bed, tmp_path)
    shown, notes = running.communicate(timeout=_DEADLINE_S)
    # Whether the goal is held is for the bench to say, by 1; it is no test of the machine.
    assert running.returncode in {0, 1}, notes + shown
    assert breaches("bench path", shown) == []
    data = json.loads(shown)["data"]
    assert [load["kind"] for load in data["loads"]] == ["read", "write", "mixed"]
    for load in data["loads"]:
        assert [each["layer"] for each in load["layers"]] == list(LAYERS)
        assert all(each["iops"] > 0 and each["p99_ms"] > 0 for each in load["layers"]), load
        assert load["ratio"] > 0
    # A layer whose writes take no longer than those on the node itself was not written to.
    raw, *others = data["loads"][1]["layers"]
    assert all(raw["p50_ms"] < each["p50_ms"] for each in others), data["loads"][1]
    assert {"path.json", "path.md", "path.png", "by-hand-drbd.res"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert left_behind.await_nothing(bed, before) == ""


def test_nothing_is_left_of_a_bench_that_is_interrupted(bed: LabSession, tmp_path: Path) -> None:
    await_members_online(bed)
    before = left_behind.look(bed)
    running = bench(bed, tmp_path)
    assert running.stderr is not None
    for line in running.stderr:
        if "read 4k" in line:
            break
    made = bed.sh(bed.storage[0].name, path_config.remains_script()).stdout
    running.send_signal(signal.SIGINT)
    shown, notes = running.communicate(timeout=_DEADLINE_S)
    assert running.returncode not in {0, 1}, notes + shown
    assert path_config.FOLDER in made
    assert left_behind.await_nothing(bed, before) == ""
