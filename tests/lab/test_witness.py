# SPDX-License-Identifier: GPL-2.0-or-later
"""The third vote under load: from a witness node to a quorum device, and back.

On a laboratory of its own, whose third server is the one or the other: first a member that votes,
then no member and the host of the device. `sanctl node remove` takes it out of the running cluster;
all else is the playbook's. In file order: each test leaves the third
vote that the next one needs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from sanctl.errors import CommandError
from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import rollout
from sanctl.lab.machines.spec import LabSpec, Network, Witness
from tests.support import ledgers
from tests.support.laboratory import own_or_new_laboratory
from tests.support.steps import assert_not_interrupted, await_writes, boot_id

pytestmark = [pytest.mark.faults, pytest.mark.in_order, pytest.mark.timeout(1200)]

NAME = "vote0"
THIRD = "n3"
# Nodes, expected votes, votes there are, votes needed, flags: as corosync-quorumtool shows them.
BY_WITNESS = ("3", "3", "3", "2", "Quorate")
BY_DEVICE = ("2", "3", "3", "2", "Quorate Qdevice")
BY_TWO = ("2", "2", "2", "2", "Quorate")
QUORUM = ("Nodes", "Expected votes", "Total votes", "Quorum", "Flags")
SOON_S = 90.0


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """In place of the session's laboratory, which others need as it is."""
    yield from own_or_new_laboratory(
        request,
        LabSpec(name="testvote", nodes=3),
        fits=lambda own: (own.nodes, own.witness_kind) == (3, Witness.NODE),
    )


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """A ledger through all tests; whatever votes, nothing may be lost or refused."""
    with ledgers.ledger_on_new_device(
        scenario, NAME, "256M", rate=100, region_bytes=32 << 20
    ) as made:
        yield made


def with_a_device(bed: LabSession) -> dict[str, Any]:
    """The laboratory's inventory, with the third server as a quorum device's host."""
    made = rollout.inventory_of(bed.lab)
    children = made["all"]["children"]
    children["sanctl_nodes"]["children"]["sanctl_witness"]["hosts"] = {}
    children["sanctl_qnetd"]["hosts"] = {
        THIRD: {
            "ansible_user": "root",
            "sanctl_qnetd_address": bed.node(THIRD).address(Network.HEARTBEAT),
        }
    }
    return made


def counted(bed: LabSession, node: str) -> tuple[str, ...]:
    """How a node's corosync counts, in the order of QUORUM."""
    text = bed.sh(node, "corosync-quorumtool -s", ok=range(256)).stdout
    reported = dict(re.findall(r"^(\w[\w ]*):\s+(.*?)\s*$", text, re.MULTILINE))
    return tuple(reported.get(key, "") for key in QUORUM)


def await_votes(bed: LabSession, wanted: tuple[str, ...], *nodes: str) -> None:
    """Wait until nodes count so; Pacemaker and the fencing know the same members."""

    def seen(node: str) -> bool:
        reported = counted(bed, node)
        if reported != wanted:
            print(f"  {node}: {reported}")
        return reported == wanted

    for node in nodes:
        wait_for(f"{wanted} on {node}", partial(seen, node), within_s=SOON_S, every_s=2.0)
    members = [f"n{number}" for number in range(1, int(wanted[0]) + 1)]
    cib = bed.sh(nodes[0], "cibadmin --query --scope configuration").stdout
    assert sorted(re.findall(r'<node [^>]*uname="(\w+)"', cib)) == members
    assert sorted(re.findall(r'<primitive [^>]*id="fence-(\w+)"', cib)) == members


def shown(scenario: Scenario, node: str) -> dict[str, Any]:
    data = json.loads(scenario.sanctl("cluster", "show", "--output", "json", node=node))["data"]
    assert isinstance(data, dict)
    return data


def configuration(bed: LabSession) -> dict[str, str]:
    files = "/etc/corosync/corosync.conf /etc/sanctl/cluster.toml"
    return {node.name: bed.sh(node.name, f"cat {files}").stdout for node in bed.cluster}


def boots(bed: LabSession) -> dict[str, str]:
    return {node.name: boot_id(bed, node.name) for node in bed.storage}


def take_out(bed: LabSession) -> None:
    """Take the witness out of the running cluster; while it runs, that is refused."""
    first, *_ = (node.name for node in bed.storage)
    command = f"sanctl node remove {THIRD} --yes --output json"
    refused = bed.sh(first, command, ok=range(256)).stdout
    assert [problem["code"] for problem in json.loads(refused)["problems"]] == ["SAN-NODE-007"]
    bed.sh(THIRD, "systemctl disable --now pacemaker.service corosync.service", timeout_s=180)
    wait_for(
        "the others to see that it has left",
        lambda: {counted(bed, node.name)[0] for node in bed.storage} == {"2"},
        within_s=SOON_S,
    )
    done = json.loads(bed.sh(first, command, timeout_s=180).stdout)["data"]
    assert done == {"name": THIRD, "changed": True}
    again = json.loads(bed.sh(first, command, timeout_s=60).stdout)["data"]
    assert again == {"name": THIRD, "changed": False}
    bed.sh(THIRD, "rm /etc/corosync/corosync.conf /etc/corosync/authkey")


