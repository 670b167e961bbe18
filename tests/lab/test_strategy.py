# SPDX-License-Identifier: GPL-2.0-or-later
"""Two nodes and the strategies that decide between them, on a laboratory of their own.

It has two storage nodes and a quorum device, and is taken from one strategy to the other while a
host writes. In file order: each test leaves the strategy that the next one needs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import Load, await_healthy
from sanctl.lab.harness.initiator import Host
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.harness.scenario import Scene
from sanctl.lab.machines import lab_state, network, rollout
from sanctl.lab.machines.spec import LabSpec, Network, Witness
from sanctl.lab.measure import audit, ledger_latency
from sanctl.system.runner import LocalRunner
from tests.support.laboratory import laboratory

pytestmark = pytest.mark.faults

NAME = "vol0"
# To notice a hang: other people's work may share the processors. That no device is interrupted is
# seen in what its agents did.
PAUSE_DEADLINE_S = 60.0
OWN_LAB = os.environ.get("SANCTL_TEST_LAB", "")
LINKS = (Network.SYNC, Network.HEARTBEAT)


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """In place of the session's laboratory, which has three nodes."""
    found = lab_state.find(OWN_LAB) if OWN_LAB else None
    is_own = found is not None and found.spec.witness_kind is Witness.QNETD
    spec = LabSpec(name=OWN_LAB if is_own else "testpair", nodes=2, witness=Witness.QNETD.value)
    yield from laboratory(request, spec, is_own=is_own)


@pytest.fixture(scope="module")
def scene(bed: Bed) -> Scene:
    return Scene(bed, Host(bed, "i1"))


@pytest.fixture(scope="module")
def volume(scene: Scene) -> tuple[str, str]:
    """A device of the host: its target's name and its path."""
    target = f"{scene.iqn_prefix()}.{NAME}"
    if not scene.exists(NAME):
        scene.create(NAME, "256M", prefer="n1")
    return target, scene.host.login(target, scene.portals())


@pytest.fixture
def load(scene: Scene, volume: tuple[str, str]) -> Iterator[Load]:
    """A ledger while the test runs; whatever happens, nothing may be lost or refused."""
    made = scene.start_load(
        NAME,
        *volume,
        rate=100,
        region_bytes=32 * 2**20,
        tell=lambda text: print(f"  {text}"),
        show=lambda _state: None,
    )
    yield made
    scene.host.stop_ledger(made.run)
    check = scene.host.check_ledger(made.run)
    print(f"  ledger: {check['acknowledged']} acknowledged, {check['lost']} lost")
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]


def shown(scene: Scene, node: str = "n1") -> dict[str, Any]:
    data = json.loads(scene.sanctl("cluster", "show", "--output", "json", node=node))["data"]
    assert isinstance(data, dict)
    return data


def pause_since(load: Load, began_s: float) -> float:
    pause = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], began_s, time.time())
    print(f"  longest pause {pause.seconds:.2f} s, {pause.errors} errors")
    return pause.seconds


def assert_not_interrupted(load: Load, began_s: float) -> None:
    """No agent has taken the device down or moved it."""
    assert pause_since(load, began_s) <= PAUSE_DEADLINE_S
    log = collect.journals(load.bed, [node.name for node in load.bed.storage], began_s)
    changed = {"start", "promote", "demote", "stop"}
    assert [e.message for e in log if e.device == NAME and e.action in changed] == []


def cut(bed: Bed, node: str, *links: Network) -> None:
    for link in links:
        network.unplug(bed.lab, bed.node(node), link, LocalRunner())


def mend(bed: Bed, node: str, *links: Network) -> None:
    for link in links:
        network.plug(bed.lab, bed.node(node), link, LocalRunner())


def marks(bed: Bed, node: str) -> str:
    """What the cluster has noted of outdated replicas, as a node knows it."""
    return bed.sh(
        node, "cibadmin -Q -o nodes | grep -o 'sanctl-outdated-[^ ]*\" value' | sort -u", ok=(0, 1)
    ).stdout


def await_in_sync(bed: Bed, node: str) -> None:
    wait_for(
        "both replicas in sync",
        lambda: collect.in_sync(bed, node, NAME),
        within_s=180,
        every_s=1.0,
    )


