# SPDX-License-Identifier: GPL-2.0-or-later
"""The pytest plugin that records which laboratory tests ran green, and when, on which commit.

A run is recorded in the tree if the tree is the commit's, and nothing but the record differs; in
the report folder always, because the clone in which CI runs is thrown away. Skipped is not green.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.machines.lab_state import Lab
from sanctl.system.files import write_atomically
from tests.support import last_green
from tests.support.doc_samples import ROOT
from tests.support.last_green import GreenRun, Record

REPORT = ROOT / "test-report"
_NOT_CODE = (".", f":!{last_green.FILE}", f":!{last_green.PAGE}")
_PHASES = {"setup", "call", "teardown"}
_BUILD_WHEEL = ROOT / "ansible" / "roles" / "sanctl_preflight" / "files" / "build_wheel.py"


@dataclass(slots=True)
class Recorder:
    """What one run of pytest records, and why not more."""

    commit: str
    number: int
    """How many commits the history has; 0: unknown."""
    report: str = Path(last_green.FILE).name
    """The file of the report folder that has the runs."""
    why_not: str = ""
    """Why nothing is recorded any more; empty: it is."""
    runs: list[GreenRun] = field(default_factory=list)
    passed: dict[str, float] = field(default_factory=dict)
    """The phases of the test under way that have passed, and their seconds."""
    boot_s: float = 0.0
    """The seconds of the test under way that went into booting a laboratory."""
    measured_s: dict[str, float] = field(default_factory=dict)
    """The seconds that each test took which has passed, without its laboratory's boot."""
    count: dict[str, int] = field(default_factory=lambda: {"passed": 0, "skipped": 0})


RECORDER = pytest.StashKey[Recorder]()


