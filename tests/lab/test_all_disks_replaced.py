# SPDX-License-Identifier: GPL-2.0-or-later
"""The disks of all replicas of a device are lost for good: what is said, and what can be done."""

from __future__ import annotations

from functools import partial

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.measure import kernel_audit
from tests.support.steps import findings

pytestmark = pytest.mark.faults

NAME = "gone0"
CLONE = f"sanctl-{NAME}"
ROLE = "crm_resource --resource {} --meta --{} target-role"
STOP_DEADLINE_S, START_DEADLINE_S = 60.0, 120.0


def _is_stopped(bed: LabSession, node: str) -> bool:
    return not bed.sh(node, f"losetup -a | grep {NAME}", ok=(0, 1)).stdout


def test_all_disks_of_a_device_are_replaced(scenario: Scenario) -> None:
    """Its files are gone, as from new disks; nothing that is there is taken for its data."""
    bed = scenario.bed
    scenario.create(NAME, "64M", prefer="n1")
    bed.sh("n3", f"{ROLE.format(CLONE, 'set-parameter')} --parameter-value Stopped")
    for node in bed.storage:
        wait_for(
            f"the replica on {node.name} to be stopped",
            partial(_is_stopped, bed, node.name),
            within_s=STOP_DEADLINE_S,
        )
        bed.sh(node.name, f"rm /srv/sanctl/main/devices/{NAME}.*")
    bed.sh("n3", ROLE.format(CLONE, "delete-parameter"))
    wait_for(
        "status to say that no replica is whole",
        lambda: (
            "SAN-HLT-032 device gone0" in findings(bed, "n3", "status")
            and "no replica is whole" in bed.sh("n3", "sanctl status", ok=(0, 1)).stdout
        ),
        within_s=START_DEADLINE_S,
    )
    told = bed.sh("n3", f"sanctl device heal {NAME}", ok=range(256)).stdout
    assert "no operator can decide now" in told and "sanctl report rpo" in told
    assert kernel_audit.active_nodes(collect.kernel_views(bed), NAME) == []
    scenario.delete(NAME)
    scenario.create(NAME, "64M", prefer="n1")
    failover.await_healthy(bed, "n3")
    scenario.delete(NAME)
