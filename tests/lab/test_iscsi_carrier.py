# SPDX-License-Identifier: GPL-2.0-or-later
"""The iscsi network monitored by carrier (ocf:heartbeat:ethmonitor), without ping targets.

By ping: tests/lab/test_fencing.py.
"""

from __future__ import annotations

import json
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
@pytest.mark.usefixtures("watched_by_carrier")
def test_a_device_leaves_a_node_whose_port_is_down_once(scenario: Scenario) -> None:
    bed = scenario.bed
    scenario.create(NAME, "64M", prefer="n1")
    wait_for("both to have a carrier", lambda: _all(bed, 1), within_s=60)
    assert "ethmonitor" in bed.sh("n1", "crm_resource --resource sanctl-reached --query-xml").stdout
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


def _all(bed: LabSession, wanted: int) -> bool:
    found = reach_counts(bed, "n3")
    return len(found) == 2 and set(found.values()) == {wanted}
