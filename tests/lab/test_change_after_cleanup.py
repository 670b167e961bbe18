# SPDX-License-Identifier: GPL-2.0-or-later
"""A device is changed after its history in Pacemaker was cleaned, while a host writes.

Pacemaker then has a record, of each replica that it finds running, for which it restarts the
replica at the next change of a parameter. The command has it forget that first: both replicas are
reloaded, and the host notices nothing.
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

NAME = "cleaned0"
NODES = ("n1", "n2")
STRANGER = "iqn.2026-11.net.example:after"
# Records have to be half a minute old; on a busy machine the probes come late.
CHANGE_S = 200.0
PROBED_S = 60.0


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """A ledger on a device that n1 serves; nothing may be lost."""
    with ledgers.ledger_on_new_device(
        scenario, NAME, "64M", rate=100, region_bytes=16 << 20
    ) as made:
        yield made


def records(bed: LabSession) -> int:
    """How many replicas Pacemaker has a failure of, in its history."""
    xpath = f"//lrm_rsc_op[@id='{NAME}_last_failure_0']"
    found = bed.sh("n3", f'cibadmin --query --xpath "{xpath}"', ok=(0, 105)).stdout
    return len(re.findall(f'id="{NAME}_last_failure_0"', found))


def clean_history(bed: LabSession) -> None:
    bed.sh("n3", f"crm_resource --refresh --resource {NAME}", timeout_s=90)


def actions(bed: LabSession, began_s: float) -> dict[str, set[str]]:
    """Which actions of the device Pacemaker has had carried out, by node, without monitors."""
    found: dict[str, set[str]] = {}
    for node in NODES:
        out = bed.sh(node, f"journalctl --quiet --output=cat --since @{began_s:.0f}").stdout
        asked = re.findall(rf"Requesting local execution of (\S+) operation for {NAME} ", out)
        found[node] = set(asked) - {"monitor", "probe"}
    return found


@pytest.mark.parametrize("when", ["at-once", "later", "after-an-election"])
def test_replicas_are_reloaded(scenario: Scenario, load: LedgerLoad, when: str) -> None:
    bed, began_s = scenario.bed, time.time()
    clean_history(bed)
    if when != "at-once":
        wait_for("both replicas to be found", lambda: records(bed) == 2, within_s=PROBED_S)
        await_idle(bed, "n3")
    if when == "after-an-election":
        # What another program deletes comes back: the controllers tell the new DC of it.
        xpath = f"//lrm_rsc_op[@id='{NAME}_last_failure_0']"
        bed.sh("n3", f'cibadmin --delete-all --force --xpath "{xpath}"')
        time.sleep(3)
        await_idle(bed, "n3")
    changed_s = time.time()
    bed.sh("n3", f"sanctl target allow {NAME} {STRANGER}-{when}", timeout_s=CHANGE_S)
    print(f"  changed within {time.time() - changed_s:.0f} s")
    await_idle(bed, "n3")
    assert records(bed) == 0
    for node, found in actions(bed, began_s).items():
        # After a reload Pacemaker may promote once more what is promoted already.
        assert "reload-agent" in found, f"{node}: {found}"
        assert not found & {"start", "demote", "stop"}, f"{node}: {found}"
    await_writes(load)
    assert assert_no_error(load, began_s) <= PAUSE_DEADLINE_S
    assert collect.active_node(bed, NAME) == "n1"
    clone = bed.sh("n3", f"cibadmin --query --xpath \"//clone[@id='sanctl-{NAME}']\"").stdout
    assert "failure-timeout" not in clone
    assert NAME not in bed.sh("n3", "crm_mon --one-shot --include=none,failures").stdout
    failover.await_healthy(bed, "n1")
