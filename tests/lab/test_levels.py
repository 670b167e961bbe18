# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies come and go under a running ledger, on real kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sanctl.errors import CommandError
from sanctl.lab.bench import replica_changes
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import Load
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scene, await_cluster
from sanctl.lab.measure import audit
from tests.support import level_steps
from tests.support.level_steps import CHANGE_S, assert_unnoticed, begin_change, files

NAME = "lev"
# Where the only good copy loses its power. Without it what the host has not flushed may be in that
# node's RAM and its disks' caches alone, and this ledger flushes nothing.
durable = pytest.mark.parametrize("load", ["write-through"], indirect=True)


@pytest.fixture
def load(request: pytest.FixtureRequest, scene: Scene) -> Iterator[Load]:
    nodes = [node.name for node in scene.bed.storage[:2]]
    with level_steps.loaded(scene, NAME, nodes, cache=getattr(request, "param", "none")) as made:
        yield made


def copies(scene: Scene, node: str = "") -> tuple[str, ...]:
    return replica_changes.copies(scene.bed, node or scene.bed.storage[0].name, NAME)


@pytest.mark.faults
def test_two_one_two_one_two_under_load(scene: Scene, load: Load) -> None:
    first, second = (node.name for node in scene.bed.storage[:2])
    for words in (("1", "--drop", second), ("2", "--add", second)) * 2:
        trial = replica_changes.change(load, *words)
        assert_unnoticed(trial)
        assert collect.active_node(scene.bed, NAME) == first
        if words[0] == "1":
            assert copies(scene) == (first,)
            assert NAME not in files(scene.bed, second)
        else:
            assert copies(scene) == (first, second)
            # From new metadata: everything was marked, whatever was there before.
            assert trial.copied_bytes >= 256 * 2**20 * 0.99
            assert collect.in_sync(scene.bed, first, NAME)


def test_who_serves_can_be_dropped_it_moves_first(scene: Scene, load: Load) -> None:
    first, second = (node.name for node in scene.bed.storage[:2])
    scene.sanctl("device", "replicas", NAME, "1", "--drop", first, timeout_s=CHANGE_S)
    assert copies(scene) == (second,)
    assert collect.active_node(scene.bed, NAME) == second
    assert audit.violations(collect.views(scene.bed)) == []


def test_the_last_copy_cannot_be_dropped(scene: Scene, load: Load) -> None:
    """What a node that is away holds is not known: it is no reason to let the other go."""
    first, second = (node.name for node in scene.bed.storage[:2])
    scene.bed.sh(second, "systemctl stop pacemaker corosync", timeout_s=120)
    try:
        with pytest.raises(CommandError) as caught:
            scene.sanctl("device", "replicas", NAME, "1", "--drop", first, timeout_s=60)
        assert "SAN-REP-001" in str(caught.value)
        assert copies(scene) == (first, second)
        assert collect.active_node(scene.bed, NAME) == first
    finally:
        scene.bed.sh(second, "systemctl start corosync pacemaker", timeout_s=120)


@pytest.mark.faults
def test_a_killed_command_is_finished_or_taken_back(scene: Scene, load: Load) -> None:
    first, second = (node.name for node in scene.bed.storage[:2])
    replica_changes.change(load, "1", "--drop", second)
    begin_change(scene.bed, first, "device", "replicas", NAME, "2", "--add", second)
    level_steps.await_filling(scene.bed, second, NAME)
    scene.bed.sh(first, "systemctl kill --signal KILL levels-change", ok=range(256))
    shown = json.loads(scene.sanctl("device", "show", NAME, "--output", "json"))["data"]
    assert shown["replicas_wanted"] == 2
    taken_back = replica_changes.change(load, "1", "--drop", second)
    assert_unnoticed(taken_back)
    assert copies(scene) == (first,)
    begin_change(scene.bed, first, "device", "replicas", NAME, "2", "--add", second)
    level_steps.await_filling(scene.bed, second, NAME)
    scene.bed.sh(first, "systemctl kill --signal KILL levels-change", ok=range(256))
    assert_unnoticed(replica_changes.change(load, "2"))
    assert copies(scene) == (first, second)


