# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl device replicas`: replicas added, moved and dropped under a running ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sanctl.errors import CommandError
from sanctl.lab.bench import replica_changes
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.measure import kernel_audit
from tests.support import replica_change_steps
from tests.support.replica_change_steps import CHANGE_S, assert_unnoticed, begin_change, files

NAME = "lev"
# For tests in which the only good replica loses its power: with another policy, what the host has
# not flushed may be in that node's RAM and its disks' caches alone, and this ledger flushes
# nothing.
durable = pytest.mark.parametrize("load", ["write-through"], indirect=True)


@pytest.fixture
def load(request: pytest.FixtureRequest, scenario: Scenario) -> Iterator[LedgerLoad]:
    nodes = [node.name for node in scenario.bed.storage[:2]]
    with replica_change_steps.loaded(
        scenario, NAME, nodes, cache=getattr(request, "param", "none")
    ) as made:
        yield made


def replica_nodes(scenario: Scenario, node: str = "") -> tuple[str, ...]:
    return replica_changes.replica_nodes(scenario.bed, node or scenario.bed.storage[0].name, NAME)


@pytest.mark.faults
def test_two_one_two_one_two_under_load(scenario: Scenario, load: LedgerLoad) -> None:
    first, second = (node.name for node in scenario.bed.storage[:2])
    for words in (("1", "--drop", second), ("2", "--add", second)) * 2:
        trial = replica_changes.measure_change(load, *words)
        assert_unnoticed(trial)
        assert collect.active_node(scenario.bed, NAME) == first
        if words[0] == "1":
            assert replica_nodes(scenario) == (first,)
            assert NAME not in files(scenario.bed, second)
        else:
            assert replica_nodes(scenario) == (first, second)
            # From new metadata: everything was marked, whatever was there before.
            assert trial.copied_bytes >= 256 * 2**20 * 0.99
            assert collect.is_in_sync(scenario.bed, first, NAME)


@pytest.mark.quick
def test_dropping_the_active_replica_moves_the_device_first(
    scenario: Scenario, load: LedgerLoad
) -> None:
    first, second = (node.name for node in scenario.bed.storage[:2])
    scenario.sanctl("device", "replicas", NAME, "1", "--drop", first, timeout_s=CHANGE_S)
    assert replica_nodes(scenario) == (second,)
    assert collect.active_node(scenario.bed, NAME) == second
    assert kernel_audit.violations(collect.kernel_views(scenario.bed)) == []


@pytest.mark.faults
def test_the_last_replica_cannot_be_dropped(scenario: Scenario, load: LedgerLoad) -> None:
    """What a node that is away holds is not known: it is no reason to let the other go."""
    first, second = (node.name for node in scenario.bed.storage[:2])
    scenario.bed.sh(second, "systemctl stop pacemaker corosync", timeout_s=120)
    try:
        with pytest.raises(CommandError) as caught:
            scenario.sanctl("device", "replicas", NAME, "1", "--drop", first, timeout_s=60)
        assert "SAN-REP-001" in str(caught.value)
        assert replica_nodes(scenario) == (first, second)
        assert collect.active_node(scenario.bed, NAME) == first
    finally:
        scenario.bed.sh(second, "systemctl start corosync pacemaker", timeout_s=120)


@pytest.mark.faults
def test_a_killed_command_is_finished_or_taken_back(scenario: Scenario, load: LedgerLoad) -> None:
    first, second = (node.name for node in scenario.bed.storage[:2])
    replica_changes.measure_change(load, "1", "--drop", second)
    begin_change(scenario.bed, first, "device", "replicas", NAME, "2", "--add", second)
    replica_change_steps.await_filling(scenario.bed, second, NAME)
    scenario.bed.sh(first, "systemctl kill --signal KILL levels-change", ok=range(256))
    shown = json.loads(scenario.sanctl("device", "show", NAME, "--output", "json"))["data"]
    assert shown["replicas_wanted"] == 2
    taken_back = replica_changes.measure_change(load, "1", "--drop", second)
    assert_unnoticed(taken_back)
    assert replica_nodes(scenario) == (first,)
    begin_change(scenario.bed, first, "device", "replicas", NAME, "2", "--add", second)
    replica_change_steps.await_filling(scenario.bed, second, NAME)
    scenario.bed.sh(first, "systemctl kill --signal KILL levels-change", ok=range(256))
    assert_unnoticed(replica_changes.measure_change(load, "2"))
    assert replica_nodes(scenario) == (first, second)


