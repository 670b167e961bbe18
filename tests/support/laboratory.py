# SPDX-License-Identifier: GPL-2.0-or-later
"""The pytest plugin of the shared laboratories: boots each once, audits it after each test.

A pytest plugin of the whole tree: the laboratory is shared by tests/lab and tests/chaos. Modules
that need pools of XFS share another one, each as it was made: see `SharedLaboratory`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sanctl.errors import Problem
from sanctl.lab.chaos import report
from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, run_sanctl, sanctl_argv
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.machines import lab_state
from sanctl.lab.machines import requirements as lab_host
from sanctl.lab.machines.spec import LabSpec
from sanctl.lab.measure import kernel_audit
from tests.support import left_behind, run_recorder
from tests.support.slices import XFS
from tests.support.test_families import module_of

# A lab named in this variable is used as it is, and kept: for work on a test.
_OWN_LAB = os.environ.get("SANCTL_TEST_LAB")
_NAME = _OWN_LAB or "test"
_RELEASE = os.environ.get("SANCTL_TEST_RELEASE", "trixie")
_FOLDERS = ("lab", "chaos")
_REPORT = Path("test-report")
_UP_DEADLINE_S = 1200.0
_OTHERS_UP_DEADLINE_S = 120.0
#: The commands that boot laboratories while the tests run that need none, by the name of each.
_LAB_UPS = pytest.StashKey[dict[str, subprocess.Popen[bytes]]]()
_XFS_SPEC = LabSpec(name=f"test{XFS}", filesystem="xfs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the laboratory, with a deadline none of it should come near."""
    for item in items:
        if needs_laboratory(item):
            item.add_marker(pytest.mark.lab)
            # A mark of the test itself comes before one that its module has for all of its tests.
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the shared laboratories be built and boot while the tests run that need none.

    Both at once, if the machine has the memory, and each by the part of the run that has it.
    """
    needs = [needs_laboratory(item) for item in session.items]
    if not any(needs) or all(needs) or _OWN_LAB or session.config.option.collectonly:
        return
    shapes = {shape_of(item) for item in session.items if needs_laboratory(item)}
    wanted = [LabSpec(name=_NAME)] if "" in shapes else []
    if XFS in shapes:
        wanted.append(_XFS_SPEC)
    while wanted and _missing_requirements(*wanted):
        wanted.pop()
    _REPORT.mkdir(parents=True, exist_ok=True)
    for spec in wanted:
        with _log_of(spec).open("wb") as log:
            session.config.stash[_LAB_UPS][spec.name] = subprocess.Popen(
                sanctl_argv(*_lab_up_arguments(spec)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Destroy the laboratories that were started in the background, and that no test has used."""
    for name, lab_up in config.stash[_LAB_UPS].items():
        if lab_up.poll() is None:
            lab_up.terminate()
            lab_up.wait(timeout=60)
        if lab_state.find(name) is not None:
            run_sanctl("lab", "destroy", "--name", name, timeout_s=120)


@pytest.fixture(scope="session")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """Return a laboratory that is up and rolled out; it is destroyed at the end."""
    lab_ups = request.config.stash[_LAB_UPS]
    own = lab_ups.pop(_NAME, None)
    for lab_up in lab_ups.values():
        with contextlib.suppress(subprocess.TimeoutExpired):  # who uses it says what is wrong
            lab_up.wait(timeout=_OTHERS_UP_DEADLINE_S)
    yield from laboratory(request, LabSpec(name=_NAME), is_own=bool(_OWN_LAB), lab_up=own)


def own_or_new_laboratory(
    request: pytest.FixtureRequest,
    spec: LabSpec,
    *,
    fits: Callable[[LabSpec], bool],
    options: tuple[str, ...] = (),
    lab_up: subprocess.Popen[bytes] | None = None,
) -> Iterator[LabSession]:
    """Use the laboratory named in SANCTL_TEST_LAB if it fits, else build one of this specification.

    For tests that need another laboratory than the shared one.
    """
    found = lab_state.find(_OWN_LAB) if _OWN_LAB else None
    if found is not None and fits(found.spec):
        yield from laboratory(request, found.spec, is_own=True, options=options)
    else:
        yield from laboratory(request, spec, options=options, lab_up=lab_up)


class SharedLaboratory:
    """A laboratory that modules of tests have one after the other, each as it was made.

    One in which a test has failed, or in which something was left, is made anew.
    """

    def __init__(self, request: pytest.FixtureRequest, spec: LabSpec) -> None:
        self._request = request
        self._spec = spec
        self._context = contextlib.ExitStack()
        self._made: LabSession | None = None
        self._before: left_behind.State = {}
        self._failures = 0

    def lend(self) -> LabSession:
        """Return the laboratory; no other module may use it any more."""
        failures = self._request.config.stash[_FAILURES]
        if self._made is not None and (why := self._unfit(self._made, failures)):
            self._request.config.stash[_MADE_ANEW].append(f"{self._made.lab.name}: {why}")
            self.end()
        self._failures = failures
        if self._made is None:
            self._made = self._context.enter_context(
                contextlib.contextmanager(own_or_new_laboratory)(
                    self._request,
                    self._spec,
                    fits=lambda own: own.filesystem == self._spec.filesystem,
                    lab_up=self._request.config.stash[_LAB_UPS].pop(self._spec.name, None),
                )
            )
            self._before = left_behind.look(self._made)
        return self._made

    def end(self) -> None:
        """Destroy the laboratory, unless it is the operator's own."""
        self._made = None
        self._context.close()

    def _unfit(self, made: LabSession, failures: int) -> str:
        if made.lab.name == _OWN_LAB:
            return ""
        if failures > self._failures:
            return "a test has failed in it"
        return left_behind.await_nothing(made, self._before)


