# SPDX-License-Identifier: GPL-2.0-or-later
"""Hung I/O: requests that DRBD forgot or a disk never answers, and how the node ends them.

The standby has no disk, so the active node's writes do not wait for it; it dies; and the active
node's disk is slow, so that a flush is on its way when DRBD notices and freezes.
"""

from __future__ import annotations

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

NAME = "stuck0"
ROUNDS = 4
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


def await_recovery(load: LedgerLoad, node: str) -> None:
    wait_for("both in sync", lambda: collect.is_in_sync(load.bed, node, NAME), within_s=BACK_S)
    failover.await_healthy(load.bed, node)


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
    messages = bed.sh(active, "journalctl --quiet -b -1 SANCTL_ACTION=self-fence").stdout
    assert "waits for nothing any more" in messages
    await_writes(load)
    await_recovery(load, active)


@pytest.mark.timeout(900)
def test_a_disk_that_hangs_under_the_active_node_hands_over(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed = scenario.bed
    active = collect.active_node(bed, NAME)
    standby = load.peer_of(active)
    await_recovery(load, active)
    before, began_s = boot_id(bed, active), time.time()
    node_faults.break_disk(bed.lab, bed.node(active), 1, DiskBehaviour.HANG, LocalRunner())
    wait_for(
        f"{standby} to serve",
        lambda: kernel_audit.active_nodes(collect.kernel_views(bed), NAME) == [standby],
        within_s=HANGING_AFTER_S + MARGIN_S + 60.0,
        every_s=1.0,
    )
    print(f"  served by {standby} after {time.time() - began_s:.0f} s")
    await_writes(load)
    wait_for(f"{active} to be back", lambda: boot_id(bed, active) != before, within_s=BACK_S)
    await_recovery(load, standby)
