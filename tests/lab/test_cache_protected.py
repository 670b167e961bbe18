# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes whose disks' own caches survive a power cut: write-through costs nothing more there."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.harness.scenario import Scene
from sanctl.lab.machines import rollout
from tests.support.steps import kernel_mode

pytestmark = pytest.mark.faults

NAME = "kept0"
PROTECTED = json.dumps({"sanctl_power": "protected"})
SETTLED_S = 120.0


@pytest.fixture
def device(bed: Bed, scene: Scene) -> Iterator[str]:
    rollout.run(bed.lab, arguments=("--extra-vars", PROTECTED))
    scene.create(NAME, "64M", prefer="n1", cache="write-through")
    yield NAME
    scene.delete(NAME)


def told_modes(bed: Bed) -> set[tuple[str, str | None]]:
    shown = bed.sh("n3", f"sanctl device show {NAME} --output json", timeout_s=90).stdout
    replicas = json.loads(shown)["data"]["replicas"]
    return {(each["cache"]["mode"], each["cache"]["reason"]) for each in replicas}


@pytest.mark.timeout(900)
def test_a_protected_cache_counts_as_a_disk_for_as_long_as_it_is_said_to_be_one(
    bed: Bed, device: str
) -> None:
    nodes = [node.name for node in bed.storage]
    wait_for("both told", lambda: told_modes(bed) == {("write-through", None)}, within_s=SETTLED_S)
    assert {kernel_mode(bed, device, node) for node in nodes} == {"none"}
    assert rollout.run(bed.lab) > 0
    # A replica learns of it when it is started.
    for node in nodes:
        bed.sh("n3", f"sanctl node standby {node}", timeout_s=240)
        bed.sh("n3", f"sanctl node online {node}", timeout_s=400)
        wait_for("two copies", lambda: collect.in_sync(bed, nodes[0], device), within_s=SETTLED_S)
    wait_for(
        "each write to be stable",
        lambda: {kernel_mode(bed, device, node) for node in nodes} == {"write-through"},
        within_s=SETTLED_S,
    )
    assert told_modes(bed) == {("write-through", None)}
