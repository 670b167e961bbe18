# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks with a protected write cache: write-through sends no flushes there."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import rollout
from tests.support.steps import kernel_mode

pytestmark = pytest.mark.faults

NAME = "kept0"
PROTECTED = json.dumps({"sanctl_power": "protected"})
SETTLED_S = 120.0


@pytest.fixture
def device(bed: LabSession, scenario: Scenario) -> Iterator[str]:
    rollout.run(bed.lab, arguments=("--extra-vars", PROTECTED))
    scenario.create(NAME, "64M", prefer="n1", cache="write-through")
    yield NAME
    scenario.delete(NAME)


def shown_modes(bed: LabSession) -> set[tuple[str, str | None]]:
    shown = bed.sh("n3", f"sanctl device show {NAME} --output json", timeout_s=90).stdout
    replicas = json.loads(shown)["data"]["replicas"]
    return {(each["cache"]["mode"], each["cache"]["reason"]) for each in replicas}


@pytest.mark.timeout(900)
def test_a_protected_cache_counts_as_a_disk_for_as_long_as_it_is_said_to_be_one(
    bed: LabSession, device: str
) -> None:
    nodes = [node.name for node in bed.storage]
    wait_for(
        "both reported", lambda: shown_modes(bed) == {("write-through", None)}, within_s=SETTLED_S
    )
    assert {kernel_mode(bed, device, node) for node in nodes} == {"none"}
    assert rollout.run(bed.lab) > 0
    # A replica learns of it when it is started.
    for node in nodes:
        bed.sh("n3", f"sanctl node standby {node}", timeout_s=240)
        bed.sh("n3", f"sanctl node online {node}", timeout_s=400)
        wait_for(
            "two replicas", lambda: collect.is_in_sync(bed, nodes[0], device), within_s=SETTLED_S
        )
    wait_for(
        "each write to be stable",
        lambda: {kernel_mode(bed, device, node) for node in nodes} == {"write-through"},
        within_s=SETTLED_S,
    )
    assert shown_modes(bed) == {("write-through", None)}