@pytest.mark.faults
@pytest.mark.timeout(1200)
@durable
def test_power_cut_of_the_only_good_replica_while_another_is_filled(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """The device waits for it: the half-filled replica is never served."""
    bed = scenario.bed
    first, second = (node.name for node in bed.storage[:2])
    replica_changes.measure_change(load, "1", "--drop", second)
    begin_change(bed, first, "device", "replicas", NAME, "2", "--add", second)
    replica_change_steps.await_filling(bed, second, NAME)
    bed.cut_power(first)
    wait_for(
        "the cluster to miss it",
        lambda: f"OFFLINE: [ {first} ]" in bed.sh(second, "crm_mon -1").stdout,
        within_s=120,
    )
    assert not kernel_audit.active_nodes(collect.kernel_views(bed), NAME)
    bed.ensure_power(first)
    wait_for(
        "the device to be served from it again",
        lambda: collect.active_node(bed, NAME) == first,
        within_s=240,
        every_s=2.0,
    )
    scenario.sanctl("device", "replicas", NAME, "2", node=second, timeout_s=CHANGE_S)
    assert collect.is_in_sync(bed, first, NAME)
    assert kernel_audit.violations(collect.kernel_views(bed)) == []


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_power_cut_of_the_new_replica_while_it_is_filled(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed = scenario.bed
    first, second = (node.name for node in bed.storage[:2])
    replica_changes.measure_change(load, "1", "--drop", second)
    begin_change(bed, first, "device", "replicas", NAME, "2", "--add", second)
    replica_change_steps.await_filling(bed, second, NAME)
    bed.cut_power(second)
    bed.ensure_power(second)
    # The change is finished when the command is run again, once the node is back.
    wait_for(
        f"{second} to be online",
        lambda: f"{second} " in bed.sh(first, "crm_mon -1 | grep Online:").stdout,
        within_s=240,
        every_s=2.0,
    )
    scenario.sanctl("device", "replicas", NAME, "2", node=first, timeout_s=CHANGE_S)
    assert collect.is_in_sync(bed, first, NAME)


@pytest.mark.faults
@pytest.mark.timeout(1200)
@durable
@pytest.mark.parametrize("victim", [0, 1], ids=["the one that stays", "the one that goes"])
def test_power_cut_while_a_replica_is_dropped(
    scenario: Scenario, load: LedgerLoad, victim: int
) -> None:
    bed = scenario.bed
    nodes = [node.name for node in bed.storage[:2]]
    third = bed.cluster[-1].name
    begin_change(bed, third, "device", "replicas", NAME, "1", "--drop", nodes[1])
    wait_for(
        "the cluster to know of it",
        lambda: replica_nodes(scenario, third) == (nodes[0],),
        within_s=120,
        every_s=0.2,
    )
    bed.cut_power(nodes[victim])
    bed.ensure_power(nodes[victim])
    wait_for(
        "the device to be served",
        lambda: collect.active_node(bed, NAME) == nodes[0],
        within_s=300,
        every_s=2.0,
    )
    scenario.sanctl("device", "replicas", NAME, "1", node=third, timeout_s=CHANGE_S)
    # Of a node that is off nothing is read, which is not the same as nothing being there.
    await_members_online(bed)
    wait_for(
        "the dropped data to be gone",
        lambda: NAME not in files(bed, nodes[1]),
        within_s=240,
        every_s=2.0,
    )
    scenario.sanctl("device", "replicas", NAME, "2", node=third, timeout_s=CHANGE_S)
    assert kernel_audit.violations(collect.kernel_views(bed)) == []