def test_with_a_quorum_device_there_are_three_votes(scene: Scene) -> None:
    data = shown(scene)
    assert data["strategy"] == "node-majority"
    assert data["votes"] == {"expected": 3, "total": 3, "needed": 2}
    assert data["qdevice"]["state"] == "Connected"
    assert [node["has_device_vote"] for node in data["nodes"]] == [True, True]
    wait_for(
        "both links",
        lambda: {link["state"] for link in shown(scene)["links"]} == {"connected"},
        within_s=60,
    )
    await_healthy(scene.bed, "n1")


def test_to_heartbeat_under_load(scene: Scene, load: Load) -> None:
    began_s = time.time()
    print(scene.sanctl("cluster", "strategy", "set", "heartbeat", timeout_s=200))
    for node in ("n1", "n2"):
        data = shown(scene, node)
        assert (data["strategy"], data["counts_by"]) == ("heartbeat", "two-node")
        assert data["votes"] == {"expected": 2, "total": 2, "needed": 1}
        assert [each["file"] for each in data["nodes"]] == ["two-node", "two-node"]
    files = {
        path: {scene.bed.sh(node, f"cat {path}").stdout for node in ("n1", "n2")}
        for path in ("/etc/corosync/corosync.conf", "/etc/sanctl/cluster.toml")
    }
    assert all(len(texts) == 1 for texts in files.values()), files
    assert_not_interrupted(load, began_s)
    assert scene.bed.sh("n1", "systemctl is-active corosync-qdevice", ok=(3, 4)).status
    await_healthy(scene.bed, "n1")


def test_the_sync_link_alone(scene: Scene, load: Load) -> None:
    """The nodes still see each other: the active one goes on, the other is marked, then returns."""
    bed = scene.bed
    began_s = time.time()
    cut(bed, "n2", Network.SYNC)
    try:
        wait_for("the mark", lambda: NAME in marks(bed, "n2"), within_s=60)
        wait_for("writes to go on", lambda: _writes(load), within_s=60)
        assert audit.active_nodes(collect.views(bed), NAME) == ["n1"]
        assert audit.violations(collect.views(bed)) == []
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


def test_all_links(scene: Scene, load: Load) -> None:
    """Nobody answers: whoever wins the fencing serves. The active node's own cables are out."""
    bed = scene.bed
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
        # It boots without seeing anybody, and waits: it neither serves nor fences.
        survivor_s = bed.powered_since_s("n2")
        wait_for("n1 to have booted", lambda: _has_booted(scene, "n1"), within_s=120)
    finally:
        mend(bed, "n1", *LINKS)
    await_in_sync(bed, "n2")
    assert bed.powered_since_s("n2") == survivor_s
    await_healthy(bed, "n2")


def test_back_by_the_rollout_under_load(scene: Scene, load: Load) -> None:
    """The inventory has said node-majority all along."""
    began_s = time.time()
    assert rollout.run(scene.bed.lab) > 0
    assert shown(scene)["votes"] == {"expected": 3, "total": 3, "needed": 2}
    assert_not_interrupted(load, began_s)
    await_healthy(scene.bed, "n1")


def test_a_second_rollout_changes_nothing(bed: Bed) -> None:
    assert rollout.run(bed.lab) == 0


def test_nothing_changes_while_a_node_is_away(scene: Scene) -> None:
    scene.sanctl("node", "standby", "n2", timeout_s=120)
    try:
        done = scene.bed.sh("n1", "sanctl cluster strategy set heartbeat", ok=range(256))
        assert (done.status, "SAN-QUO-002" in done.stderr) == (4, True), done
        assert shown(scene)["counts_by"].startswith("qdevice@")
    finally:
        scene.sanctl("node", "online", "n2", timeout_s=120)


def _writes(load: Load) -> bool:
    with load.host.watch_ledger(load.run) as states:
        seen = next(iter(states))
        return bool(seen["silent_s"] < 0.5 and seen["rate"] > 0)


def _active_on(bed: Bed, node: str) -> bool:
    text = bed.sh(node, audit.SCRIPT, ok=range(256)).stdout
    view = audit.parse_view(text)
    return NAME in view and view[NAME].is_active


def _has_booted(scene: Scene, node: str) -> bool:
    """Asked over the network of the hosts, as no other cable is in."""
    address = scene.bed.node(node).address(Network.ISCSI)
    return not scene.bed.sh(
        scene.host.name, f"timeout 2 bash -c '</dev/tcp/{address}/22'", ok=range(256)
    ).status
