# SPDX-License-Identifier: GPL-2.0-or-later
"""fence_idrac in place of fence_ipmilan, rolled out and back under load.

`fence_idrac` speaks IPMI, too, with options and defaults of its own; one package has both. The
change to it and the change back are made by the playbook, while a host writes.
"""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import rollout
from tests.support import ledgers
from tests.support.steps import (
    assert_no_error,
    assert_not_interrupted,
    await_writes,
    boot_id,
    dead_bmc,
    findings,
)

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "idrac0"
AGENT = "fence_idrac"
# As for a Dell: it would speak IPMI 1.5 otherwise, and waits longer after each command.
OPTIONS = {"lanplus": 1, "method": "onoff", "power_wait": 1, "power_timeout": 10}
BOOT_S, BACK_S = 180.0, 300.0

#: Agent and options of each fencing device.
Devices = dict[str, tuple[str, dict[str, str]]]


def inventory(bed: LabSession) -> dict[str, Any]:
    """The laboratory's, with the other agent for each node."""
    made = rollout.inventory_of(bed.lab)
    for group in made["all"]["children"]["sanctl_nodes"]["children"].values():
        for variables in group["hosts"].values():
            variables["sanctl_fence_agent"] = AGENT
            variables["sanctl_fence_options"] |= OPTIONS
    return made


def devices(bed: LabSession) -> Devices:
    """The fencing devices as they are configured."""
    root = ET.fromstring(bed.sh("n2", "cibadmin --query --scope resources").stdout)
    return {
        each.get("id", ""): (
            each.get("type", ""),
            {p.get("name", ""): p.get("value", "") for p in each.iterfind(".//nvpair")},
        )
        for each in root.iter("primitive")
        if each.get("class") == "stonith"
    }


def running(bed: LabSession) -> dict[str, str]:
    """The agents of the fencing devices that run."""
    text = bed.sh("n2", "crm_mon --output-as=xml").stdout
    return dict(
        re.findall(
            r'<resource id="(fence-\w+)" resource_agent="stonith:(\w+)"'
            r'[^>]* active="true"[^>]* failed="false"',
            text,
        )
    )


def names(bed: LabSession) -> list[str]:
    return sorted(f"fence-{node.name}" for node in bed.cluster)


def succeeds(bed: LabSession, node: str, command: str) -> bool:
    return bed.sh(node, command, timeout_s=90).status == 0


def await_content(bed: LabSession) -> None:
    """Wait until status and doctor find nothing, and each fencing device answers each node."""
    failover.await_healthy(bed, "n1")
    asked = [(node.name, "sanctl doctor") for node in bed.storage]
    asked += [
        (node.name, f"sanctl node fence {target.name} --test")
        for target in bed.cluster
        for node in bed.cluster
        if node != target
    ]
    for node, command in asked:
        wait_for(
            f"{command} on {node} to find nothing wrong",
            partial(succeeds, bed, node, command),
            within_s=120,
            every_s=2.0,
        )


@pytest.fixture(scope="module")
def original(bed: LabSession) -> Iterator[Devices]:
    """What the laboratory's own inventory has made, and makes again whatever happens."""
    made = devices(bed)
    yield made
    if devices(bed) != made:
        rollout.run(bed.lab)


@pytest.fixture(scope="module")
def load(original: Devices, scenario: Scenario) -> Iterator[LedgerLoad]:
    with ledgers.ledger_on_new_device(
        scenario, NAME, "128M", rate=50, region_bytes=32 << 20
    ) as made:
        yield made


@pytest.mark.timeout(900)
def test_another_agent_is_rolled_out_under_load(
    bed: LabSession, original: Devices, load: LedgerLoad
) -> None:
    assert {name: agent for name, (agent, _) in original.items()} == dict.fromkeys(
        names(bed), "fence_ipmilan"
    )
    began_s = time.time()
    assert rollout.run(bed.lab, inventory=inventory(bed)) > 0
    made = devices(bed)
    assert sorted(made) == names(bed)
    for name, (agent, options) in made.items():
        assert agent == AGENT
        reported = {key: options.get(key) for key in OPTIONS}
        assert reported == {key: str(value) for key, value in OPTIONS.items()}
        # Addresses and targets are as before; no option of the other agent alone is left.
        kept = {"ip", "username", "password_script", "pcmk_host_list"}
        assert {k: options.get(k) for k in kept} == {k: original[name][1].get(k) for k in kept}
        assert "login_timeout" not in options
    wait_for(
        "the devices to run",
        lambda: running(bed) == dict.fromkeys(names(bed), AGENT),
        within_s=60,
        every_s=2.0,
    )
    await_content(bed)
    assert_not_interrupted(load, began_s)
    assert rollout.run(bed.lab, inventory=inventory(bed)) == 0


def test_the_doctor_asks_that_agent(bed: LabSession, load: LedgerLoad) -> None:
    with dead_bmc(bed, "n2"):
        reported = findings(bed, "n1", "doctor")
        assert AGENT in reported["SAN-FEN-002 fencing fence-n2"]
        bed.sh("n1", "sanctl node fence n2 --test", timeout_s=60, ok=(1,))
    wait_for(
        "fence-n2 to answer",
        lambda: bed.sh("n1", "sanctl node fence n2 --test", timeout_s=60).status == 0,
        within_s=60,
    )


@pytest.mark.timeout(900)
def test_a_node_without_power_is_fenced_by_it(bed: LabSession, load: LedgerLoad) -> None:
    assert set(running(bed).values()) == {AGENT}
    trial = failover.measure_crash(load)
    assert trial.is_fenced, failover.events_text(trial)
    assert trial.pause.errors == 0
    assert trial.violations == ()
    assert collect.active_node(bed, NAME) == trial.to_node


@pytest.mark.timeout(900)
def test_a_node_is_fenced_by_it_on_request(bed: LabSession, load: LedgerLoad) -> None:
    assert set(running(bed).values()) == {AGENT}
    lost = collect.active_node(bed, NAME)
    survivor = load.peer_of(lost)
    boot, began_s = boot_id(bed, lost), time.time()
    bed.sh(survivor, f"sanctl node fence {lost} --yes --no-drain", timeout_s=300)
    assert (bed.powered_since_s(lost) or 0.0) > began_s
    wait_for(
        f"{NAME} on {survivor}", lambda: collect.active_node(bed, NAME) == survivor, within_s=120
    )
    await_writes(load)
    wait_for(
        f"{lost} to have booted",
        lambda: boot_id(bed, lost) != boot,
        within_s=BOOT_S,
        every_s=1.0,
    )
    wait_for("both in sync", lambda: collect.is_in_sync(bed, survivor, NAME), within_s=BACK_S)
    failover.await_healthy(bed, survivor)
    assert_no_error(load, began_s)


@pytest.mark.timeout(900)
def test_and_back_to_the_first_one(bed: LabSession, original: Devices, load: LedgerLoad) -> None:
    assert set(running(bed).values()) == {AGENT}
    began_s = time.time()
    assert rollout.run(bed.lab) > 0
    assert devices(bed) == original
    wait_for(
        "the devices to run",
        lambda: running(bed) == dict.fromkeys(names(bed), "fence_ipmilan"),
        within_s=60,
        every_s=2.0,
    )
    await_content(bed)
    assert_not_interrupted(load, began_s)
    assert rollout.run(bed.lab) == 0