def test_a_witness_node_has_one_of_three_votes(scenario: Scenario, load: LedgerLoad) -> None:
    failover.await_healthy(scenario.bed, "n1")
    await_votes(scenario.bed, BY_WITNESS, "n1", "n2", THIRD)
    data = shown(scenario, "n1")
    assert (data["counts_by"], data["qdevice"]) == ("nodes", None)
    assert data["votes"] == {"expected": 3, "total": 3, "needed": 2}


def test_the_rollout_takes_no_member_out_of_a_running_cluster(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """It stops and names it; the cluster counts as before, and the old inventory still goes."""
    bed, began_s = scenario.bed, time.time()
    before, alive = configuration(bed), boots(bed)
    with pytest.raises(CommandError, match="SAN-LAB-040"):
        rollout.run(bed.lab, inventory=with_a_device(bed))
    messages = " ".join((bed.lab.directory / "rollout.log").read_text(errors="replace").split())
    assert f"{THIRD} is in the running cluster and not in the inventory" in messages
    assert "docs/howto/strategies.md" in messages
    assert configuration(bed) == before
    await_votes(bed, BY_WITNESS, "n1", "n2", THIRD)
    rollout.run(bed.lab)
    failover.await_healthy(bed, "n1")
    assert configuration(bed) == before
    assert boots(bed) == alive
    assert_not_interrupted(load, began_s)


def test_from_a_witness_node_to_a_quorum_device_under_load(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed, began_s = scenario.bed, time.time()
    alive, active = boots(bed), collect.active_node(bed, NAME)
    take_out(bed)
    await_votes(bed, BY_TWO, "n1", "n2")
    assert rollout.run(bed.lab, inventory=with_a_device(bed)) > 0
    await_votes(bed, BY_DEVICE, "n1", "n2")
    address = bed.node(THIRD).address(Network.HEARTBEAT)
    for node in ("n1", "n2"):
        data = shown(scenario, node)
        assert data["counts_by"] == f"qdevice@{address}"
        assert data["qdevice"] == {"host": address, "state": "Connected"}
        assert data["votes"] == {"expected": 3, "total": 3, "needed": 2}
        assert {each["name"]: each["has_device_vote"] for each in data["nodes"]} == {
            "n1": True,
            "n2": True,
        }
    failover.await_healthy(bed, "n1")
    assert collect.active_node(bed, NAME) == active
    assert boots(bed) == alive
    assert_not_interrupted(load, began_s)
    assert rollout.run(bed.lab, inventory=with_a_device(bed)) == 0


def test_a_node_goes_on_with_the_device(scenario: Scenario, load: LedgerLoad) -> None:
    assert counted(scenario.bed, "n1") == BY_DEVICE
    assert_survives(load, THIRD)


def test_back_to_a_witness_node_by_the_rollout_under_load(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed, began_s = scenario.bed, time.time()
    assert counted(bed, "n1") == BY_DEVICE
    alive, active = boots(bed), collect.active_node(bed, NAME)
    assert rollout.run(bed.lab) > 0
    await_votes(bed, BY_WITNESS, "n1", "n2", THIRD)
    for node in ("n1", "n2"):
        data = shown(scenario, node)
        assert (data["counts_by"], data["qdevice"]) == ("nodes", None)
        assert {each["name"]: each["is_member"] for each in data["nodes"]} == {
            "n1": True,
            "n2": True,
            THIRD: True,
        }
        # Inactive, or failed: running it must not be.
        assert bed.sh(node, "systemctl is-active corosync-qdevice", ok=(3, 4)).status
    failover.await_healthy(bed, "n1")
    assert collect.active_node(bed, NAME) == active
    assert boots(bed) == alive
    assert_not_interrupted(load, began_s)
    assert rollout.run(bed.lab) == 0


def test_a_node_goes_on_with_the_witness(scenario: Scenario, load: LedgerLoad) -> None:
    assert counted(scenario.bed, "n1") == BY_WITNESS
    assert_survives(load, THIRD)


def assert_survives(load: LedgerLoad, third: str) -> None:
    """Cut the power of the node that serves: the other and the third vote are enough."""
    bed = load.bed
    before = boot_id(bed, third)
    trial = failover.measure_crash(load)
    assert trial.is_fenced, failover.events_text(trial)
    assert trial.pause.errors == 0
    assert trial.violations == ()
    assert collect.active_node(bed, NAME) == trial.to_node
    assert boot_id(bed, third) == before, "the third vote was lost meanwhile"
    await_writes(load)