_FAILURES = pytest.StashKey[int]()
_MADE_ANEW = pytest.StashKey[list[str]]()
_SHARED = pytest.StashKey[SharedLaboratory]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count the failures; nothing boots yet."""
    config.stash[_FAILURES] = 0
    config.stash[_MADE_ANEW] = []
    config.stash[_LAB_UPS] = {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which shared laboratory was made anew, and why: each time costs a boot."""
    for what in terminalreporter.config.stash[_MADE_ANEW]:
        terminalreporter.write_line(f"made anew: {what}")


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Count a failure, whatever becomes of it in the report."""
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        item.config.stash[_FAILURES] += 1


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Make room for a laboratory that a module makes of its own, on a machine that has too little.

    No module uses the shared one now: its fixtures end before another module's begin.
    """
    shared = item.config.stash.get(_SHARED, None)
    if shared and shape_of(item) not in {"", XFS} and _missing_requirements(LabSpec(name="test")):
        shared.end()


@pytest.fixture(scope="session")
def _xfs_laboratory(request: pytest.FixtureRequest) -> Iterator[SharedLaboratory]:
    shared = SharedLaboratory(request, _XFS_SPEC)
    request.config.stash[_SHARED] = shared
    yield shared
    shared.end()


@pytest.fixture(scope="module")
def xfs_bed(_xfs_laboratory: SharedLaboratory) -> LabSession:
    """Return the laboratory with pools of XFS, whose files can share blocks, for one module."""
    return _xfs_laboratory.lend()


def needs_laboratory(item: pytest.Item) -> bool:
    """Return whether a test runs in a laboratory: by its folder, as its marks come later."""
    tests = Path(__file__).parents[1]
    return any(item.path.is_relative_to(tests / folder) for folder in _FOLDERS)


def shape_of(item: pytest.Item) -> str:
    """Return which laboratory a test runs in: empty for the session's, else XFS or its module."""
    if not needs_laboratory(item):
        return ""
    info: Any = getattr(item, "_fixtureinfo", None)
    if info and "xfs_bed" in info.names_closure:
        return XFS
    defined: Any = info.name2fixturedefs.get("bed") if info else None
    return "" if defined and defined[-1].scope == "session" else module_of(item.nodeid)


def laboratory(
    request: pytest.FixtureRequest,
    spec: LabSpec,
    *,
    is_own: bool = False,
    options: tuple[str, ...] = (),
    lab_up: subprocess.Popen[bytes] | None = None,
) -> Iterator[LabSession]:
    """Build a laboratory for a fixture, and destroy it; the operator's own is kept.

    `options` are more options of `sanctl lab up`; `lab_up` is that command, if it runs already.
    """
    missing = [] if is_own or lab_up else _missing_requirements(spec)
    if missing:
        reason = "no laboratory here: " + "; ".join(map(str, missing))
        # `make test` promises that these tests ran: there a skip would be a false statement.
        if os.environ.get("SANCTL_LAB_TESTS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    began_s = time.monotonic()
    try:
        if lab_up is not None:
            status = lab_up.wait(timeout=_UP_DEADLINE_S)
            print(_log_of(spec).read_text(errors="replace"))
            assert status == 0, f"sanctl lab up: status {status}"
        elif not is_own:
            run_sanctl(*_lab_up_arguments(spec), *options, timeout_s=_UP_DEADLINE_S)
        made = LabSession(spec.name)
        await_members_online(made)
        if is_own:
            run_recorder.note_own_laboratory(request.config, made)
        run_recorder.note_boot(request.config, time.monotonic() - began_s)
        yield made
    finally:
        if lab_state.find(spec.name) is not None:
            if request.session.testsfailed:
                _collect_logs(LabSession(spec.name))
            if not is_own:
                run_sanctl("lab", "destroy", "--name", spec.name, timeout_s=120)


def _missing_requirements(spec: LabSpec, *others: LabSpec) -> list[Problem]:
    """Return the requirements that this machine does not meet, of a laboratory beside others."""
    facts = lab_host.read_host_facts()
    taken_mib = sum(len(other.machines) * other.memory_mib for other in others)
    left_mib = facts.available_memory_mib - taken_mib
    return lab_host.check(facts._replace(available_memory_mib=left_mib), spec)


def _log_of(spec: LabSpec) -> Path:
    return _REPORT / f"lab-up-{spec.name}.txt"


def _lab_up_arguments(spec: LabSpec) -> list[str]:
    """Return the arguments of the command that boots a laboratory, unless it is up."""
    return [
        "lab", "up", "--name", spec.name, "--release", _RELEASE,
        "--nodes", str(spec.nodes), "--witness", spec.witness_kind.value,
        "--filesystem", spec.filesystem,
    ]  # fmt: skip


@pytest.fixture(scope="session")
def scenario(bed: LabSession) -> Scenario:
    """Return the cluster together with its host."""
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture
def audited(bed: LabSession) -> Iterator[None]:
    """After a test, audit the kernels of all nodes."""
    yield
    assert kernel_audit.violations(collect.kernel_views(bed)) == []


def _collect_logs(bed: LabSession) -> None:
    """Keep the logs of all nodes after a failure; of a node that does not answer its console."""
    report.collect_logs(bed, _REPORT / bed.lab.name, since_s=0)
    subprocess.run(["chmod", "-R", "a+rX", str(_REPORT)], check=False)
