# SPDX-License-Identifier: GPL-2.0-or-later
"""The record of green runs: it has every laboratory test, and no run that was none."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import last_green, run_recorder, test_families, test_runs
from tests.support.doc_samples import ROOT
from tests.support.last_green import GreenRun, Record
from tests.support.run_recorder import Recorder

_TODO = "run python -m tests.support.test_runs"
HEAL, SBD = "tests/lab/test_heal.py::test_a", "tests/lab/test_sbd.py::test_b[x y|z]"


def run_of(
    test: str, *, number: int = 500, release: str = "trixie", date: str = "2026-11-23"
) -> GreenRun:
    return GreenRun(
        test=test, release=release, number=number, date=date, commit="0123456789", seconds=7
    )


def record_of(*runs: GreenRun, never: tuple[str, ...] = ()) -> Record:
    return Record(
        tests=frozenset({run.test for run in runs} | set(never)),
        runs={(run.test, run.release): run for run in runs},
    )


@pytest.fixture(scope="module")
def collected() -> dict[str, list[str]]:
    return test_runs.collected()


def test_every_laboratory_test_is_in_the_record_and_no_other(
    collected: dict[str, list[str]],
) -> None:
    recorded = run_recorder.read().tests
    assert recorded - {*collected} == set(), f"they are gone: {_TODO}"
    assert {*collected} - recorded == set(), f"they are new: {_TODO}"


def test_file_and_page_are_what_the_runs_make_of_them() -> None:
    record = run_recorder.read()
    assert (ROOT / last_green.FILE).read_text() == last_green.render(record), _TODO
    assert (ROOT / last_green.PAGE).read_text() == last_green.page(record), _TODO


def test_every_module_is_of_one_family(collected: dict[str, list[str]]) -> None:
    for test in collected:
        test_families.family_of(test)
    modules = [module for each in test_families.FAMILIES.values() for module in each]
    assert len(modules) == len({*modules})
    assert {*modules} == {test_families.module_of(test) for test in collected}


def test_every_family_has_a_test_that_every_run_has(collected: dict[str, list[str]]) -> None:
    """Of the others those that are quick are marked so: CI would see nothing of the family."""
    always = {
        test_families.family_of(test)
        for test, marks in collected.items()
        if "faults" not in marks or "quick" in marks
    }
    assert {*test_families.FAMILIES} - always == set()


def test_a_module_of_no_family_is_named() -> None:
    with pytest.raises(LookupError, match="test_new is in no family"):
        test_families.family_of("tests/lab/test_new.py::test_a")


def test_what_is_written_is_read_back() -> None:
    record = record_of(run_of(SBD), run_of(SBD, release="bookworm"), never=(HEAL,))
    text = last_green.render(record)
    assert text.splitlines() == [
        f"{HEAL}\tnever",
        f"{SBD}\ttrixie\t2026-11-23\t0123456789\t500\t7",
        f"{SBD}\tbookworm\t2026-11-23\t0123456789\t500\t7",
    ]
    assert last_green.parse(text) == record


def test_of_two_lines_the_later_run_counts() -> None:
    """As a merge of two branches leaves them, in whatever order."""
    older, newer = run_of(HEAL, number=501), run_of(HEAL, number=502)
    for lines in ([older, newer], [newer, older]):
        text = f"{HEAL}\tnever\n" + "".join(f"{run.line}\n" for run in lines)
        assert last_green.parse(text) == record_of(newer)


def test_a_conflict_is_no_record() -> None:
    with pytest.raises(ValueError, match=r"last-green\.tsv:2: '<<<<<<<"):
        last_green.parse(f"{HEAL}\tnever\n<<<<<<< ours\n")


def test_a_report_brings_later_runs_of_tests_that_there_are() -> None:
    record = record_of(run_of(HEAL, number=510), never=(SBD,))
    merged = last_green.merge(record, [run_of(HEAL), run_of(SBD), run_of("tests/lab/test_x.py::y")])
    assert merged == record_of(run_of(HEAL, number=510), run_of(SBD))


def test_what_is_gone_leaves_the_record_and_what_is_new_never_ran() -> None:
    record = last_green.of_tests(record_of(run_of(HEAL)), [SBD])
    assert last_green.render(record) == f"{SBD}\tnever\n"


def test_the_page_says_when_and_how_long_ago() -> None:
    page = last_green.page(record_of(run_of(HEAL, number=480), run_of(SBD, release="bookworm")))
    assert "| `test_heal test_a` | trixie | 2026-11-23 | 0123456789 | 20 | 7 |" in page
    assert "| `test_sbd test_b[x y\\|z]` | bookworm | 2026-11-23 | 0123456789 | 0 | 7 |" in page
    assert "| `test_heal test_a` | | never | | | |" in last_green.page(record_of(never=(HEAL,)))


def test_a_family_that_has_not_run_for_long_is_named() -> None:
    limit = last_green.STALE_AFTER_COMMITS
    record = record_of(run_of(HEAL, number=500), never=(SBD,))
    assert [line.partition(":")[0] for line in last_green.stale(record, 500 + limit)] == [
        "SBD",
        "1 of 2 laboratory tests have none in the last 150 commits",
        "bookworm",
    ]
    assert len(last_green.stale(record, 501 + limit)) == 5
    both = record_of(run_of(HEAL), run_of(HEAL, release="bookworm"))
    assert last_green.stale(both, 500 + limit) == []


@pytest.mark.parametrize(
    ("before_s", "measured_s", "known_s"),
    [(None, 400.4, 400), (100, 40.0, 40), (100, 110.0, 110), (100, 400.0, 126), (0, 9.0, 1)],
)
def test_a_run_on_a_busy_machine_says_little_of_how_long_a_test_takes(
    before_s: int | None, measured_s: float, known_s: int
) -> None:
    before = None if before_s is None else dataclasses.replace(run_of(HEAL), seconds=before_s)
    assert last_green.known_seconds(before, measured_s) == known_s


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one commit, in place of this one."""
    for name in (last_green.FILE, last_green.PAGE, "sanctl/code.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # as in a hook of git
    monkeypatch.setattr(run_recorder, "ROOT", tmp_path)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.net", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *who, *arguments], cwd=tree, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(tree: Path) -> str:
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "--no-verify", "-m", "x")
    return git(tree, "rev-parse", "HEAD")


