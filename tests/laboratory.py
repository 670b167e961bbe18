"""One laboratory for all tests of a run that need one, audited after each of them.

A pytest plugin of the whole tree: the laboratory is shared by tests/lab and tests/chaos.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.bench import audit
from sanctl.demo import observe
from sanctl.demo.bed import Bed, run_sanctl
from sanctl.demo.host import Host
from sanctl.demo.scene import Scene, await_cluster
from sanctl.errors import SanctlError
from sanctl.lab import host as lab_host
from sanctl.lab import state
from sanctl.lab.spec import LabSpec

# A lab named here is used as it is, and left: for whoever works on a test.
_OWN_LAB = os.environ.get("SANCTL_TEST_LAB")
_NAME = _OWN_LAB or "test"
_RELEASE = os.environ.get("SANCTL_TEST_RELEASE", "trixie")
_FOLDERS = ("lab", "chaos")
_REPORT = Path("test-report")
_UP_DEADLINE_S = 1200.0
_LOGS = {
    "journal.txt": "journalctl --no-pager -o short-precise",
    "dmesg.txt": "dmesg --time-format iso",
    "drbd.txt": "drbdsetup events2 --now --statistics; cat /proc/drbd; ls -l /etc/drbd.d",
    "cib.xml": "cibadmin -Q; crm_mon -1rA 1>&2",
    "dm.txt": "dmsetup table; dmsetup info; losetup -a; multipath -ll; iscsiadm -m session -P 3",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the laboratory, with a deadline none of it should come near."""
    tests = Path(__file__).parent
    for item in items:
        if any(item.path.is_relative_to(tests / folder) for folder in _FOLDERS):
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """Return a laboratory that is up and rolled out; it is destroyed at the end."""
    yield from laboratory(request, LabSpec(name=_NAME), is_own=bool(_OWN_LAB))


def laboratory(
    request: pytest.FixtureRequest,
    spec: LabSpec,
    *,
    is_own: bool = False,
    options: tuple[str, ...] = (),
) -> Iterator[Bed]:
    """Build the laboratory a fixture needs, and take it down; one of one's own is only used.

    `options` are more of what `sanctl lab up` is to be told.
    """
    lacking = [] if is_own else lab_host.check(lab_host.observe(), spec)
    if lacking:
        reason = "no laboratory here: " + "; ".join(map(str, lacking))
        # `make test` promises that these tests ran: there a skip would be a false statement.
        if os.environ.get("SANCTL_LAB_TESTS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        if not is_own:
            shape = ["--nodes", str(spec.nodes), "--witness", spec.witness_kind.value]
            run_sanctl(
                "lab", "up", "--name", spec.name, "--release", _RELEASE, *shape,
                *options,
                timeout_s=_UP_DEADLINE_S,
            )  # fmt: skip
        made = Bed(spec.name)
        await_cluster(made)
        yield made
    finally:
        if state.find(spec.name) is not None:
            if request.session.testsfailed:
                _collect_logs(Bed(spec.name))
            if not is_own:
                run_sanctl("lab", "destroy", "--name", spec.name, timeout_s=120)


@pytest.fixture(scope="session")
def scene(bed: Bed) -> Scene:
    """Return the cluster together with its host."""
    return Scene(bed, Host(bed, "i1"))


@pytest.fixture
def audited(bed: Bed) -> Iterator[None]:
    """Hold what all kernels say against the invariants, after a test."""
    yield
    assert audit.violations(observe.views(bed)) == []


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