def pytest_configure(config: pytest.Config) -> None:
    """Note the commit before anything runs: what is loaded and rolled out is of this one."""
    number = commit_number()
    part = config.getoption("part", None)
    name = Path(last_green.FILE)
    config.stash[RECORDER] = Recorder(
        commit=_git("rev-parse", "--short=10", "HEAD") or "",
        number=number,
        report=f"{name.stem}-{part}{name.suffix}" if part else name.name,
        why_not="" if number else "no git, or a shallow clone: the commit's number is not known",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record a laboratory test once its teardown has passed, too."""
    report = yield
    if item.get_closest_marker("lab") is None:
        return report
    recorder = item.config.stash[RECORDER]
    if report.when == "setup":
        recorder.passed = {}
    if report.passed:
        recorder.passed[report.when] = report.duration
    if report.skipped:
        recorder.count["skipped"] += 1
    if report.when == "teardown":
        boot_s, recorder.boot_s = recorder.boot_s, 0.0
        if recorder.passed.keys() == _PHASES:
            recorder.count["passed"] += 1
            seconds = sum(recorder.passed.values()) - boot_s
            recorder.measured_s[item.nodeid] = seconds
            _record(recorder, item.nodeid, _release_of(item), seconds)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page; where the laboratory is required, fail if no test ran in it."""
    recorder = session.config.stash[RECORDER]
    if recorder.runs and not recorder.why_not:
        with _locked():
            write_page(read())
    is_required = (
        os.environ.get("SANCTL_LAB_TESTS") == "required"
        and any(item.get_closest_marker("lab") for item in session.items)
        and not session.config.option.collectonly
        and not session.config.option.setupplan
    )
    if is_required and not recorder.count["passed"] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was recorded."""
    recorder = config.stash[RECORDER]
    if not any(recorder.count.values()):
        return
    count, why_not = recorder.count, recorder.why_not
    terminalreporter.write_sep("-", "laboratory tests")
    terminalreporter.write_line(
        f"{count['passed']} passed, {count['skipped']} skipped: these count as not run"
    )
    where = f"recorded in {last_green.FILE}" if not why_not else f"not recorded: {why_not}"
    terminalreporter.write_line(f"{len(recorder.runs)} {where}")


def note_boot(config: pytest.Config, seconds: float) -> None:
    """Note the time that a laboratory took to boot: it is not the test's own."""
    config.stash[RECORDER].boot_s += seconds


def note_own_laboratory(config: pytest.Config, bed: LabSession) -> None:
    """Record nothing of a laboratory whose nodes run another code than this tree's."""
    node = bed.storage[0].name
    installed = bed.sh(node, "readlink /opt/sanctl/current", ok=range(256)).stdout.strip()
    if installed != _release_of_tree():
        config.stash[
            RECORDER
        ].why_not = f"lab {bed.lab.name} runs {installed or 'no release'}, and not this tree's"


def commit_number() -> int:
    """Return how many commits the history has; 0: it is not here, or not all of it."""
    if _git("rev-parse", "--is-shallow-repository") != "false":
        return 0
    return int(_git("rev-list", "--count", "HEAD") or 0)


def read() -> Record:
    """Return the tree's record."""
    return last_green.parse((ROOT / last_green.FILE).read_text(encoding="utf-8"))


def write(record: Record) -> None:
    """Replace the tree's record."""
    _replace(ROOT / last_green.FILE, last_green.render(record))


def write_page(record: Record) -> None:
    """Replace the page made of the record."""
    _replace(ROOT / last_green.PAGE, last_green.page(record))


def _record(recorder: Recorder, test: str, release: str, measured_s: float) -> None:
    if not recorder.number:
        return
    seconds = last_green.known_seconds(read().runs.get((test, release)), measured_s)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    run = GreenRun(
        test=test, release=release, number=recorder.number, date=today,
        commit=recorder.commit, seconds=seconds,
    )  # fmt: skip
    recorder.why_not = recorder.why_not or _changes(recorder.commit)
    if recorder.why_not:
        return
    recorder.runs.append(run)
    REPORT.mkdir(exist_ok=True)
    (REPORT / recorder.report).write_text(
        "".join(f"{each.line}\n" for each in recorder.runs), encoding="utf-8"
    )
    with _locked():
        before = read()
        write(last_green.merge(last_green.of_tests(before, {*before.tests, test}), [run]))


def _changes(commit: str) -> str:
    """Return what keeps the tree from being a commit's, besides the record; empty: nothing."""
    untracked = _git("ls-files", "--others", "--exclude-standard", "--", *_NOT_CODE)
    changed = _git("diff", "--name-only", commit, "--", *_NOT_CODE)
    if untracked is None or changed is None:
        return "git does not say whether the tree has changes"
    names = [*changed.splitlines(), *untracked.splitlines()]
    return f"the tree is not {commit}'s: {', '.join(names[:3])}" if names else ""


def _release_of(item: pytest.Item) -> str:
    """Return the release of the laboratory that a test ran in."""
    for made in getattr(item, "funcargs", {}).values():
        lab = made.lab if isinstance(made, LabSession) else made
        if isinstance(lab, Lab):
            return lab.spec.release
    return os.environ.get("SANCTL_TEST_RELEASE", last_green.RELEASES[0])


def _release_of_tree() -> str:
    """Return the name under which the rollout would install this tree."""
    with tempfile.TemporaryDirectory() as folder:
        built = subprocess.run(
            [sys.executable, str(_BUILD_WHEEL), str(ROOT), folder],
            check=True, capture_output=True, text=True, timeout=60,
        ).stdout  # fmt: skip
        wheel = Path(built.strip().partition(" ")[2])
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        return f"{wheel.name.split('-')[1]}-{digest[:12]}"


def _git(*arguments: str) -> str | None:
    """Return what git prints; None: it failed, or there is none."""
    # Under sudo the tree is another user's.
    argv = ["git", "-c", f"safe.directory={ROOT}", *arguments]
    try:
        done = subprocess.run(
            argv, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _replace(path: Path, text: str) -> None:
    write_atomically(str(path), text)
    # Written under sudo it would be root's.
    owner = path.parent.stat()
    os.chown(path, owner.st_uid, owner.st_gid)


@contextmanager
def _locked() -> Iterator[None]:
    """Let one run of pytest at a time change the record."""
    handle = os.open(ROOT / "tests", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
