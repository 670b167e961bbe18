# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl cluster strategy` with two nodes and a quorum device: changed under load, links cut.

It has two storage nodes and a quorum device, and is taken from one strategy to the other while a
host writes. In file order: each test leaves the strategy that the next one needs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad, await_healthy
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import network, rollout
from sanctl.lab.machines.spec import LabSpec, Network, Witness
from sanctl.lab.measure import kernel_audit, ledger_latency
from sanctl.system.runner import LocalRunner
from tests.support import ledgers
from tests.support.laboratory import own_or_new_laboratory
from tests.support.steps import assert_not_interrupted

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "vol0"
LINKS = (Network.SYNC, Network.HEARTBEAT)


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """A laboratory of two nodes and a quorum device, in place of the shared one."""
    spec = LabSpec(name="testpair", nodes=2, witness=Witness.QNETD.value)
    yield from own_or_new_laboratory(
        request, spec, fits=lambda own: own.witness_kind is Witness.QNETD
    )


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def volume(scenario: Scenario) -> tuple[str, str]:
    """A device of the host: its target's name and its path."""
    target = f"{scenario.iqn_prefix()}.{NAME}"
    if not scenario.exists(NAME):
        scenario.create(NAME, "256M", prefer="n1")
    return target, scenario.host.login(target, scenario.portals())


@pytest.fixture
def load(scenario: Scenario, volume: tuple[str, str]) -> Iterator[LedgerLoad]:
    """A ledger while the test runs; whatever happens, nothing may be lost or refused."""
    made = ledgers.start(scenario, NAME, *volume, rate=100, region_bytes=32 * 2**20)
    yield made
    ledgers.assert_nothing_lost(made, more_than=0)


def shown(scenario: Scenario, node: str = "n1") -> dict[str, Any]:
    data = json.loads(scenario.sanctl("cluster", "show", "--output", "json", node=node))["data"]
    assert isinstance(data, dict)
    return data


def pause_since(load: LedgerLoad, began_s: float) -> float:
    pause = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], began_s, time.time())
    print(f"  longest pause {pause.seconds:.2f} s, {pause.errors} errors")
    return pause.seconds


def cut(bed: LabSession, node: str, *links: Network) -> None:
    for link in links:
        network.unplug(bed.lab, bed.node(node), link, LocalRunner())


def mend(bed: LabSession, node: str, *links: Network) -> None:
    for link in links:
        network.plug(bed.lab, bed.node(node), link, LocalRunner())


def marks(bed: LabSession, node: str) -> str:
    """What the cluster has noted of outdated replicas, as a node knows it."""
    return bed.sh(
        node,
        "cibadmin -Q -o constraints | grep -o 'id=\"sanctl-outdated-[^ \"]*' | sort -u",
        ok=(0, 1),
    ).stdout


def await_in_sync(bed: LabSession, node: str) -> None:
    wait_for(
        "both replicas in sync",
        lambda: collect.is_in_sync(bed, node, NAME),
        within_s=180,
        every_s=1.0,
    )


def test_with_a_quorum_device_there_are_three_votes(scenario: Scenario) -> None:
    data = shown(scenario)
    assert data["strategy"] == "node-majority"
    assert data["votes"] == {"expected": 3, "total": 3, "needed": 2}
    assert data["qdevice"]["state"] == "Connected"
    assert [node["has_device_vote"] for node in data["nodes"]] == [True, True]
    wait_for(
        "both links",
        lambda: {link["state"] for link in shown(scenario)["links"]} == {"connected"},
        within_s=60,
    )
    await_healthy(scenario.bed, "n1")


def test_to_heartbeat_under_load(scenario: Scenario, load: LedgerLoad) -> None:
    began_s = time.time()
    print(scenario.sanctl("cluster", "strategy", "set", "heartbeat", timeout_s=200))
    for node in ("n1", "n2"):
        data = shown(scenario, node)
        assert (data["strategy"], data["counts_by"]) == ("heartbeat", "two-node")
        assert data["votes"] == {"expected": 2, "total": 2, "needed": 1}
        assert [each["file"] for each in data["nodes"]] == ["two-node", "two-node"]
    files = {
        path: {scenario.bed.sh(node, f"cat {path}").stdout for node in ("n1", "n2")}
        for path in ("/etc/corosync/corosync.conf", "/etc/sanctl/cluster.toml")
    }
    assert all(len(texts) == 1 for texts in files.values()), files
    assert_not_interrupted(load, began_s)
    assert scenario.bed.sh("n1", "systemctl is-active corosync-qdevice", ok=(3, 4)).status
    await_healthy(scenario.bed, "n1")


