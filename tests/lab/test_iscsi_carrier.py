# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent that watches the iscsi network is replaced while devices are served.

By carrier (ocf:heartbeat:ethmonitor), without ping targets; by the stock ping of an earlier
release. By ocf:sanctl:reach: tests/lab/test_fencing.py.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import await_healthy
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import rollout
from tests.support.steps import await_idle, reach_counts

pytestmark = pytest.mark.faults

NAME = "reach0"
CARRIER = {
    "sanctl_pacemaker_reach_targets": [],
    "sanctl_pacemaker_reach_interface": "iscsi0",
}


@pytest.fixture(scope="module")
def watched_by_carrier(bed: LabSession) -> Iterator[None]:
    """Roll out monitoring by carrier on the running cluster, and the change back."""
    rollout.run(bed.lab, arguments=("--extra-vars", json.dumps(CARRIER)))
    yield
    rollout.run(bed.lab)
    await_healthy(bed, "n1")


@pytest.mark.timeout(900)
def test_the_stock_agent_of_an_earlier_release_is_replaced_and_nothing_moves(
    scenario: Scenario,
) -> None:
    bed = scenario.bed
    scenario.create(NAME, "64M", prefer="n1")
    wait_for("both nodes to reach", lambda: _all(bed, 1), within_s=60)
    began_s = time.time()
    # The way back to an earlier release, as docs/howto/maintenance.md has it.
    earlier = '<primitive id="sanctl-reached" class="ocf" provider="pacemaker" type="ping"/>'
    bed.sh("n1", f"cibadmin --modify --xml-text {shlex.quote(earlier)}")
    await_idle(bed, "n3")
    assert 'type="ping"' in _resource(bed)
    wait_for("both nodes to reach by the stock agent", lambda: _all(bed, 1), within_s=60)
    replaced_s = time.time()
    rollout.run(bed.lab)
    await_idle(bed, "n3")
    assert 'type="reach"' in _resource(bed)
    wait_for("both nodes to reach", lambda: _all(bed, 1), within_s=60)
    assert collect.active_node(bed, NAME) == "n1"
    nodes = [node.name for node in bed.storage]
    moves = {"start", "promote", "demote", "stop"}
    log = collect.journals(bed, nodes, began_s)
    assert [e.message for e in log if e.device == NAME and e.action in moves] == []
    found = {
        e.node
        for e in log
        if e.at_s >= replaced_s and "1 of 1 addresses of the iscsi network answer" in e.message
    }
    assert found == {"n1", "n2"}
    scenario.delete(NAME)


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("watched_by_carrier")
def test_a_device_leaves_a_node_whose_port_is_down_once(scenario: Scenario) -> None:
    bed = scenario.bed
    scenario.create(NAME, "64M", prefer="n1")
    wait_for("both to have a carrier", lambda: _all(bed, 1), within_s=60)
    assert 'type="ethmonitor"' in _resource(bed)
    bed.sh("n1", "ip link set iscsi0 down")
    try:
        wait_for(f"{NAME} on n2", lambda: collect.active_node(bed, NAME) == "n2", within_s=90)
        assert reach_counts(bed, "n3") == {"n1": 0, "n2": 1}
    finally:
        bed.sh("n1", "ip link set iscsi0 up")
    wait_for("both to have a carrier", lambda: _all(bed, 1), within_s=60)
    await_idle(bed, "n3")
    assert collect.active_node(bed, NAME) == "n2"  # n1 is preferred, and does not pull
    scenario.delete(NAME)


def _resource(bed: LabSession) -> str:
    return bed.sh("n1", "crm_resource --resource sanctl-reached --query-xml").stdout


def _all(bed: LabSession, wanted: int) -> bool:
    found = reach_counts(bed, "n3")
    return len(found) == 2 and set(found.values()) == {wanted}
