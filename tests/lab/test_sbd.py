# SPDX-License-Identifier: GPL-2.0-or-later
"""SBD instead of power switches, without a disk and with one: watchdogs end who has to go.

The watchdog is softdog, because that is what a laboratory's kernel has.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import Load
from sanctl.lab.harness.initiator import Host
from sanctl.lab.harness.lab_session import Bed, run_sanctl, wait_for
from sanctl.lab.harness.scenario import Scene, await_cluster
from sanctl.lab.machines import guest_files, lab_state, network_cuts, rollout
from sanctl.lab.machines import requirements as lab_host
from sanctl.lab.machines.spec import LabSpec, Network
from sanctl.lab.measure import audit, ledger_latency
from sanctl.system.runner import LocalRunner

# A command on a node that goes down under it is given up, and its process not waited for.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAME = "sbd0"
OWN_LAB = os.environ.get("SANCTL_TEST_SBD_LAB", "")
SETTINGS: dict[str, object] = {
    "sanctl_sbd_watchdog": "softdog",
    # The first is User Mode Linux's own, which nobody serves here.
    "sanctl_sbd_watchdog_device": "/dev/watchdog1",
    "sanctl_accept_risks": ["SAN-CONF-042"],
    # No power switch: nothing but the watchdog may end a node.
    "sanctl_fence_options": {},
    "sanctl_fence_password": "",
}
MODES: dict[str, dict[str, object]] = {
    "diskless": {"sanctl_sbd_mode": "diskless"},
    "disk": {"sanctl_sbd_mode": "disk", "sanctl_sbd_devices": [guest_files.SHARED_DEVICE]},
}


@pytest.fixture(scope="module", params=sorted(MODES))
def mode(request: pytest.FixtureRequest) -> str:
    """Whether a death sentence is also written to a disk."""
    return str(request.param)


@pytest.fixture(scope="module")
def bed(mode: str) -> Iterator[Bed]:
    """A laboratory that is rolled out with SBD from the start."""
    lab = OWN_LAB or f"sbd-{mode}"
    if lab_state.find(lab) is None:
        lacking = lab_host.check(lab_host.observe(), LabSpec(name=lab))
        if lacking:
            pytest.fail("no laboratory here: " + "; ".join(map(str, lacking)))
        run_sanctl(
            "lab", "up", "--name", lab, "--no-rollout", "--shared-disk", "8M", timeout_s=1200
        )
    try:
        made = Bed(lab)
        settings = {**SETTINGS, **MODES[mode]}
        rollout.run(made.lab, arguments=("--extra-vars", json.dumps(settings)))
        await_cluster(made)
        yield made
    finally:
        if not OWN_LAB:
            run_sanctl("lab", "destroy", "--name", lab, timeout_s=120)


@pytest.fixture(scope="module")
def scene(bed: Bed) -> Scene:
    return Scene(bed, Host(bed, "i1"))


def test_the_cluster_knows_that_nodes_end_themselves(bed: Bed, mode: str) -> None:
    for node in bed.cluster:
        assert bed.sh(node.name, "systemctl is-active sbd.service").stdout.strip() == "active"
    if mode == "disk":
        listed = bed.sh("n1", f"sbd -d {guest_files.SHARED_DEVICE} list").stdout.split()
        assert {node.name for node in bed.cluster} <= {*listed}
        assert "fence-sbd" in bed.sh("n1", "crm_resource --list").stdout
    else:
        wait = bed.sh("n1", "crm_attribute --type crm_config --name stonith-watchdog-timeout -G -q")
        assert wait.stdout.strip() == "10s"
    failover.await_healthy(bed, "n1")


def start(scene: Scene) -> Load:
    """Have a host write to a new device that n1 serves."""
    target = scene.create(NAME, "128M", prefer="n1")
    return scene.start_load(
        NAME, target, scene.host.login(target, scene.portals()), rate=50,
        region_bytes=16 << 20, tell=print, show=lambda _state: None,
    )  # fmt: skip


def await_takeover(load: Load, survivor: str, since_s: float) -> None:
    """Wait until another node serves and the host writes there; no request may have failed."""
    bed = load.bed
    wait_for(
        f"{survivor} to serve",
        lambda: audit.active_nodes(collect.views(bed), NAME) == [survivor],
        within_s=120,
        every_s=1.0,
    )
    with load.host.watch_ledger(load.run) as states:
        failover.await_writes(load, states)
    assert audit.violations(collect.views(bed)) == []
    pause = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], since_s, time.time())
    print(f"  pause {pause.seconds:.1f} s")
    assert pause.errors == 0


def end(scene: Scene, load: Load, survivor: str) -> None:
    """Wait until all is whole again, and look whether a write is missing."""
    wait_for("both in sync", lambda: collect.in_sync(load.bed, survivor, NAME), within_s=300)
    failover.await_healthy(load.bed, survivor)
    scene.host.stop_ledger(load.run)
    check = scene.host.check_ledger(load.run)
    assert check["acknowledged"] > 200
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]
    scene.delete(NAME)


@pytest.mark.timeout(900)
def test_a_node_without_quorum_is_reset_and_another_takes_over(scene: Scene) -> None:
    bed, load = scene.bed, start(scene)
    lost = collect.active_node(bed, NAME)
    survivor = load.peer_of(lost)
    before = bed.sh(lost, "cat /proc/sys/kernel/random/boot_id").stdout
    alone = frozenset[network_cuts.Cut]().union(
        *(
            network_cuts.partition(cable, [[lost], [n.name for n in bed.cluster if n.name != lost]])
            for cable in (Network.SYNC, Network.HEARTBEAT)
        )
    )
    began_s = time.time()
    network_cuts.change(bed.lab, LocalRunner(), add=alone)
    try:
        await_takeover(load, survivor, began_s)
    finally:
        network_cuts.change(bed.lab, LocalRunner(), remove=alone)
    end(scene, load, survivor)
    assert bed.sh(lost, "cat /proc/sys/kernel/random/boot_id").stdout != before


@pytest.mark.timeout(900)
def test_a_node_without_power_is_taken_for_gone_in_the_end(scene: Scene) -> None:
    """No switch says so: what is waited for is the time in which its watchdog would have acted."""
    bed, load = scene.bed, start(scene)
    lost = collect.active_node(bed, NAME)
    survivor = load.peer_of(lost)
    cut_s = bed.cut_power(lost)
    await_takeover(load, survivor, cut_s - 1.0)
    bed.give_power(lost)
    end(scene, load, survivor)
