# SPDX-License-Identifier: GPL-2.0-or-later
"""One laboratory for all tests of a run that need one, audited after each of them.

A pytest plugin of the whole tree: the laboratory is shared by tests/lab and tests/chaos.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.errors import Problem, SanctlError
from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Host
from sanctl.lab.harness.lab_session import Bed, run_sanctl, sanctl_argv
from sanctl.lab.harness.scenario import Scene, await_cluster
from sanctl.lab.machines import lab_state
from sanctl.lab.machines import requirements as lab_host
from sanctl.lab.machines.spec import LabSpec
from sanctl.lab.measure import audit

# A lab named here is used as it is, and left: for whoever works on a test.
_OWN_LAB = os.environ.get("SANCTL_TEST_LAB")
_NAME = _OWN_LAB or "test"
_RELEASE = os.environ.get("SANCTL_TEST_RELEASE", "trixie")
_FOLDERS = ("lab", "chaos")
_REPORT = Path("test-report")
_UP_DEADLINE_S = 1200.0
_BEGUN = pytest.StashKey[subprocess.Popen[bytes]]()
_LOGS = {
    "journal.txt": "journalctl --no-pager -o short-precise",
    "dmesg.txt": "dmesg --time-format iso",
    "drbd.txt": "drbdsetup events2 --now --statistics; cat /proc/drbd; ls -l /etc/drbd.d",
    "cib.xml": "cibadmin -Q; crm_mon -1rA 1>&2",
    "dm.txt": "dmsetup table; dmsetup info; losetup -a; multipath -ll; iscsiadm -m session -P 3",
}


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
    if not is_wanted or session.config.option.collectonly or _lacking(LabSpec(name=_NAME)):
        return
    _REPORT.mkdir(parents=True, exist_ok=True)
    with (_REPORT / "lab-up.txt").open("wb") as log:
        session.config.stash[_BEGUN] = subprocess.Popen(
            sanctl_argv(*_up(LabSpec(name=_NAME))),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no laboratory that nobody came to use."""
    begun = config.stash.get(_BEGUN, None)
    if begun is None:
        return
    if begun.poll() is None:
        begun.terminate()
        begun.wait(timeout=60)
    if lab_state.find(_NAME) is not None:
        run_sanctl("lab", "destroy", "--name", _NAME, timeout_s=120)


@pytest.fixture(scope="session")
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """Return a laboratory that is up and rolled out; it is destroyed at the end."""
    begun = request.config.stash.get(_BEGUN, None)
    yield from laboratory(request, LabSpec(name=_NAME), is_own=bool(_OWN_LAB), begun=begun)


def laboratory(
    request: pytest.FixtureRequest,
    spec: LabSpec,
    *,
    is_own: bool = False,
    options: tuple[str, ...] = (),
    begun: subprocess.Popen[bytes] | None = None,
) -> Iterator[Bed]:
    """Build the laboratory a fixture needs, and take it down; one of one's own is only used.

    `options` are more of what `sanctl lab up` is to be told; `begun` is one that runs already.
    """
    lacking = [] if is_own or begun else _lacking(spec)
    if lacking:
        reason = "no laboratory here: " + "; ".join(map(str, lacking))
        # `make test` promises that these tests ran: there a skip would be a false statement.
        if os.environ.get("SANCTL_LAB_TESTS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        if begun is not None:
            status = begun.wait(timeout=_UP_DEADLINE_S)
            print((_REPORT / "lab-up.txt").read_text(errors="replace"))
            assert status == 0, f"sanctl lab up: status {status}"
        elif not is_own:
            run_sanctl(*_up(spec), *options, timeout_s=_UP_DEADLINE_S)
        made = Bed(spec.name)
        await_cluster(made)
        yield made
    finally:
        if lab_state.find(spec.name) is not None:
            if request.session.testsfailed:
                _collect_logs(Bed(spec.name))
            if not is_own:
                run_sanctl("lab", "destroy", "--name", spec.name, timeout_s=120)


def _lacking(spec: LabSpec) -> list[Problem]:
    """Return what this machine would need for a laboratory, and has not."""
    return lab_host.check(lab_host.observe(), spec)


def _up(spec: LabSpec) -> list[str]:
    """Return the words for sanctl that boot a laboratory, and do nothing to one that is up."""
    return [
        "lab", "up", "--name", spec.name, "--release", _RELEASE,
        "--nodes", str(spec.nodes), "--witness", spec.witness_kind.value,
    ]  # fmt: skip


@pytest.fixture(scope="session")
def scene(bed: Bed) -> Scene:
    """Return the cluster together with its host."""
    return Scene(bed, Host(bed, "i1"))


@pytest.fixture
def audited(bed: Bed) -> Iterator[None]:
    """Hold what all kernels say against the invariants, after a test."""
    yield
    assert audit.violations(collect.views(bed)) == []


def _collect_logs(bed: Bed) -> None:
    """Keep what the nodes know of a failure; a node that does not answer leaves its console."""
    for node in bed.lab.machines:
        folder = _REPORT / node.name
        folder.mkdir(parents=True, exist_ok=True)
        console = bed.lab.console_log(node)
        if console.exists():
            (folder / "console.txt").write_bytes(console.read_bytes())
        for name, command in _LOGS.items():
            try:
                done = bed.sh(node.name, command, timeout_s=30, ok=range(256))
            except SanctlError as error:
                (folder / name).write_text(f"{error}\n")
                break
            (folder / name).write_text(done.stdout + done.stderr)
    subprocess.run(["chmod", "-R", "a+rX", str(_REPORT)], check=False)