def changes(commit: str) -> str:
    return run_recorder._changes(commit)


def test_a_run_is_recorded_of_the_commits_own_tree_alone(tree: Path) -> None:
    began = git(tree, "rev-parse", "HEAD")
    assert run_recorder.commit_number() == 1
    assert changes(began) == ""
    (tree / last_green.FILE).write_text("other\n")
    (tree / last_green.PAGE).write_text("other\n")
    assert changes(began) == "", "the record itself"
    assert commit(tree) != began
    assert changes(began) == "", "the record itself, committed meanwhile"
    new = tree / "sanctl" / "new.py"
    new.write_text("x = 1\n")
    assert changes(began).endswith("sanctl/new.py")
    new.unlink()
    (tree / "sanctl" / "code.py").write_text("x = 1\n")
    assert changes(began).endswith("sanctl/code.py")
    commit(tree)
    assert changes(began).endswith("sanctl/code.py"), "committed while the tests ran"


def ran(tree: Path, *, monkeypatch: pytest.MonkeyPatch, **outcomes: str) -> Recorder:
    """Have the plugin see a test of the laboratory with these outcomes, each of ten seconds."""
    monkeypatch.setattr(run_recorder, "REPORT", tree / "test-report")
    recorder = Recorder(commit=git(tree, "rev-parse", "--short=10", "HEAD"), number=1)
    item = SimpleNamespace(
        nodeid=HEAL,
        config=SimpleNamespace(stash={run_recorder.RECORDER: recorder}),
        get_closest_marker=lambda name: name == "lab",
    )
    for phase in ("setup", "call", "teardown"):
        recorder.boot_s += 8.0 if phase == "setup" else 0.0
        if outcome := outcomes.get(phase):
            report = SimpleNamespace(
                when=phase, duration=10.0, passed=outcome == "passed", skipped=outcome == "skipped"
            )
            step = run_recorder.pytest_runtest_makereport(item)  # type: ignore[arg-type]
            next(step)
            with pytest.raises(StopIteration):
                step.send(report)  # type: ignore[arg-type]
    return recorder


