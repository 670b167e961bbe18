# SPDX-License-Identifier: GPL-2.0-or-later
"""Replicas among three storage nodes in two racks (DRBD 8.4): placement, moves, replacement.

On a laboratory of its own: three storage nodes, of which the first two share a rack, and a witness.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.errors import CommandError
from sanctl.lab.bench import replica_changes
from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad, await_healthy, await_writes
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import LabSpec, Witness
from sanctl.lab.measure import kernel_audit
from tests.support import replica_change_steps
from tests.support.laboratory import own_or_new_laboratory
from tests.support.replica_change_steps import (
    CHANGE_S,
    assert_unnoticed,
    begin_change,
    files,
    follow,
)

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1200)]

NAME, OTHER = "three", "third"
RISK = ("--accept", "SAN-RISK-004")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """In place of the session's laboratory, which has two storage nodes."""
    spec = LabSpec(name="testthree", nodes=4, witness=Witness.NODE.value, racks=2)
    yield from own_or_new_laboratory(
        request,
        spec,
        fits=lambda own: (own.nodes, own.racks) == (4, 2),
        options=("--racks", str(spec.racks)),
    )


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture
def load(request: pytest.FixtureRequest, scenario: Scenario) -> Iterator[LedgerLoad]:
    """A device with replicas on n1, which serves it, and n2."""
    cache = getattr(request, "param", "none")
    with replica_change_steps.loaded(scenario, NAME, ("n1", "n2"), cache=cache) as made:
        yield made


def sanctl_json(scenario: Scenario, *words: str, node: str = "n1") -> Any:
    out = scenario.bed.sh(node, f"sanctl {' '.join(words)} --output json", ok=(0, 1)).stdout
    return json.loads(out)["data"]


def replica_nodes(scenario: Scenario, name: str = NAME, node: str = "n4") -> tuple[str, ...]:
    return replica_changes.replica_nodes(scenario.bed, node, name)


def refusal(scenario: Scenario, *words: str) -> str:
    with pytest.raises(CommandError) as caught:
        scenario.sanctl(*words)
    return str(caught.value)


def crash(load: LedgerLoad, lost: str, taker: str) -> None:
    """Cut the power of the node that serves: another takes over, and it comes back."""
    bed = load.bed
    with load.host.watch_ledger(load.run) as states:
        await_writes(load, states)
        bed.cut_power(lost)
        wait_for(
            f"{taker} to serve",
            lambda: collect.active_node(bed, load.device) == taker,
            within_s=120,
        )
        await_writes(load, states)
    assert kernel_audit.violations(collect.kernel_views(bed)) == []
    wait_for(f"the power of {lost}", lambda: bed.has_power(lost), within_s=90)
    await_healthy(bed, taker)


def switch_off_for_good(bed: LabSession, node: str) -> None:
    """Cut a node's power, and again after fencing has switched it on and reported so.

    Cut earlier, the fencing node would switch it on once more.
    """
    bed.cut_power(node)
    wait_for(
        f"{node} to be fenced",
        lambda: f"OFFLINE: [ {node} ]" in bed.sh("n4", "crm_mon -1").stdout,
        within_s=120,
        every_s=0.2,
    )
    wait_for(f"the power of {node}", lambda: bed.has_power(node), within_s=90, every_s=0.2)
    bed.cut_power(node)


def come_back(bed: LabSession, node: str) -> None:
    """Switch a node on; it removes the replicas that were dropped meanwhile."""
    bed.ensure_power(node)
    wait_for(
        f"{node} to remove what it had",
        lambda: (
            not {NAME, OTHER} & {line.split(".")[0] for line in files(bed, node).split()}
            and node in bed.sh("n4", "crm_mon -1 | grep Online:").stdout.split()
        ),
        within_s=240,
        every_s=2.0,
    )


@pytest.mark.quick
def test_replicas_go_to_different_racks_and_it_is_said_why(scenario: Scenario) -> None:
    place = sanctl_json(scenario, "device", "place", "--size", "256M", "--explain")
    verdicts = {each["node"]: each for each in place["verdicts"]}
    assert {node: each["rack"] for node, each in verdicts.items()} == {
        "n1": "r1", "n2": "r1", "n3": "r2",
    }  # fmt: skip
    assert "n3" in place["nodes"] and len(place["nodes"]) == 2
    (passed,) = (each for each in verdicts.values() if not each["chosen"])
    assert passed["reason"].startswith("rack r1 has a replica already, on n")
    assert "another rack" in verdicts["n3"]["reason"] or place["nodes"][0] == "n3"
    scenario.sanctl("device", "create", NAME, "--size", "256M", timeout_s=300)
    try:
        assert "n3" in replica_nodes(scenario)
        scenario.sanctl("device", "replicas", NAME, "1", "--drop", "n3", timeout_s=CHANGE_S)
        (left,) = replica_nodes(scenario)
        # The one that is added by itself goes to the other rack, too.
        scenario.sanctl("device", "replicas", NAME, "2", timeout_s=CHANGE_S)
        assert replica_nodes(scenario) == (left, "n3")
        # Who asks for it gets both in one rack.
        here = {"n1", "n2"} - {left}
        scenario.sanctl(
            "device", "replicas", NAME, "2", "--add", *here, "--drop", "n3", *RISK,
            timeout_s=CHANGE_S,
        )  # fmt: skip
        assert set(replica_nodes(scenario)) == {"n1", "n2"}
    finally:
        scenario.delete(NAME)