def test_the_sync_link_alone(scenario: Scenario, load: LedgerLoad) -> None:
    """The nodes still see each other: the active one goes on, the other is marked, then returns."""
    bed = scenario.bed
    began_s = time.time()
    cut(bed, "n2", Network.SYNC)
    try:
        wait_for("the mark", lambda: NAME in marks(bed, "n2"), within_s=60)
        wait_for("writes to go on", lambda: _writes(load), within_s=60)
        assert kernel_audit.active_nodes(collect.kernel_views(bed), NAME) == ["n1"]
        assert kernel_audit.violations(collect.kernel_views(bed)) == []
        refused = bed.sh("n1", f"sanctl device move {NAME} --to n2", ok=range(256))
        assert refused.status == 4, refused
    finally:
        mend(bed, "n2", Network.SYNC)
    pause_since(load, began_s)
    await_in_sync(bed, "n1")
    wait_for("the mark to be gone", lambda: NAME not in marks(bed, "n1"), within_s=60)
    log = collect.journals(bed, ["n1"], began_s)
    resyncs = [e.message for e in log if "Began resync as SyncSource" in e.message]
    print(f"  {resyncs}")
    assert resyncs
    await_healthy(bed, "n1")


def test_all_links(scenario: Scenario, load: LedgerLoad) -> None:
    """Neither node answers the other; the winner of the fencing race serves: n2, as n1 is cut."""
    bed = scenario.bed
    assert collect.active_node(bed, NAME) == "n1"
    before_s = bed.powered_since_s("n1") or 0.0
    began_s = time.time()
    cut(bed, "n1", *LINKS)
    try:
        wait_for(
            "n1 to be fenced", lambda: (bed.powered_since_s("n1") or 0) > before_s, within_s=90
        )
        wait_for("n2 to serve", lambda: _active_on(bed, "n2"), within_s=60)
        wait_for("writes to go on", lambda: _writes(load), within_s=60)
        pause_since(load, began_s)
        assert NAME in marks(bed, "n2")
        # n1 boots without seeing n2, and waits: it neither serves nor fences.
        survivor_s = bed.powered_since_s("n2")
        wait_for("n1 to have booted", lambda: _has_booted(scenario, "n1"), within_s=120)
    finally:
        mend(bed, "n1", *LINKS)
    await_in_sync(bed, "n2")
    assert bed.powered_since_s("n2") == survivor_s
    await_healthy(bed, "n2")


def test_back_by_the_rollout_under_load(scenario: Scenario, load: LedgerLoad) -> None:
    """The inventory has said node-majority all along."""
    began_s = time.time()
    assert rollout.run(scenario.bed.lab) > 0
    assert shown(scenario)["votes"] == {"expected": 3, "total": 3, "needed": 2}
    assert_not_interrupted(load, began_s)
    await_healthy(scenario.bed, "n1")


def test_a_second_rollout_changes_nothing(bed: LabSession) -> None:
    assert rollout.run(bed.lab) == 0


def test_nothing_changes_while_a_node_is_away(scenario: Scenario) -> None:
    scenario.sanctl("node", "standby", "n2", timeout_s=120)
    try:
        done = scenario.bed.sh("n1", "sanctl cluster strategy set heartbeat", ok=range(256))
        assert (done.status, "SAN-QUO-002" in done.stderr) == (4, True), done
        assert shown(scenario)["counts_by"].startswith("qdevice@")
    finally:
        scenario.sanctl("node", "online", "n2", timeout_s=120)


def _writes(load: LedgerLoad) -> bool:
    with load.host.watch_ledger(load.run) as states:
        seen = next(iter(states))
        return bool(seen["silent_s"] < 0.5 and seen["rate"] > 0)


def _active_on(bed: LabSession, node: str) -> bool:
    text = bed.sh(node, kernel_audit.SCRIPT, ok=range(256)).stdout
    view = kernel_audit.parse_view(text)
    return NAME in view and view[NAME].is_active


def _has_booted(scenario: Scenario, node: str) -> bool:
    """Asked over the network of the hosts, as no other cable is in."""
    address = scenario.bed.node(node).address(Network.ISCSI)
    return not scenario.bed.sh(
        scenario.host.name, f"timeout 2 bash -c '</dev/tcp/{address}/22'", ok=range(256)
    ).status
