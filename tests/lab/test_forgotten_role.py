# SPDX-License-Identifier: GPL-2.0-or-later
"""Pacemaker promotes a standby without demoting the replica that serves, while a host writes.

After a change of parameters Pacemaker knows by the recurring monitor alone which replica is
Promoted, and a move cancels that before it demotes. Here the demotion waits for another device's,
which waits for a lock, and an attribute changes meanwhile: the next transition promotes the other
replica at once. The monitor that it begins on the node that serves makes up for the demotion.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import ledgers
from tests.support.steps import PAUSE_DEADLINE_S, assert_no_error, await_idle, await_writes

pytestmark = pytest.mark.faults

NAME, SLOW = "forgot0", "forgot1"
STRANGER = "iqn.2026-11.net.example:forgot"
ORDER = "test-forgotten-role"
DRAIN_S = 200.0


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """A ledger on a device that n1 serves, as the other one; nothing may be lost."""
    with ledgers.ledger_on_new_device(
        scenario, NAME, "64M", rate=100, region_bytes=16 << 20
    ) as made:
        scenario.create(SLOW, "64M", prefer="n1")
        yield made
        scenario.delete(SLOW)


@pytest.fixture
def ordered(scenario: Scenario) -> Iterator[LabSession]:
    """The device's demotion waits for the other one's."""
    bed = scenario.bed
    bed.sh(
        "n3",
        "cibadmin --create --scope constraints --xml-text "
        f'\'<rsc_order id="{ORDER}" first="sanctl-{SLOW}" first-action="demote"'
        f' then="sanctl-{NAME}" then-action="demote" kind="Optional" symmetrical="false"/>\'',
    )
    yield bed
    bed.sh("n3", f"cibadmin --delete --xpath \"//rsc_order[@id='{ORDER}']\"")
    bed.sh("n1", "sanctl node undrain n1", timeout_s=90)
    print(bed.sh("n3", "sanctl status", ok=(0, 1), timeout_s=60).stdout)
    failover.await_healthy(bed, "n1")


def record(bed: LabSession, device: str, identifier: str) -> str:
    """What Pacemaker has recorded of an action of a replica on n1; empty: nothing."""
    xpath = f"//node_state[@uname='n1']//lrm_rsc_op[@id='{device}_{identifier}']"
    text = bed.sh("n3", f'cibadmin --query --xpath "{xpath}"', ok=(0, 105)).stdout
    return text if "<lrm_rsc_op" in text else ""


def test_the_replica_that_serves_is_demoted(load: LedgerLoad, ordered: LabSession) -> None:
    bed = ordered
    for number in range(8):
        bed.sh("n3", f"sanctl target allow {NAME} {STRANGER}{number}", timeout_s=90)
        await_idle(bed, "n3")
        wait_for("the monitor of the role", lambda: record(bed, NAME, "monitor_10000"), within_s=60)
        # Where the transition was aborted after the reload, the replica was promoted once more.
        if 'operation="start"' in record(bed, NAME, "last_0"):
            break
    assert 'operation="start"' in record(bed, NAME, "last_0")
    began_s = time.time()
    with (
        bed.stream("n1", f"flock /run/sanctl/fence-{SLOW}.lock sleep 45") as held,
        bed.stream("n1", f"sanctl node drain n1 --timeout {DRAIN_S:.0f}") as drain,
    ):
        wait_for(
            "the monitor to be cancelled",
            lambda: not record(bed, NAME, "monitor_10000"),
            within_s=60,
            every_s=0.2,
        )
        # The other one's demotion waits for the lock: this one has not begun.
        assert 'operation="start"' in record(bed, NAME, "last_0")
        bed.sh("n3", f"attrd_updater --name test-forgotten --update {began_s:.0f} --delay 0")
        wait_for("the lock to be free", lambda: held.poll() is not None, within_s=90)
        said = drain.communicate(timeout=DRAIN_S + 60)[0]
        print(said)
        assert drain.returncode == 0
    await_idle(bed, "n3")
    assert collect.active_node(bed, NAME) == "n2"
    entries = collect.journals(bed, ["n1", "n2"], began_s - 1)
    mine = [each for each in entries if each.device == NAME]
    stepped_down = [
        each.message for each in mine if each.node == "n1" and "this one is demoted" in each.message
    ]
    assert stepped_down, [each.message for each in mine]
    assert not [each.message for each in mine if each.action in {"stop", "start", "demote"}]
    asked = [
        match[1]
        for each in entries
        if (
            match := re.search(
                rf"Requesting local execution of (\S+) operation for {NAME} ", each.message
            )
        )
    ]
    assert "promote" in asked
    assert not {"demote", "stop", "start"} & set(asked)
    await_writes(load)
    assert assert_no_error(load, began_s) <= PAUSE_DEADLINE_S