def test_a_replica_moves_and_the_device_survives_on_it(
    scenario: Scenario, load: LedgerLoad
) -> None:
    words = ("2", "--add", "n3", "--drop", "n2")
    assert "SAN-RISK-004" in refusal(scenario, "device", "replicas", NAME, *words)
    assert replica_nodes(scenario) == ("n1", "n2")
    assert_unnoticed(replica_changes.measure_change(load, *words, *RISK))
    assert replica_nodes(scenario) == ("n1", "n3")
    assert NAME not in files(scenario.bed, "n2")
    follow(scenario, load, "n1", "n3")
    crash(load, "n1", "n3")


def test_the_replica_that_serves_moves(scenario: Scenario, load: LedgerLoad) -> None:
    words = ("device", "replicas", NAME, "2", "--add", "n3", "--drop", "n1", *RISK)
    with load.host.watch_ledger(load.run) as states:
        await_writes(load, states)
        scenario.sanctl(*words, timeout_s=CHANGE_S)
        await_writes(load, states)
    assert replica_nodes(scenario) == ("n2", "n3")
    assert collect.active_node(scenario.bed, NAME) == "n2"
    assert NAME not in files(scenario.bed, "n1")
    follow(scenario, load, "n2", "n3")


def test_a_node_that_is_off_for_good_is_replaced(scenario: Scenario, load: LedgerLoad) -> None:
    """It served one device and was the standby of another."""
    bed = scenario.bed
    scenario.create(OTHER, "64M", prefer="n2", nodes=["n2", "n1"])
    try:
        switch_off_for_good(bed, "n2")
        wait_for(
            "both devices to be served by n1",
            lambda: all(collect.active_node(bed, name) == "n1" for name in (NAME, OTHER)),
            within_s=120,
        )
        with load.host.watch_ledger(load.run) as states:
            await_writes(load, states)
            scenario.sanctl("node", "replace", "n2", "n3", timeout_s=CHANGE_S)
            await_writes(load, states)
        for name in (NAME, OTHER):
            assert replica_nodes(scenario, name) == ("n1", "n3")
            assert collect.is_in_sync(bed, "n1", name)
        assert kernel_audit.violations(collect.kernel_views(bed)) == []
        assert "nothing to do" in scenario.sanctl("node", "replace", "n2", "n3")
        follow(scenario, load, "n1", "n3")
        # Two of four nodes would be no majority: the old one has to be back, or removed for good.
        come_back(bed, "n2")
        crash(load, "n1", "n3")
    finally:
        bed.ensure_power("n2")
        scenario.delete(OTHER)


def test_the_new_node_dies_and_the_move_goes_elsewhere(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed = scenario.bed
    words = ("device", "replicas", NAME, "2", "--add", "n3", "--drop", "n2", *RISK)
    begin_change(bed, "n1", *words)
    replica_change_steps.await_filling(bed, "n3", NAME)
    switch_off_for_good(bed, "n3")
    try:
        assert collect.active_node(bed, NAME) == "n1"
        with load.host.watch_ledger(load.run) as states:
            await_writes(load, states)
            # What the first command waited for does not come any more.
            bed.sh("n1", "systemctl kill --signal KILL levels-change", ok=range(256))
            scenario.sanctl(
                "device", "replicas", NAME, "2", "--add", "n2", "--drop", "n3", timeout_s=CHANGE_S
            )
            await_writes(load, states)
        assert replica_nodes(scenario) == ("n1", "n2")
        assert collect.is_in_sync(bed, "n1", NAME)
    finally:
        bed.ensure_power("n3")
    come_back(bed, "n3")
    crash(load, "n1", "n2")


@pytest.mark.parametrize("load", ["write-through"], indirect=True)
def test_the_only_good_replica_dies_in_the_middle_of_a_move(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """No node serves the half filled replica: the device waits, then the move goes on."""
    bed = scenario.bed
    words = ("device", "replicas", NAME, "2", "--add", "n3", "--drop", "n2", *RISK)
    begin_change(bed, "n4", *words)
    replica_change_steps.await_filling(bed, "n3", NAME)
    bed.cut_power("n1")
    wait_for(
        "the cluster to miss it",
        lambda: "n1" not in bed.sh("n4", "crm_mon -1 | grep Online:").stdout.split(),
        within_s=120,
    )
    assert not kernel_audit.active_nodes(collect.kernel_views(bed), NAME)
    wait_for("the power of n1", lambda: bed.has_power("n1"), within_s=90)
    wait_for(
        "n1 to serve again",
        lambda: collect.active_node(bed, NAME) == "n1",
        within_s=240,
        every_s=2.0,
    )
    scenario.sanctl(*words, node="n4", timeout_s=CHANGE_S)
    assert replica_nodes(scenario) == ("n1", "n3")
    assert collect.is_in_sync(bed, "n1", NAME)
    assert NAME not in files(bed, "n2")
