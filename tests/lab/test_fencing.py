# SPDX-License-Identifier: GPL-2.0-or-later
"""Fencing when a node is cut off: which node serves, freezes, reboots, and comes back.

One device through all of them, in file order; a ledger runs on it the whole time, so that what is
checked at the end has been through everything.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import kernel_audit, ledger_latency
from sanctl.plan.failover.frozen_io_reboot import REBOOT_AFTER_S
from tests.support import ledgers
from tests.support.steps import (
    assert_no_error,
    await_idle,
    await_writes,
    boot_id,
    dead_bmc,
    findings,
    reach_counts,
    unplugged,
)

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "fen0"
# Looking, dampening, Pacemaker, and a move; on a machine that does other things too.
LEAVE_DEADLINE_S = 60.0
# Until every node has noticed a cut cable.
NOTICE_DEADLINE_S = 120.0
# POST, boot and the start of the cluster; then a resync.
BOOT_DEADLINE_S = 180.0
RETURN_DEADLINE_S = 300.0


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    with ledgers.ledger_on_new_device(
        scenario, NAME, "256M", rate=50, region_bytes=32 << 20
    ) as made:
        yield made


def await_silence(load: LedgerLoad, *, within_s: float) -> None:
    """Wait until a host's write has been under way for longer than any takes."""
    deadline = time.monotonic() + within_s
    with load.host.watch_ledger(load.run) as states:
        for seen in states:
            if seen["silent_s"] > 3:
                return
            assert time.monotonic() < deadline, seen


def agent_events(bed: LabSession, since_s: float, wanted: str) -> list[str]:
    """Return the nodes whose agents logged a line, in the order of time."""
    log = collect.journals(bed, [node.name for node in bed.storage], since_s)
    return [
        e.node
        for e in sorted(log, key=lambda entry: entry.at_s)
        if f"{NAME}: {wanted}" in e.message
    ]


def stays(look: Callable[[], bool], until: Callable[[], bool], *, within_s: float) -> None:
    """Check that a condition holds at every look until an event."""
    deadline = time.monotonic() + within_s
    while not until():
        assert look()
        assert time.monotonic() < deadline
        time.sleep(1.0)


def test_a_device_leaves_a_node_that_hosts_cannot_reach_once(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed, began_s = scenario.bed, time.time()
    sessions = load.sessions()
    wait_for(
        "both nodes to reach", lambda: reach_counts(bed, "n3") == {"n1": 1, "n2": 1}, within_s=30
    )
    with unplugged(bed, "n1", Network.ISCSI):
        wait_for(
            f"{NAME} on n2",
            lambda: collect.active_node(bed, NAME) == "n2",
            within_s=LEAVE_DEADLINE_S,
        )
        await_writes(load)
        assert "SAN-HLT-021 node n1" in findings(bed, "n2", "status")
    wait_for("n1 to reach again", lambda: reach_counts(bed, "n3").get("n1") == 1, within_s=60)
    await_idle(bed, "n3")
    assert collect.active_node(bed, NAME) == "n2"  # n1 is preferred, and does not pull
    assert agent_events(bed, began_s, "promote: serving") == ["n2"]
    wait_for("the session to n1", lambda: len(load.sessions()) == len(sessions), within_s=60)
    pauses = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], began_s, time.time())
    print(f"  pause {pauses.seconds:.1f} s")
    assert pauses.errors == 0


def test_nothing_moves_when_no_node_is_reached(scenario: Scenario, load: LedgerLoad) -> None:
    bed, began_s = scenario.bed, time.time()
    with unplugged(bed, "i1", Network.ISCSI):
        wait_for(
            "no node to reach the host",
            lambda: reach_counts(bed, "n3") == {"n1": 0, "n2": 0},
            within_s=60,
        )
        await_idle(bed, "n3")
        assert collect.active_node(bed, NAME) == "n2"
    await_writes(load, within_s=90)
    wait_for(
        "both nodes to reach", lambda: reach_counts(bed, "n3") == {"n1": 1, "n2": 1}, within_s=60
    )
    await_idle(bed, "n3")
    assert agent_events(bed, began_s, "promote: serving") == []


@pytest.mark.quick
def test_the_doctor_and_a_test_see_a_dead_bmc_before_it_is_needed(scenario: Scenario) -> None:
    bed = scenario.bed
    assert bed.sh("n1", "sanctl node fence n2 --test").status == 0
    with dead_bmc(bed, "n2"):
        assert "SAN-FEN-002 fencing fence-n2" in findings(bed, "n1", "doctor")
        assert bed.sh("n1", "sanctl node fence n2 --test", timeout_s=60, ok=(1,)).status == 1
    wait_for("fence-n2 to answer", lambda: _test(bed, "n1", "n2"), within_s=60)


