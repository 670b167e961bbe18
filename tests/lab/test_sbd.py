# SPDX-License-Identifier: GPL-2.0-or-later
"""SBD in place of power switches, with and without a disk: the watchdog resets a lost node.

The watchdog is softdog, because that is what a laboratory's kernel has.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from sanctl.errors import CommandError
from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, run_sanctl, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.machines import guest_files, lab_state, network_cuts, rollout
from sanctl.lab.machines import requirements as lab_host
from sanctl.lab.machines.spec import LabSpec, Network
from sanctl.lab.measure import kernel_audit, ledger_latency
from sanctl.system.runner import LocalRunner
from tests.support import ledgers, run_recorder

# A command on a node that goes down under it is given up, and its process not waited for.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAME = "sbd0"
OWN_LAB = os.environ.get("SANCTL_TEST_SBD_LAB", "")
RELEASE = os.environ.get("SANCTL_TEST_RELEASE", "trixie")
SETTINGS: dict[str, object] = {
    "sanctl_sbd_watchdog": "softdog",
    # The first is User Mode Linux's own, which does nothing here.
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
    """SBD with a shared disk for its messages, or diskless."""
    return str(request.param)


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest, mode: str) -> Iterator[LabSession]:
    """A laboratory that is rolled out with SBD from the start."""
    lab, began_s = OWN_LAB or f"sbd-{mode}", time.monotonic()
    if lab_state.find(lab) is None:
        lacking = lab_host.check(lab_host.read_host_facts(), LabSpec(name=lab))
        if lacking:
            pytest.fail("no laboratory here: " + "; ".join(map(str, lacking)))
        run_sanctl(
            "lab", "up", "--name", lab, "--release", RELEASE, "--no-rollout",
            "--shared-disk", "8M", timeout_s=1200,
        )  # fmt: skip
    try:
        made = LabSession(lab)
        settings = {**SETTINGS, **MODES[mode]}
        rollout.run(made.lab, arguments=("--extra-vars", json.dumps(settings)))
        await_members_online(made)
        run_recorder.note_boot(request.config, time.monotonic() - began_s)
        yield made
    finally:
        if not OWN_LAB:
            run_sanctl("lab", "destroy", "--name", lab, timeout_s=120)


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.mark.parametrize(
    "mode",
    [pytest.param("disk", marks=pytest.mark.quick), "diskless"],
    indirect=True,
    scope="module",
)
def test_the_cluster_knows_that_nodes_end_themselves(bed: LabSession, mode: str) -> None:
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


@pytest.mark.timeout(300)
def test_another_sbd_is_refused_while_the_cluster_counts_on_this_one(
    bed: LabSession, mode: str
) -> None:
    """A node that starts with the other settings would go on when the others take it for dead."""
    (other,) = {*MODES} - {mode}
    settings = json.dumps({**SETTINGS, **MODES[other]})
    read = "cat /etc/default/sbd; cibadmin --query --scope configuration"
    before = [bed.sh(node.name, read).stdout for node in bed.cluster]
    for arguments in ((), ("--tags", "sbd"), ("--tags", "pacemaker"), ("--limit", "n1")):
        with pytest.raises(CommandError):
            rollout.run(bed.lab, arguments=(*arguments, "--extra-vars", settings))
        # The log's lines are folded where the screen would end.
        said = " ".join((bed.lab.directory / "rollout.log").read_text().split())
        assert "would go on while the others take it for dead" in said
        assert "Corosync runs on n1, n2, n3" in said
    assert [bed.sh(node.name, read).stdout for node in bed.cluster] == before


def start(scenario: Scenario) -> LedgerLoad:
    """Have a host write to a new device that n1 serves."""
    return ledgers.start_on_new_device(scenario, NAME, "128M", rate=50, region_bytes=16 << 20)


def await_takeover(load: LedgerLoad, survivor: str, since_s: float) -> None:
    """Wait until another node serves and the host writes there; no request may have failed."""
    bed = load.bed
    wait_for(
        f"{survivor} to serve",
        lambda: kernel_audit.active_nodes(collect.kernel_views(bed), NAME) == [survivor],
        within_s=120,
        every_s=1.0,
    )
    with load.host.watch_ledger(load.run) as states:
        failover.await_writes(load, states)
    assert kernel_audit.violations(collect.kernel_views(bed)) == []
    pause = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], since_s, time.time())
    print(f"  pause {pause.seconds:.1f} s")
    assert pause.errors == 0


def end(scenario: Scenario, load: LedgerLoad, survivor: str) -> None:
    """Wait until the cluster is healthy, check the ledger, delete the device."""
    wait_for("both in sync", lambda: collect.is_in_sync(load.bed, survivor, NAME), within_s=300)
    failover.await_healthy(load.bed, survivor)
    ledgers.assert_nothing_lost(load)
    scenario.delete(NAME)


@pytest.mark.timeout(900)
def test_a_node_without_quorum_is_reset_and_another_takes_over(scenario: Scenario) -> None:
    bed, load = scenario.bed, start(scenario)
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
    end(scenario, load, survivor)
    assert bed.sh(lost, "cat /proc/sys/kernel/random/boot_id").stdout != before


@pytest.mark.timeout(900)
def test_a_node_without_power_is_taken_for_gone_in_the_end(scenario: Scenario) -> None:
    """No switch says so: what is waited for is the time in which its watchdog would have acted."""
    bed, load = scenario.bed, start(scenario)
    lost = collect.active_node(bed, NAME)
    survivor = load.peer_of(lost)
    cut_s = bed.cut_power(lost)
    await_takeover(load, survivor, cut_s - 1.0)
    bed.ensure_power(lost)
    end(scenario, load, survivor)
