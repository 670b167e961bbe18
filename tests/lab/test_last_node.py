# SPDX-License-Identifier: GPL-2.0-or-later
"""Time alone does not fence the last node that serves (docs/adr/0091).

n2 is without power, n1 serves two devices, and its monitors can look at nothing for longer than
Pacemaker gives them: a former action holds the lock of each device, all of sanctl's processes are
stopped, or they have next to no processor.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from sanctl.errors import CommandError
from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.render.device_elements import OPERATIONS
from tests.support import ledgers
from tests.support.steps import assert_no_error, await_writes, boot_id

# A command on a node that goes down under it is given up, and its process not waited for.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAME, BESIDE = "last0", "last1"
LAST, LOST, WITNESS = "n1", "n2", "n3"
_UNIT = "hold-actions"
_ACTIONS = "sanctl-actions.service"
_GROUP = f"/sys/fs/cgroup/system.slice/{_ACTIONS}"
_INTERVAL_S = max(interval for name, interval, _, _ in OPERATIONS if name == "monitor")
_MONITOR_S = max(timeout for name, _, _, timeout in OPERATIONS if name == "monitor")
#: For longer than Pacemaker waits for a monitor, the interval after it, and a stop: a node that was
#: to be fenced for it is fenced by then.
_STOP_S = max(timeout for name, _, _, timeout in OPERATIONS if name == "stop")
_FAULT_S = float(_MONITOR_S + _INTERVAL_S + _STOP_S)
#: Nothing of the fault touches the data path: what a host may see is a busy machine. A demotion
#: would end its writes for longer, as nothing is promoted before the fault ends.
_PAUSE_S = 20.0
_BACK_S = 300.0
#: Takes the lock of each device's actions as an action does (sanctl/agents/ocf.py, _place).
_HOLD = (
    "import fcntl, os, sys, time, zlib;"
    " f = os.open('/run/sanctl/actions.lock', os.O_RDWR | os.O_CREAT, 0o600);"
    " [fcntl.lockf(f, fcntl.LOCK_EX, 1, zlib.crc32(n.encode())) for n in sys.argv[1:]];"
    " open('/run/hold-actions', 'w').close(); time.sleep(3600)"
)


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """A ledger on one of two devices that n1 serves; nothing may be lost."""
    with ledgers.ledger_on_new_device(
        scenario, NAME, "64M", rate=50, region_bytes=16 << 20
    ) as made:
        scenario.create(BESIDE, "64M", prefer=LAST)
        yield made
        scenario.delete(BESIDE)


@pytest.fixture
def alone(scenario: Scenario, load: LedgerLoad) -> Iterator[LabSession]:
    """n1 serves both devices, and n2 has no power until the end."""
    bed = scenario.bed
    for name in (NAME, BESIDE):
        wait_for(
            "both in sync",
            lambda name=name: collect.is_in_sync(bed, LAST, name),  # type: ignore[misc]
            within_s=90,
        )
        if collect.active_node(bed, name) != LAST:
            scenario.sanctl("device", "move", name, "--to", LAST, node=WITNESS, timeout_s=180)
        assert collect.active_node(bed, name) == LAST
    failover.await_healthy(bed, LAST)
    # It leaves the cluster before its power is cut: fencing would switch it on again.
    scenario.sanctl("node", "standby", LOST, timeout_s=180)
    bed.sh(LOST, "systemctl stop pacemaker corosync", timeout_s=180)
    bed.cut_power(LOST)
    try:
        wait_for(f"{LOST} to be known as lost", lambda: is_alone(bed), within_s=120)
        await_writes(load)
        yield bed
    finally:
        bed.ensure_power(LOST)
        wait_for(f"{LOST} to be back", lambda: boots(bed, LOST), within_s=_BACK_S, every_s=3.0)
        scenario.sanctl("node", "online", LOST, timeout_s=180)
    for name in (NAME, BESIDE):
        wait_for(
            "both in sync",
            lambda name=name: collect.is_in_sync(bed, LAST, name),  # type: ignore[misc]
            within_s=_BACK_S,
            every_s=2.0,
        )
    failover.await_healthy(bed, LAST)


def is_alone(bed: LabSession) -> bool:
    text = bed.sh(LAST, "cat /proc/drbd").stdout
    return text.count("cs:WFConnection ro:Primary/Unknown ds:UpToDate/") >= 2 and (
        LOST not in bed.sh(WITNESS, "crm_node --partition", timeout_s=30).stdout.split()
    )


def boots(bed: LabSession, node: str) -> bool:
    try:
        said = bed.sh(node, "systemctl is-active pacemaker", ok=range(256), timeout_s=10).stdout
    except CommandError:
        return False
    return said == "active\n"


@contextlib.contextmanager
def former_actions_hang(bed: LabSession) -> Iterator[None]:
    """Hold the lock of both devices' actions, as killed ones do that are still in a system call."""
    bed.sh(
        LAST,
        f"rm -f /run/hold-actions; systemd-run --quiet --unit={_UNIT} /usr/bin/python3 -c"
        f' "{_HOLD}" {NAME} {BESIDE}',
    )
    try:
        wait_for(
            "both locks",
            lambda: bed.sh(LAST, "test -e /run/hold-actions", ok=(0, 1)).status == 0,
            within_s=90,
        )
        yield
    finally:
        bed.sh(LAST, f"systemctl stop {_UNIT}; rm -f /run/hold-actions")


