"""Diskless SBD instead of power switches: who loses quorum is reset by its own watchdog.

The watchdog is softdog, because that is what a laboratory's kernel has.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from sanctl.bench import audit, ledger
from sanctl.demo import failover, observe
from sanctl.demo.bed import Bed, run_sanctl, wait_for
from sanctl.demo.host import Host
from sanctl.demo.scene import Scene, await_cluster
from sanctl.lab import cuts, rollout, state
from sanctl.lab import host as lab_host
from sanctl.lab.spec import LabSpec, Network
from sanctl.system.runner import LocalRunner

# A command on a node that goes down under it is given up, and its process not waited for.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAME = "sbd0"
OWN_LAB = os.environ.get("SANCTL_TEST_SBD_LAB", "")
LAB = OWN_LAB or "testsbd"
SETTINGS = {
    "sanctl_sbd_mode": "diskless",
    "sanctl_sbd_watchdog": "softdog",
    # The first is User Mode Linux's own, which nobody serves here.
    "sanctl_sbd_watchdog_device": "/dev/watchdog1",
    "sanctl_accept": ["SAN-CONF-042"],
    # No power switch: nothing but the watchdog may end a node.
    "sanctl_fence_options": {},
    "sanctl_fence_password": "",
}


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """A laboratory that is rolled out with SBD from the start."""
    if state.find(LAB) is None:
        lacking = lab_host.check(lab_host.observe(), LabSpec(name=LAB))
        if lacking:
            pytest.fail("no laboratory here: " + "; ".join(map(str, lacking)))
        run_sanctl("lab", "up", "--name", LAB, "--no-rollout", timeout_s=1200)
    try:
        made = Bed(LAB)
        rollout.run(made.lab, arguments=("--extra-vars", json.dumps(SETTINGS)))
        await_cluster(made)
        yield made
    finally:
        if not OWN_LAB:
            run_sanctl("lab", "destroy", "--name", LAB, timeout_s=120)


@pytest.fixture(scope="module")
def scene(bed: Bed) -> Scene:
    return Scene(bed, Host(bed, "i1"))


def test_the_cluster_knows_that_nodes_end_themselves(bed: Bed) -> None:
    for node in bed.cluster:
        assert bed.sh(node.name, "systemctl is-active sbd.service").stdout.strip() == "active"
    answer = bed.sh("n1", "crm_attribute --type crm_config --name stonith-watchdog-timeout -G -q")
    assert answer.stdout.strip() == "10s"
    failover.await_healthy(bed, "n1")


@pytest.mark.timeout(900)
def test_a_node_without_quorum_is_reset_and_another_takes_over(scene: Scene) -> None:
    bed = scene.bed
    target = scene.create(NAME, "128M", prefer="n1")
    load = scene.start_load(
        NAME, target, scene.host.login(target, scene.portals()), rate=50,
        region_bytes=16 << 20, tell=print, show=lambda _state: None,
    )  # fmt: skip
    lost = observe.active_node(bed, NAME)
    survivor = load.peer_of(lost)
    before = bed.sh(lost, "cat /proc/sys/kernel/random/boot_id").stdout
    alone = frozenset[cuts.Cut]().union(
        *(
            cuts.partition(cable, [[lost], [n.name for n in bed.cluster if n.name != lost]])
            for cable in (Network.SYNC, Network.HEARTBEAT)
        )
    )
    began_s = time.time()
    cuts.change(bed.lab, LocalRunner(), add=alone)
    try:
        wait_for(
            f"{survivor} to serve",
            lambda: audit.active_nodes(observe.views(bed), NAME) == [survivor],
            within_s=120,
            every_s=1.0,
        )
        with load.host.watch_ledger(load.run) as states:
            failover.await_writes(load, states)
        assert audit.violations(observe.views(bed)) == []
    finally:
        cuts.change(bed.lab, LocalRunner(), remove=alone)
    pause = ledger.find_pause(load.host.fetch_log(load.run)[1], began_s, time.time())
    print(f"  pause {pause.seconds:.1f} s")
    assert pause.errors == 0
    wait_for("both in sync", lambda: observe.in_sync(bed, survivor, NAME), within_s=240)
    assert bed.sh(lost, "cat /proc/sys/kernel/random/boot_id").stdout != before
    failover.await_healthy(bed, survivor)
    scene.host.stop_ledger(load.run)
    check = scene.host.check_ledger(load.run)
    assert check["acknowledged"] > 200
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]
    scene.delete(NAME)