@pytest.mark.faults
@pytest.mark.timeout(1200)
@durable
def test_power_cut_of_the_only_good_copy_while_another_is_filled(scene: Scene, load: Load) -> None:
    """The device waits for it: the half-filled copy is never served."""
    bed = scene.bed
    first, second = (node.name for node in bed.storage[:2])
    replica_changes.change(load, "1", "--drop", second)
    begin_change(bed, first, "device", "replicas", NAME, "2", "--add", second)
    level_steps.await_filling(bed, second, NAME)
    bed.cut_power(first)
    wait_for(
        "the cluster to miss it",
        lambda: f"OFFLINE: [ {first} ]" in bed.sh(second, "crm_mon -1").stdout,
        within_s=120,
    )
    assert not audit.active_nodes(collect.views(bed), NAME)
    if not bed.has_power(first):
        bed.give_power(first)
    wait_for(
        "the device to be served from it again",
        lambda: collect.active_node(bed, NAME) == first,
        within_s=240,
        every_s=2.0,
    )
    scene.sanctl("device", "replicas", NAME, "2", node=second, timeout_s=CHANGE_S)
    assert collect.in_sync(bed, first, NAME)
    assert audit.violations(collect.views(bed)) == []


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_power_cut_of_the_new_copy_while_it_is_filled(scene: Scene, load: Load) -> None:
    bed = scene.bed
    first, second = (node.name for node in bed.storage[:2])
    replica_changes.change(load, "1", "--drop", second)
    begin_change(bed, first, "device", "replicas", NAME, "2", "--add", second)
    level_steps.await_filling(bed, second, NAME)
    bed.cut_power(second)
    if not bed.has_power(second):
        bed.give_power(second)
    # Finished by whoever runs it again, once the node is back.
    wait_for(
        f"{second} to be online",
        lambda: f"{second} " in bed.sh(first, "crm_mon -1 | grep Online:").stdout,
        within_s=240,
        every_s=2.0,
    )
    scene.sanctl("device", "replicas", NAME, "2", node=first, timeout_s=CHANGE_S)
    assert collect.in_sync(bed, first, NAME)


@pytest.mark.faults
@pytest.mark.timeout(1200)
@durable
@pytest.mark.parametrize("victim", [0, 1], ids=["the one that stays", "the one that goes"])
def test_power_cut_while_a_copy_is_dropped(scene: Scene, load: Load, victim: int) -> None:
    bed = scene.bed
    nodes = [node.name for node in bed.storage[:2]]
    third = bed.cluster[-1].name
    begin_change(bed, third, "device", "replicas", NAME, "1", "--drop", nodes[1])
    wait_for(
        "the cluster to know of it",
        lambda: copies(scene, third) == (nodes[0],),
        within_s=120,
        every_s=0.2,
    )
    bed.cut_power(nodes[victim])
    if not bed.has_power(nodes[victim]):
        bed.give_power(nodes[victim])
    wait_for(
        "the device to be served",
        lambda: collect.active_node(bed, NAME) == nodes[0],
        within_s=300,
        every_s=2.0,
    )
    scene.sanctl("device", "replicas", NAME, "1", node=third, timeout_s=CHANGE_S)
    # Of a node that is off nothing is read, which is not the same as nothing being there.
    await_cluster(bed)
    wait_for(
        "the dropped data to be gone",
        lambda: NAME not in files(bed, nodes[1]),
        within_s=240,
        every_s=2.0,
    )
    scene.sanctl("device", "replicas", NAME, "2", node=third, timeout_s=CHANGE_S)
    assert audit.violations(collect.views(bed)) == []