def test_a_standby_that_cannot_be_fenced_never_costs_the_node_that_serves(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """The active node has quorum: it waits, frozen, for longer than one without would."""
    bed, began_s = scenario.bed, time.time()
    active = collect.active_node(bed, NAME)
    standby = load.peer_of(active)
    boot = bed.sh(active, "cat /proc/sys/kernel/random/boot_id").stdout
    with dead_bmc(bed, standby), unplugged(bed, standby, Network.SYNC, Network.HEARTBEAT):
        wait_for("frozen I/O", lambda: is_frozen(bed, active), within_s=NOTICE_DEADLINE_S)
        wait_for(
            "status to tell",
            lambda: "SAN-HLT-036 device fen0" in findings(bed, "n3", "status"),
            within_s=NOTICE_DEADLINE_S,
        )
        frozen_s = time.time()
        stays(
            lambda: (
                kernel_audit.active_nodes(collect.kernel_views(bed), NAME) == [active]
                and is_frozen(bed, active)
            ),
            lambda: time.time() - frozen_s > REBOOT_AFTER_S + 10,
            within_s=REBOOT_AFTER_S * 2,
        )
    await_writes(load, within_s=120)
    assert bed.sh(active, "cat /proc/sys/kernel/random/boot_id").stdout == boot
    # With its BMC back the standby may still be fenced: its journal can be read after that.
    failover.await_healthy(bed, active)
    assert agent_events(bed, began_s, "promote: serving") == []


def is_frozen(bed: LabSession, node: str) -> bool:
    """Whether DRBD on a node holds the device's I/O."""
    reported = bed.sh(node, f"drbdsetup events2 --now {NAME}").stdout
    # With the space: a peer's line has `resync-suspended:no`.
    return "role:Primary" in reported and " suspended:no" not in reported


def test_a_node_cut_off_for_good_ends_its_freeze_and_comes_back(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """The node's BMC is dead, too: it cannot be fenced, so no node serves until it has rebooted."""
    bed, began_s = scenario.bed, time.time()
    lost = collect.active_node(bed, NAME)
    survivor = load.peer_of(lost)
    console = bed.lab.console_log(bed.node(lost))

    def status() -> dict[str, str]:
        return findings(bed, survivor, "status")

    with dead_bmc(bed, lost):
        with contextlib.ExitStack() as cables:
            # The host goes on asking while it freezes. Where nothing is under way the node stops
            # the device in order instead, and needs no boot.
            cables.enter_context(unplugged(bed, lost, Network.SYNC, Network.HEARTBEAT))
            await_silence(load, within_s=NOTICE_DEADLINE_S)
            cables.enter_context(unplugged(bed, lost, Network.ISCSI))
            wait_for(
                "the others to miss it",
                lambda: f"SAN-HLT-020 node {lost}" in findings(bed, survivor, "status"),
                within_s=NOTICE_DEADLINE_S,
            )
            stays(
                lambda: survivor not in kernel_audit.active_nodes(collect.kernel_views(bed), NAME),
                lambda: "sanctl: self-fence: fen0" in console.read_text(errors="replace"),
                within_s=REBOOT_AFTER_S + NOTICE_DEADLINE_S,
            )
            reported = wait_for(
                "status to tell that fencing failed",
                lambda: reported if f"SAN-HLT-016 node {lost}" in (reported := status()) else None,
                within_s=NOTICE_DEADLINE_S,
            )
            assert "unclean" in reported[f"SAN-HLT-020 node {lost}"]
            assert f"SAN-HLT-032 device {NAME}" in reported
        # The BMC is still dead: what follows needs no fencing.
        await_writes(load, within_s=180)
        wait_for("both in sync", lambda: collect.is_in_sync(bed, survivor, NAME), within_s=120)
        # Its journal may lack the line: on a busy machine the node does not wait for that disk.
        told = console.read_text(errors="replace")
    assert re.search("I/O is frozen and this node has had no|without quorum no node", told)
    wait_for(f"fence-{lost} to answer", lambda: _test(bed, survivor, lost), within_s=60)
    failover.await_healthy(bed, survivor)
    assert len(agent_events(bed, began_s, "promote: serving")) == 1


def _test(bed: LabSession, node: str, target: str) -> bool:
    return bed.sh(node, f"sanctl node fence {target} --test", timeout_s=60, ok=(0, 1)).status == 0


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("is_drained", [True, False], ids=["drained", "at-once"])
def test_the_node_that_serves_is_fenced_on_request(
    scenario: Scenario, load: LedgerLoad, is_drained: bool
) -> None:
    """The other node serves; the fenced one boots, joins, is resynced, and takes nothing back."""
    bed = scenario.bed
    lost = collect.active_node(bed, NAME)
    survivor = load.peer_of(lost)
    wait_for(
        "both in sync", lambda: collect.is_in_sync(bed, lost, NAME), within_s=RETURN_DEADLINE_S
    )
    boot, on_s = boot_id(bed, lost), bed.powered_since_s(lost)
    command = f"sanctl node fence {lost}" + ("" if is_drained else " --no-drain")
    # The command asks for confirmation, and there is no answer.
    assert "SAN-CLI-002" in bed.sh(survivor, f"{command} </dev/null", ok=(2,)).stderr
    assert (bed.powered_since_s(lost), collect.active_node(bed, NAME)) == (on_s, lost)
    began_s = time.time()
    reported = bed.sh(survivor, f"{command} --yes --output json", timeout_s=300).stdout
    assert json.loads(reported)["data"] == {"name": lost, "drained": is_drained}
    assert (bed.powered_since_s(lost) or 0.0) > began_s
    wait_for(
        f"{NAME} on {survivor}",
        lambda: collect.active_node(bed, NAME) == survivor,
        within_s=NOTICE_DEADLINE_S,
    )
    await_writes(load)
    wait_for(
        f"{lost} to have booted",
        lambda: boot_id(bed, lost) != boot,
        within_s=BOOT_DEADLINE_S,
        every_s=1.0,
    )
    wait_for(
        "both in sync",
        lambda: collect.is_in_sync(bed, survivor, NAME),
        within_s=RETURN_DEADLINE_S,
        every_s=1.0,
    )
    # The drain has ended with the fencing: no `node undrain` is needed.
    failover.await_healthy(bed, survivor)
    await_idle(bed, survivor)
    assert collect.active_node(bed, NAME) == survivor
    assert agent_events(bed, began_s, "promote: serving") == [survivor]
    assert_no_error(load, began_s)
