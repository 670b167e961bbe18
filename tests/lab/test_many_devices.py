# SPDX-License-Identifier: GPL-2.0-or-later
"""A node that serves several devices loses power: all fail over, and Pacemaker has little to do.

Handlers of several devices mark the lost node in changes of the CIB that they share, and none of
these changes has Pacemaker elect its DC anew or write every attribute again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.measure import kernel_audit
from tests.support import held_turns

LOST, SURVIVOR = "n2", "n1"
_TWO_MONITORS_S = 25.0
#: Texts of pacemaker-attrd and pacemaker-controld 3.0, after a change that they do not trust.
_REWRITES = "Updating all attributes after|Populating nodes and starting an election after"


def served_by(bed: LabSession, node: str, names: tuple[str, ...]) -> bool:
    views = collect.kernel_views(bed)
    return all(kernel_audit.active_nodes(views, name) == [node] for name in names)


def are_whole(bed: LabSession, names: tuple[str, ...]) -> bool:
    """Whether all replicas are in sync, and none is marked as outdated."""
    cib = bed.sh(SURVIVOR, "cibadmin --query").stdout
    return not re.search(r'<rsc_location id="sanctl-outdated-[^"]*[.]', cib) and all(
        collect.is_in_sync(bed, SURVIVOR, name) for name in names
    )


def boot_of(bed: LabSession, node: str) -> str:
    return bed.sh(node, "cat /proc/sys/kernel/random/boot_id").stdout


@pytest.fixture
def names(scenario: Scenario, request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    made = tuple(f"many{number}" for number in range(request.param))
    await_members_online(scenario.bed)
    scenario.sanctl(
        "device", "create", *made, "--size", "32M", "--replicas", "2",
        "--nodes", f"{SURVIVOR},{LOST}", "--prefer", LOST, timeout_s=400,
    )  # fmt: skip
    for name in made:
        if collect.active_node(scenario.bed, name) != LOST:
            scenario.sanctl("device", "move", name, "--to", LOST, timeout_s=120)
    yield made
    for name in made:
        scenario.sanctl("device", "delete", name, "--yes", "--accept", "SAN-DEV-023", timeout_s=300)


def test_fencing_devices_of_storage_nodes_run_on_the_witness(scenario: Scenario) -> None:
    """One that is started in a failover holds up all promotions that come after it."""
    bed = scenario.bed
    storage = {node.name for node in bed.storage}
    witnesses = [node.name for node in bed.cluster if node.name not in storage]
    if not witnesses:
        pytest.skip("this laboratory has no witness node")
    await_members_online(bed)
    for name in storage:
        found = bed.sh(SURVIVOR, f"crm_resource --resource fence-{name} --locate").stdout
        assert found.rstrip().endswith(f": {witnesses[0]}")


def test_daemons_of_pacemaker_go_before_the_actions_they_start(scenario: Scenario) -> None:
    for node in scenario.bed.storage:
        nice = scenario.bed.sh(node.name, "ps -o ni= -C pacemaker-based,pacemaker-controld").stdout
        assert nice.split() == ["-10", "-10"]
        # What accepts actions goes with them; each action has the value of its client.
        pid = scenario.bed.sh(
            node.name, "systemctl show -P MainPID sanctl-actions.service"
        ).stdout.strip()
        assert scenario.bed.sh(node.name, f"ps -o ni= -p {pid}").stdout.split() == ["-10"]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("names", [4, pytest.param(12, marks=pytest.mark.faults)], indirect=True)
def test_all_devices_of_a_lost_node_are_served_by_the_other(
    scenario: Scenario, names: tuple[str, ...]
) -> None:
    bed = scenario.bed
    others = [node.name for node in bed.cluster if node.name != LOST]
    wait_for("all in sync", lambda: are_whole(bed, names), within_s=120)
    boots = {node: boot_of(bed, node) for node in others}
    began_s = bed.cut_power(LOST)
    wait_for(
        f"{SURVIVOR} to serve all",
        lambda: served_by(bed, SURVIVOR, names),
        within_s=150 * len(names),
    )
    since = f"journalctl -q -o cat --since=@{began_s - 1:.3f}"
    changes = f"{since} SANCTL_ACTION=mark SANCTL_STEP=set"
    shared = bed.sh(SURVIVOR, changes).stdout.splitlines()
    print("\n".join(f"  {line}" for line in shared))
    marked = {name for line in shared for name in re.findall(r"\bmany\d+", line)}
    assert marked == set(names)
    assert len(shared) <= len(names)
    for node in others:
        rewrites = bed.sh(node, f"{since} | grep -E '{_REWRITES}' | grep cibadmin", ok=(0, 1))
        assert rewrites.stdout == ""
    bed.ensure_power(LOST)
    wait_for("all whole", lambda: are_whole(bed, names), within_s=300, every_s=2.0)
    # Each was marked by the failover: a resync has nothing to add.
    assert bed.sh(SURVIVOR, changes).stdout.splitlines() == shared
    assert {node: boot_of(bed, node) for node in others} == boots
    assert served_by(bed, SURVIVOR, names)


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("names", [1], indirect=True)
def test_a_start_that_waits_for_its_turn_makes_way_for_a_failover(
    scenario: Scenario, names: tuple[str, ...]
) -> None:
    """All turns of a node are taken; its start ends when a node is lost, and is made again."""
    bed = scenario.bed
    (name,) = names
    other = bed.cluster[-1].name
    if other in {LOST, SURVIVOR}:
        pytest.skip("this laboratory has no third node, which can be lost without the device's")
    wait_for("all in sync", lambda: are_whole(bed, names), within_s=120)
    try:
        with held_turns.away(scenario, SURVIVOR, held_turns.STARTS) as journal:
            held_turns.end_standby(bed, SURVIVOR)
            wait_for(
                "the start to wait",
                lambda: journal.has(f"{name}: start: waits for its turn"),
                within_s=60,
            )
            bed.cut_power(other)
            wait_for("the start to end", lambda: journal.has("SAN-AGENT-017"), within_s=30)
            assert not journal.has(f"{name}: start: goes on")
            assert served_by(bed, LOST, names)
    finally:
        bed.ensure_power(other)
    # By itself: the pool agent has the failure cleaned up.
    wait_for("the replica in sync", lambda: are_whole(bed, names), within_s=180, every_s=2.0)
    assert served_by(bed, LOST, names)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("names", [1], indirect=True)
def test_a_start_without_a_turn_leaves_its_connection_to_the_monitor(
    scenario: Scenario, names: tuple[str, ...]
) -> None:
    """So that the transition goes on; the monitor connects when others have begun their resyncs."""
    bed = scenario.bed
    (name,) = names
    wait_for("all in sync", lambda: are_whole(bed, names), within_s=120)
    with held_turns.away(scenario, SURVIVOR, held_turns.CONNECT) as journal:
        await_standby_without_contact(bed, name, journal)
        time.sleep(_TWO_MONITORS_S)
        assert not collect.is_in_sync(bed, SURVIVOR, name), "it has connected without a turn"
        assert served_by(bed, LOST, names)
        told = said_of_replicas(bed)
        assert len(told) == 2, told
        for text in told:
            assert f"the one on {SURVIVOR} waits for its turn to connect" in text
            assert "wait: few connect at a time" in text
    wait_for("the replica in sync", lambda: are_whole(bed, names), within_s=180, every_s=2.0)
    assert journal.has("connecting: DRBD had dropped")
    assert served_by(bed, LOST, names)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("names", [1], indirect=True)
def test_in_maintenance_status_says_how_to_connect_a_replica_that_waits(
    scenario: Scenario, names: tuple[str, ...]
) -> None:
    """No monitor runs then, and none connects it."""
    bed = scenario.bed
    (name,) = names
    wait_for("all in sync", lambda: are_whole(bed, names), within_s=120)
    try:
        with held_turns.away(scenario, SURVIVOR, held_turns.CONNECT) as journal:
            await_standby_without_contact(bed, name, journal)
            bed.sh(SURVIVOR, "crm_attribute --name maintenance-mode --update true")
            time.sleep(_TWO_MONITORS_S)  # Those that had begun end before the turn is free.
        time.sleep(_TWO_MONITORS_S)
        assert not collect.is_in_sync(bed, SURVIVOR, name)
        told = said_of_replicas(bed)
        assert len(told) == 2, told
        for text in told:
            assert "the maintenance of the cluster ends" in text
            assert f"'drbdadm adjust {name}' on {SURVIVOR}" in text
        bed.sh(SURVIVOR, f"drbdadm adjust {name}")
        wait_for(
            "the replica in sync", lambda: collect.is_in_sync(bed, SURVIVOR, name), within_s=180
        )
        assert served_by(bed, LOST, names)
    finally:
        bed.sh(SURVIVOR, "crm_attribute --name maintenance-mode --delete")
    wait_for("the replica whole", lambda: are_whole(bed, names), within_s=180, every_s=2.0)
    assert served_by(bed, LOST, names)


def said_of_replicas(bed: LabSession) -> list[str]:
    """What status says, and what to do, of replicas that are not connected."""
    found = json.loads(bed.sh(LOST, "sanctl status --output json", ok=(0, 1)).stdout)
    return [
        f"{each['what']}; {each['do']}"
        for each in found["data"]["findings"]
        if each["code"] == "SAN-HLT-035"
    ]


def await_standby_without_contact(
    bed: LabSession, name: str, journal: held_turns.NodeJournal
) -> None:
    held_turns.end_standby(bed, SURVIVOR)
    wait_for(
        "the replica to be a standby",
        lambda: (
            journal.has("not connected yet: many others are")
            and journal.has(f"{name}: start: standby")
        ),
        within_s=90,
    )