def test_a_test_that_passed_is_recorded_without_the_boot(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SANCTL_TEST_RELEASE", raising=False)
    (tree / last_green.FILE).write_text(f"{SBD}\tnever\n")
    recorder = ran(tree, monkeypatch=monkeypatch, setup="passed", call="passed", teardown="passed")
    (run,) = recorder.runs
    assert (run.test, run.release, run.commit, run.seconds) == (HEAL, "trixie", recorder.commit, 22)
    assert (tree / last_green.FILE).read_text() == f"{run.line}\n{SBD}\tnever\n"
    assert (tree / "test-report" / "last-green.tsv").read_text() == f"{run.line}\n"


@pytest.mark.parametrize(
    ("part", "name"), [(None, "last-green.tsv"), (1, "last-green-1.tsv"), (2, "last-green-2.tsv")]
)
def test_each_part_of_a_run_has_a_report_of_its_own(part: int | None, name: str) -> None:
    stash: dict[object, Recorder] = {}
    config = SimpleNamespace(stash=stash, getoption=lambda _name, _default: part)
    run_recorder.pytest_configure(config)  # type: ignore[arg-type]
    assert stash[run_recorder.RECORDER].report == name


@pytest.mark.parametrize(
    "outcomes",
    [
        {"setup": "skipped", "teardown": "passed"},
        {"setup": "failed", "teardown": "passed"},
        {"setup": "passed", "call": "skipped", "teardown": "passed"},
        {"setup": "passed", "call": "failed", "teardown": "passed"},
        {"setup": "passed", "call": "passed", "teardown": "failed"},
        {"setup": "passed", "call": "passed"},
    ],
)
def test_nothing_else_is_green(
    tree: Path, monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, str]
) -> None:
    recorder = ran(tree, monkeypatch=monkeypatch, **outcomes)
    assert recorder.runs == []
    assert (tree / last_green.FILE).read_text() == ""


def test_a_tree_with_changes_records_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "sanctl" / "code.py").write_text("x = 1\n")
    recorder = ran(tree, monkeypatch=monkeypatch, setup="passed", call="passed", teardown="passed")
    assert recorder.runs == []
    assert "sanctl/code.py" in recorder.why_not
    assert (tree / last_green.FILE).read_text() == ""


def test_without_history_nothing_is_recorded(
    tree: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "more").write_text("")
    commit(tree)
    shallow = tmp_path_factory.mktemp("shallow") / "clone"
    git(tree, "clone", "-q", "--depth=1", f"file://{tree}", str(shallow))
    monkeypatch.setattr(run_recorder, "ROOT", shallow)
    assert run_recorder.commit_number() == 0
    monkeypatch.setattr(run_recorder, "ROOT", tmp_path_factory.mktemp("none"))
    assert run_recorder.commit_number() == 0
    assert changes("HEAD") != ""


@pytest.mark.parametrize(("required", "status"), [("required", 1), ("", 0)])
def test_a_run_that_skipped_all_is_red_where_the_laboratory_is_required(
    required: str, status: int
) -> None:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("SANCTL_TEST_")
    } | {"SANCTL_LAB_TESTS": required}
    before = (ROOT / last_green.FILE).read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o",
         "addopts=--import-mode=importlib", "tests/lab/test_drbd9_write_back.py::"
         "test_write_back_with_three"],
        cwd=ROOT, capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    assert "0 passed, 1 skipped: these count as not run" in done.stdout
    assert (ROOT / last_green.FILE).read_bytes() == before