@contextlib.contextmanager
def processes_stop(bed: LabSession) -> Iterator[None]:
    """Stop the service and what it has forked, and what clients run beside it, again and again.

    The service is left alive by its watchdog for fifteen seconds only, and comes back.
    """
    script = (
        f"while :; do for p in $(cat {_GROUP}/cgroup.procs 2>/dev/null)"
        " $(pgrep -f '^python3 -I /usr/lib/sanctl/program .*/device monitor');"
        " do kill -STOP $p 2>/dev/null; done; sleep 0.2; done"
    )
    # systemd-run takes $ for a variable of its own.
    words = shlex.quote(script.replace("$", "$$"))
    bed.sh(LAST, f"systemd-run --quiet --unit={_UNIT} sh -c {words}")
    try:
        yield
    finally:
        bed.sh(
            LAST,
            f"systemctl stop {_UNIT}; systemctl kill --signal=CONT {_ACTIONS};"
            f" systemctl restart {_ACTIONS}",
            ok=range(256),
            timeout_s=90,
        )


@contextlib.contextmanager
def without_processor(bed: LabSession) -> Iterator[None]:
    """Leave the service and what it forks two hundredths of a processor."""
    bed.sh(LAST, f"systemctl set-property --runtime {_ACTIONS} CPUQuota=2%", timeout_s=60)
    try:
        yield
    finally:
        bed.sh(
            LAST,
            f"systemctl set-property --runtime {_ACTIONS} CPUQuota=;"
            f" rm -rf /run/systemd/system.control/{_ACTIONS}.d; systemctl daemon-reload",
            timeout_s=120,
        )


def answered(bed: LabSession, since_s: float) -> int:
    """Return how many monitors of n1 were answered for since a time."""
    found = bed.sh(
        LAST,
        f"journalctl -q -o cat --since=@{since_s:.0f} SYSLOG_IDENTIFIER=sanctl",
        ok=(0, 1),
        timeout_s=60,
    )
    return found.stdout.count("SAN-AGENT-022")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("fault", "is_certain"),
    [(former_actions_hang, True), (processes_stop, True), (without_processor, False)],
)
def test_monitors_that_cannot_end_take_nothing_from_hosts(
    load: LedgerLoad,
    alone: LabSession,
    fault: Callable[[LabSession], AbstractContextManager[None]],
    is_certain: bool,
) -> None:
    bed = alone
    before = {node: boot_id(bed, node) for node in (LAST, WITNESS)}
    began_s = time.time()
    # What is answered from the fingerprint needs neither the lock nor a process.
    bed.sh(LAST, "rm -f /run/sanctl/devices/*/fingerprint")
    with fault(bed):
        deadline_s = time.monotonic() + _FAULT_S
        # The fault lasts for longer than Pacemaker waits: there is no event to wait for.
        while time.monotonic() < deadline_s:
            assert boot_id(bed, LAST) == before[LAST], f"{LAST}, which alone serves, was fenced"
            time.sleep(5.0)
    print(f"  {answered(bed, began_s)} monitors were answered for")
    if is_certain:
        assert answered(bed, began_s) >= 2, "the fault was none"
    await_writes(load)
    assert assert_no_error(load, began_s) <= _PAUSE_S
    log = collect.journals(bed, [LAST], began_s)
    actions = {"demote", "stop", "start", "promote"}
    assert not [e.message for e in log if e.device in {NAME, BESIDE} and e.action in actions]
    failures = bed.sh(WITNESS, "crm_mon --one-shot --failures", ok=range(256), timeout_s=60).stdout
    assert f"{NAME}_" not in failures and f"{BESIDE}_" not in failures, failures
    assert {node: boot_id(bed, node) for node in before} == before
