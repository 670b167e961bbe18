# SPDX-License-Identifier: GPL-2.0-or-later
"""The active node loses its power, nobody goes on, and it comes back: no unflushed write is lost.

As where it cannot be fenced, or the other one has no quorum. What broke: DRBD takes the crashed
Primary for the source of the resync. Its disk lacks writes to new places that were acknowledged in
its last seconds; the standby, which nothing had happened to, had them all.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.measure import kernel_audit
from tests.support import ledgers
from tests.support.steps import await_writes, dead_bmc, findings

pytestmark = [pytest.mark.faults]

NAME = "crashed0"
NOTICE_DEADLINE_S = 120.0


@contextlib.contextmanager
def without_fencing(bed: LabSession, lost: str) -> Iterator[float]:
    """Cut the power of the active node, whose BMC is dead as long as this lasts."""
    with dead_bmc(bed, lost):
        yield bed.cut_power(lost)


@contextlib.contextmanager
def without_quorum(bed: LabSession, lost: str) -> Iterator[float]:
    """Cut the power of the witness and of the active node; the standby is stopped in order."""
    bed.cut_power("n3")
    try:
        yield bed.cut_power(lost)
    finally:
        bed.ensure_power("n3")


def given_up(bed: LabSession, survivor: str, lost: str) -> bool:
    """Whether the standby was stopped for want of quorum, or the lost node could not be fenced."""
    if bed.sh(survivor, f"drbdsetup status {NAME}", ok=range(256)).status != 0:
        return True
    return f"SAN-HLT-016 node {lost}" in findings(bed, survivor, "status")


def is_flag_gone(bed: LabSession, node: str) -> bool:
    """Whether DRBD's metadata says no more that its node crashed as Primary."""
    minor = bed.sh("n3", f"crm_resource --resource {NAME} --get-parameter minor").stdout.split()[-1]
    held = bed.sh(node, f"drbdsetup get-gi {minor}", ok=range(256))
    # DRBD 9 takes other arguments, and has the flag of the crash elsewhere.
    return held.status != 0 or held.stdout.strip().endswith(":0")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("without", [without_fencing, without_quorum])
def test_the_standby_is_promoted_before_a_crashed_primary_connects(
    scenario: Scenario, without: Callable[..., contextlib.AbstractContextManager[float]]
) -> None:
    bed = scenario.bed
    # Enough room for writes to new places until the end, none of which a host flushes.
    load = ledgers.start_on_new_device(
        scenario, NAME, "768M", rate=200, region_bytes=640 << 20, synced=False
    )
    try:
        load.host.await_acknowledged(load.run, 2000, within_s=120)
        lost = collect.active_node(bed, NAME)
        survivor = load.peer_of(lost)
        with without(bed, lost) as began_s:
            wait_for(
                "the survivor to have given up",
                lambda: given_up(bed, survivor, lost),
                within_s=NOTICE_DEADLINE_S,
            )
            assert kernel_audit.active_nodes(collect.kernel_views(bed), NAME) == []
            bed.ensure_power(lost)
            await_writes(load, within_s=300)
            wait_for("both in sync", lambda: collect.is_in_sync(bed, survivor, NAME), within_s=120)
        print(f"  served again, and in sync, {time.time() - began_s:.0f} s after the cut")
        log = sorted(collect.journals(bed, [lost, survivor], began_s), key=lambda each: each.at_s)
        mine = [entry for entry in log if entry.device == NAME]
        steps = [entry.node for entry in mine if entry.step == "standby-first"]
        assert steps == [lost, lost], [entry.message for entry in mine]
        served = [entry.node for entry in mine if f"{NAME}: promote: serving" in entry.message]
        assert served == [survivor]
        wait_for("DRBD to have forgotten the crash", lambda: is_flag_gone(bed, lost), within_s=60)
        ledgers.assert_nothing_lost(load, more_than=2500, delete=True)
    finally:
        ledgers.stop(load)
    failover.await_healthy(bed, survivor)
