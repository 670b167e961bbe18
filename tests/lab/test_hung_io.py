# SPDX-License-Identifier: GPL-2.0-or-later
"""Hung I/O: requests that DRBD forgot or a disk never answers, and how the node ends them.

The standby has no disk, so the active node's writes do not wait for it; it dies; and the active
node's disk is slow, so that a flush is on its way when DRBD notices and freezes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import node_faults
from sanctl.lab.machines.node_faults import DiskBehaviour
from sanctl.lab.measure import kernel_audit
from sanctl.plan.failover.hung_io_reboot import FORGOTTEN_AFTER_S, HANGING_AFTER_S
from sanctl.system.runner import LocalRunner
from tests.support import ledgers
from tests.support.steps import await_writes, boot_id

# A command on a node that goes down under it is given up, and its process not waited for.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAME, BESIDE = "stuck0", "beside0"
WITNESS = "n3"
ROUNDS = 4
# One of the monitor every ten seconds.
LOOKS = 6
# Two looks of the monitor, and a machine that does other things too.
MARGIN_S = 60.0
BACK_S = 240.0


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """A ledger through all tests: it flushes after each write, and nothing may be lost."""
    with ledgers.ledger_on_new_device(
        scenario, NAME, "128M", rate=0, region_bytes=16 << 20
    ) as made:
        yield made


def drbd_shows(bed: LabSession, node: str, words: str) -> bool:
    return words in bed.sh(node, f"drbdsetup events2 --now {NAME}", timeout_s=15).stdout


def served_by(bed: LabSession) -> str:
    """Return the node that serves the device, once one does."""
    return wait_for(f"{NAME} to be served", lambda: collect.active_node(bed, NAME), within_s=BACK_S)


def await_recovery(load: LedgerLoad, node: str) -> None:
    wait_for("both in sync", lambda: collect.is_in_sync(load.bed, node, NAME), within_s=BACK_S)
    failover.await_healthy(load.bed, node)


def self_fences(bed: LabSession, node: str) -> list[str]:
    """Return what a node has said of why it ended itself, by its kernel on the console.

    Its journal may lack the line: on a busy machine the node does not wait for that disk.
    """
    console = bed.lab.console_log(bed.node(node))
    logs = [each for each in (console.with_suffix(".previous.log"), console) if each.exists()]
    messages = "\n".join(each.read_text(errors="replace") for each in logs).splitlines()
    return [line for line in messages if "self-fence: " in line]


def lose_the_standby(load: LedgerLoad, active: str, standby: str) -> None:
    """Do what makes DRBD 8.4 forget a flush, more often than not."""
    bed, runner = load.bed, LocalRunner()
    bed.sh(standby, f"drbdsetup detach {load.minor}", timeout_s=30)
    wait_for(
        "a standby without disk", lambda: drbd_shows(bed, active, "peer-disk:Diskless"), within_s=20
    )
    node_faults.break_disk(bed.lab, bed.node(active), 1, DiskBehaviour.SLOW, runner)
    try:
        bed.cut_power(standby)
        wait_for(
            "the Primary to miss it",
            lambda: not drbd_shows(bed, active, "connection:Connected"),
            within_s=30,
            every_s=0.2,
        )
        wait_for(
            "the end of the freeze", lambda: drbd_shows(bed, active, " suspended:no"), within_s=60
        )
    finally:
        node_faults.break_disk(bed.lab, bed.node(active), 1, DiskBehaviour.OK, runner)


@pytest.mark.timeout(1500)
def test_a_request_that_drbd_has_forgotten_ends_with_the_node(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed = scenario.bed
    for number in range(ROUNDS):
        active = collect.active_node(bed, NAME)
        standby = load.peer_of(active)
        before = boot_id(bed, active)
        lose_the_standby(load, active, standby)

        def has_ended(node: str = active, before: str = before) -> bool:
            return boot_id(bed, node) != before

        def is_over(node: str = active) -> bool:
            return has_ended() or collect.is_in_sync(bed, node, NAME)

        # The standby is back within a minute: then either it is filled, or nothing goes on.
        within_s = FORGOTTEN_AFTER_S + MARGIN_S + BACK_S
        wait_for("an end", is_over, within_s=within_s, every_s=1.0)
        if has_ended():
            print(f"  round {number}: forgotten on {active}")
            break
        await_recovery(load, active)
    else:
        pytest.fail(f"no request was forgotten in {ROUNDS} rounds: nothing is shown")
    assert "waits for nothing any more" in "".join(self_fences(bed, active))
    await_writes(load)
    await_recovery(load, active)


@contextlib.contextmanager
def without_peer(scenario: Scenario, active: str, standby: str) -> Iterator[None]:
    """Have a second device on the active node that no other node can serve, as long as it lasts."""
    bed = scenario.bed
    constraint = f"{BESIDE}-only-here"
    scenario.create(BESIDE, "64M", prefer=active)
    wait_for("both in sync", lambda: collect.is_in_sync(bed, active, BESIDE), within_s=BACK_S)
    bed.sh(
        active,
        "cibadmin --create --scope constraints --xml-text "
        f'\'<rsc_location id="{constraint}" rsc="sanctl-{BESIDE}" node="{standby}"'
        ' score="-INFINITY"/>\'',
    )
    try:
        wait_for(
            f"{BESIDE} on {active} alone",
            lambda: not collect.is_in_sync(bed, active, BESIDE),
            within_s=60,
        )
        yield
    finally:
        # On the witness: the active node may have ended.
        bed.sh(WITNESS, f"cibadmin --delete --xpath \"//rsc_location[@id='{constraint}']\"")


def goes_on(bed: LabSession, active: str) -> int:
    """Return how often the node has said in this boot that it goes on for the second device."""
    found = bed.sh(active, "journalctl -q -b -o cat SANCTL_ACTION=hung-io", ok=(0, 1), timeout_s=30)
    return found.stdout.count(f"alone serves {BESIDE}")


def is_forgotten_beside_another(scenario: Scenario, load: LedgerLoad) -> bool:
    """Lose the standby once; where a request was forgotten, see the node go on, and its end."""
    bed = scenario.bed
    active = served_by(bed)
    standby = load.peer_of(active)
    await_recovery(load, active)
    before = boot_id(bed, active)
    with without_peer(scenario, active, standby):
        lose_the_standby(load, active, standby)
        wait_for(
            "an end",
            lambda: goes_on(bed, active) or collect.is_in_sync(bed, active, NAME),
            within_s=FORGOTTEN_AFTER_S + MARGIN_S + BACK_S,
            every_s=1.0,
        )
        assert boot_id(bed, active) == before, f"{active} alone served {BESIDE}"
        if not goes_on(bed, active):
            return False
        wait_for(
            "the finding",
            lambda: (
                f"it alone serves {BESIDE}"
                in bed.sh(
                    WITNESS, "sanctl status --output json", ok=range(256), timeout_s=60
                ).stdout
            ),
            within_s=60,
        )
        wait_for("more looks", lambda: goes_on(bed, active) >= LOOKS, within_s=150)
        assert boot_id(bed, active) == before, f"{active} alone served {BESIDE}"
        assert collect.active_node(bed, BESIDE) == active
    # The second device is filled, and the node has nothing to go on for.
    wait_for(
        f"the end of {active}",
        lambda: boot_id(bed, active) != before,
        within_s=BACK_S + MARGIN_S,
        every_s=1.0,
    )
    print(f"  {active} went on, and rebooted when {BESIDE} was in sync")
    return True


@pytest.mark.timeout(1800)
def test_a_forgotten_request_does_not_end_the_only_server_of_another_device(
    scenario: Scenario, load: LedgerLoad
) -> None:
    for _ in range(ROUNDS):
        is_shown = is_forgotten_beside_another(scenario, load)
        active = served_by(scenario.bed)
        await_recovery(load, active)
        scenario.delete(BESIDE)
        if is_shown:
            break
    else:
        pytest.fail(f"no request was forgotten in {ROUNDS} rounds: nothing is shown")
    await_writes(load)


@pytest.mark.timeout(900)
def test_a_disk_that_hangs_under_the_active_node_hands_over(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed = scenario.bed
    active = served_by(bed)
    standby = load.peer_of(active)
    await_recovery(load, active)
    before, began_s = boot_id(bed, active), time.time()
    node_faults.break_disk(bed.lab, bed.node(active), 1, DiskBehaviour.HANG, LocalRunner())
    # A monitor's command to DRBD may be under way just then, after which DRBD answers no other.
    wait_for(
        f"{standby} to serve",
        lambda: kernel_audit.active_nodes(collect.kernel_views(bed), NAME) == [standby],
        within_s=HANGING_AFTER_S + MARGIN_S + BACK_S,
        every_s=1.0,
    )
    print(f"  served by {standby} after {time.time() - began_s:.0f} s")
    await_writes(load)
    wait_for(f"{active} to be back", lambda: boot_id(bed, active) != before, within_s=BACK_S)
    await_recovery(load, standby)


@pytest.mark.timeout(1200)
def test_a_disk_that_hangs_under_a_command_to_drbd_hands_over_as_well(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """DRBD answers no command then, about no device: no monitor fails, and the node ends itself.

    The command is one that waits for the requests under way (drbd_nl.c, disk_opts_check_al_size).
    """
    bed = scenario.bed
    active = served_by(bed)
    standby = load.peer_of(active)
    await_recovery(load, active)
    scenario.create(BESIDE, "64M", prefer=active)
    try:
        hang_under_a_command(load, active, standby)
    finally:
        scenario.delete(BESIDE)


def hang_under_a_command(load: LedgerLoad, active: str, standby: str) -> None:
    bed = load.bed
    wait_for("both in sync", lambda: collect.is_in_sync(bed, active, BESIDE), within_s=BACK_S)
    failover.await_healthy(bed, active)
    told = len(self_fences(bed, active))
    before, began_s = boot_id(bed, active), time.time()
    node_faults.break_disk(bed.lab, bed.node(active), 1, DiskBehaviour.HANG, LocalRunner())
    # A process that waits for DRBD's lock cannot be killed: nothing here waits for one.
    change = f"drbdsetup disk-options {load.minor} --al-extents=131"
    question = f"drbdsetup events2 --now {NAME}"
    bed.sh(
        active,
        f"sleep 2; setsid -f {change} >/dev/shm/one 2>&1 </dev/null;"
        f" sleep 1; setsid -f {question} >/dev/shm/two 2>&1 </dev/null;"
        " sleep 4; test ! -s /dev/shm/two",
        timeout_s=30,
    )

    def has_passed() -> bool:
        failures = bed.sh(standby, "crm_mon --one-shot --include=none,failures").stdout
        assert NAME not in failures, failures
        assert BESIDE not in failures, failures
        views = collect.kernel_views(bed)
        return all(kernel_audit.active_nodes(views, each) == [standby] for each in (NAME, BESIDE))

    wait_for(
        f"{standby} to serve",
        has_passed,
        within_s=HANGING_AFTER_S + MARGIN_S + BACK_S,
        every_s=1.0,
    )
    print(f"  served by {standby} after {time.time() - began_s:.0f} s")
    await_writes(load)
    wait_for(f"{active} to be back", lambda: boot_id(bed, active) != before, within_s=BACK_S)
    assert "the disk has not answered" in "".join(self_fences(bed, active)[told:])
    await_recovery(load, standby)
