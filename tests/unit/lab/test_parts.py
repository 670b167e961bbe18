# SPDX-License-Identifier: GPL-2.0-or-later
"""The two parts of `make test`: each test in one of them, one summary, and no failure unseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import collected_tests, parts, slices, test_runs
from tests.support.doc_samples import ROOT


def test_the_laboratory_that_most_share_is_one_part_and_all_others_are_the_other() -> None:
    assert parts.part_of("") == 1
    assert [parts.part_of(shape) for shape in (slices.XFS, "test_strategy")] == [2, 2]


def test_each_laboratory_test_is_in_one_part() -> None:
    of_parts = [_collected(f"--part={number}") for number in parts.PARTS]
    assert all(of_parts)
    assert not of_parts[0] & of_parts[1]
    assert of_parts[0] | of_parts[1] == {*test_runs.collected()}


def test_tests_are_chosen_by_the_laboratories_that_they_need() -> None:
    """What broke: shapes were asked for before the mark was there that they were read from."""
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--slice", "-q", "-m", "lab",
         "-p", "no:cacheprovider", "-p", collected_tests.__name__, *test_runs.LAB_FOLDERS],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=120,
    ).stdout  # fmt: skip
    _, _, rest = told.partition(collected_tests.SHAPES_HEAD)
    shapes, chosen = json.loads(rest.partition("\n")[0])
    # Quick cases among them, which every run has: in the shared one, in XFS and in their own.
    assert {"", slices.XFS, "test_three_nodes"} <= {*chosen.values()}
    assert chosen.items() <= shapes.items()


def _collected(*options: str) -> set[str]:
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "lab", *options,
         "-p", "no:cacheprovider", *test_runs.LAB_FOLDERS],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=120,
    ).stdout  # fmt: skip
    return {line for line in told.splitlines() if "::" in line}


def test_the_counts_of_both_parts_are_one_summary() -> None:
    one = "==== 1 failed, 5 passed, 1 warning in 3.21s ===="
    other = "= 7 passed, 2 skipped, 1 error, 2 warnings in 64.10s (0:01:04) ="
    told = parts.summary([["E", one], [other, "lab testxfs is gone", ""]], 70.0)
    assert told.strip("=") == " 1 failed, 12 passed, 3 warnings, 2 skipped, 1 error in 70.00s "
    assert len(told) == 100


def test_what_is_no_summary_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="Killed"):
        parts.summary([["= 1 passed in 1.00s ="], ["....", "Killed"]], 1.0)
    with pytest.raises(ValueError, match=r"^$"):
        parts.summary([["= 1 passed in 1.00s ="], []], 1.0)


_OPTIONS = """
def pytest_addoption(parser):
    parser.addoption("--slice", action="store_true")
    parser.addoption("--part", type=int)
"""


def run_both(folder: Path, first: str, second: str) -> subprocess.CompletedProcess[str]:
    """Run two parts in a folder, each of one file with this source."""
    for path in ("tests/unit/agents", "tests/unit/safety", "tests/lab", "tests/chaos"):
        (folder / path).mkdir(parents=True)
    (folder / "conftest.py").write_text(_OPTIONS)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (folder / "tests/unit/test_first.py").write_text(first)
    (folder / "tests/unit/agents/test_second.py").write_text(second)
    return subprocess.run(
        [sys.executable, "-m", "tests.support.parts", "-p", "no:cacheprovider"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


_PASSES = "def test_it():\n    pass\n"


def test_both_parts_pass(tmp_path: Path) -> None:
    done = run_both(tmp_path, _PASSES, _PASSES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 2 passed in " in done.stdout.splitlines()[-1]
    assert (tmp_path / "test-report/part-2.log").read_text() in done.stdout


@pytest.mark.parametrize("failing", parts.PARTS)
def test_a_failure_of_either_part_is_one_of_the_run(tmp_path: Path, failing: int) -> None:
    sources = [_PASSES, _PASSES]
    sources[failing - 1] = "def test_it():\n    assert 1 == 2\n"
    done = run_both(tmp_path, *sources)
    assert done.returncode == 1
    *_, failed, last = done.stdout.splitlines()
    assert failed.startswith("FAILED tests/unit/"), "it stands beside the summary"
    assert " 1 failed, 1 passed in " in last or " 1 passed, 1 failed in " in last


@pytest.mark.parametrize("dying", parts.PARTS)
def test_a_part_that_dies_fails_the_run(tmp_path: Path, dying: int) -> None:
    sources = [_PASSES, _PASSES]
    sources[dying - 1] = "import os\ndef test_it():\n    os.kill(os.getpid(), 9)\n"
    done = run_both(tmp_path, *sources)
    assert done.returncode not in {0, 5}
    assert "a part ended without a summary" in done.stdout.splitlines()[-1]
