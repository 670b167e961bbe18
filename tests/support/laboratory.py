# SPDX-License-Identifier: GPL-2.0-or-later
"""The pytest plugin of the shared laboratory: boots it once, audits it after each test.

A pytest plugin of the whole tree: the laboratory is shared by tests/lab and tests/chaos.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

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
from tests.support import run_recorder

# A lab named in this variable is used as it is, and kept: for work on a test.
_OWN_LAB = os.environ.get("SANCTL_TEST_LAB")
_NAME = _OWN_LAB or "test"
_RELEASE = os.environ.get("SANCTL_TEST_RELEASE", "trixie")
_FOLDERS = ("lab", "chaos")
_REPORT = Path("test-report")
_UP_DEADLINE_S = 1200.0
_LAB_UP = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the laboratory, with a deadline none of it should come near."""
    tests = Path(__file__).parents[1]
    for item in items:
        if any(item.path.is_relative_to(tests / folder) for folder in _FOLDERS):
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.timeout(600))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the laboratory be built and boot while the tests run that need none."""
    needs = [item.get_closest_marker("lab") is not None for item in session.items]
    is_wanted = any(needs) and not all(needs) and not _OWN_LAB
    if (
        not is_wanted
        or session.config.option.collectonly
        or _missing_requirements(LabSpec(name=_NAME))
    ):
        return
    _REPORT.mkdir(parents=True, exist_ok=True)
    with (_REPORT / "lab-up.txt").open("wb") as log:
        session.config.stash[_LAB_UP] = subprocess.Popen(
            sanctl_argv(*_lab_up_arguments(LabSpec(name=_NAME))),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Destroy the laboratory that was started in the background, if no test has used it."""
    lab_up = config.stash.get(_LAB_UP, None)
    if lab_up is None:
        return
    if lab_up.poll() is None:
        lab_up.terminate()
        lab_up.wait(timeout=60)
    if lab_state.find(_NAME) is not None:
        run_sanctl("lab", "destroy", "--name", _NAME, timeout_s=120)


@pytest.fixture(scope="session")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """Return a laboratory that is up and rolled out; it is destroyed at the end."""
    lab_up = request.config.stash.get(_LAB_UP, None)
    yield from laboratory(request, LabSpec(name=_NAME), is_own=bool(_OWN_LAB), lab_up=lab_up)


def own_or_new_laboratory(
    request: pytest.FixtureRequest,
    spec: LabSpec,
    *,
    fits: Callable[[LabSpec], bool],
    options: tuple[str, ...] = (),
) -> Iterator[LabSession]:
    """Use the laboratory named in SANCTL_TEST_LAB if it fits, else build one of this specification.

    For tests that need another laboratory than the shared one.
    """
    found = lab_state.find(_OWN_LAB) if _OWN_LAB else None
    if found is not None and fits(found.spec):
        yield from laboratory(request, found.spec, is_own=True, options=options)
    else:
        yield from laboratory(request, spec, options=options)


def xfs_laboratory(request: pytest.FixtureRequest, name: str) -> Iterator[LabSession]:
    """As `own_or_new_laboratory`, with pools of XFS: their files can share blocks."""
    yield from own_or_new_laboratory(
        request,
        LabSpec(name=name, filesystem="xfs"),
        fits=lambda own: own.filesystem == "xfs",
        options=("--filesystem", "xfs"),
    )


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
            print((_REPORT / "lab-up.txt").read_text(errors="replace"))
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


def _missing_requirements(spec: LabSpec) -> list[Problem]:
    """Return the requirements of a laboratory that this machine does not meet."""
    return lab_host.check(lab_host.read_host_facts(), spec)


def _lab_up_arguments(spec: LabSpec) -> list[str]:
    """Return the arguments of the command that boots a laboratory, unless it is up."""
    return [
        "lab", "up", "--name", spec.name, "--release", _RELEASE,
        "--nodes", str(spec.nodes), "--witness", spec.witness_kind.value,
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
    report.collect_logs(bed, _REPORT, since_s=0)
    subprocess.run(["chmod", "-R", "a+rX", str(_REPORT)], check=False)
