# SPDX-License-Identifier: GPL-2.0-or-later
"""The pool agent of a node whose pool's disk gave no answer for some minutes runs again by itself.

Its monitor hangs in the kernel and is killed at its timeout, and its start fails as long as that
one has not ended. A failed start keeps a resource off its node, and what cleans such failures up is
this agent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import node_faults
from sanctl.lab.machines.node_faults import DiskBehaviour
from sanctl.model.cib_names import POOL_RESOURCE
from sanctl.model.crm_mon import Mon, Role
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.system.runner import LocalRunner
from tests.support.steps import boot_id

pytestmark = pytest.mark.faults

NODE, ASKED = "n2", "n3"
#: A device that was never there; its files are, and are to be removed.
GONE, UUID = "gone0", "6" * 32
TOMBSTONE = f"crm_attribute --node {NODE} --name sanctl-delete-{GONE}"
FILE = f"/srv/sanctl/main/devices/{GONE}.{UUID}.data"
#: The monitor's timeout, a stop's and a start's, and a busy machine.
FAILED_S = 120.0 + 30.0 + 60.0 + 120.0
#: The failure-timeout, a start and a monitor, and a busy machine.
AGAIN_S = 120.0 + 60.0 + 120.0


@pytest.fixture
def hanging(scenario: Scenario) -> Iterator[LabSession]:
    """The node's disk gives no answer, and its pool agent is about to wait for the disk."""
    bed = scenario.bed
    assert not bed.sh(ASKED, "crm_resource --list | grep ocf:sanctl:device", ok=(0, 1)).stdout
    bed.sh(NODE, f"head -c 1M /dev/zero >{FILE} && sync --file-system {FILE}")
    break_disk(bed, DiskBehaviour.HANG)
    try:
        bed.sh(ASKED, f"{TOMBSTONE} --update '{UUID} main'")
        yield bed
    finally:
        break_disk(bed, DiskBehaviour.OK)
        bed.sh(ASKED, f"{TOMBSTONE} --delete", ok=range(256))
        bed.sh(NODE, f"rm -f {FILE}")


def break_disk(bed: LabSession, does: DiskBehaviour) -> None:
    node_faults.break_disk(bed.lab, bed.node(NODE), 1, does, LocalRunner())


def cluster(bed: LabSession) -> Mon:
    return parse_crm_mon(bed.sh(ASKED, "crm_mon --output-as=xml", timeout_s=30).stdout)


def failed(bed: LabSession) -> set[str]:
    """Return which actions of the pool agent Pacemaker remembers as failed on the node."""
    found = cluster(bed).failures
    return {each.action for each in found if (each.resource, each.node) == (POOL_RESOURCE, NODE)}


def runs(bed: LabSession) -> bool:
    """Whether the pool agent runs on the node, and nothing of it has failed."""
    return cluster(bed).role(POOL_RESOURCE, NODE) is Role.STARTED and not failed(bed)


@pytest.mark.timeout(1200)
def test_the_agent_is_started_again_after_its_disk_has_hung(hanging: LabSession) -> None:
    bed, began_s = hanging, time.time()
    before = boot_id(bed, NODE)
    wait_for("a failed start", lambda: "start" in failed(bed), within_s=FAILED_S, every_s=2.0)
    print(f"  the start has failed after {time.time() - began_s:.0f} s")
    assert not runs(bed)
    break_disk(bed, DiskBehaviour.OK)
    began_s = time.time()
    wait_for(f"the agent on {NODE}", lambda: runs(bed), within_s=AGAIN_S, every_s=2.0)
    print(f"  it runs again {time.time() - began_s:.0f} s after the disk was back")
    wait_for(
        "its work",
        lambda: (
            not bed.sh(NODE, f"ls {FILE} 2>/dev/null", ok=range(256)).stdout
            and bed.sh(ASKED, f"{TOMBSTONE} --query --quiet", ok=range(256)).status
        ),
        within_s=60,
    )
    assert boot_id(bed, NODE) == before, "the node was fenced"
