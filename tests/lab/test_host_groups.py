# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hosts in a group use a device (ADR 68): one leaves, comes back, and a failover in between.

The laboratory's own host, by multipath with a ledger, is in the group from the beginning to the
end: nothing that it wrote may be lost, and no request of it may fail. The tests build on each
other's group and device, in file order.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.errors import CommandError
from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import ledgers
from tests.support.second_host import (
    IFACE,
    SECOND,
    begin_reads,
    disks,
    in_kernels,
    initiator,
    log_in,
    read_once,
    reads_of,
    sessions,
)
from tests.support.steps import await_writes, findings

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME, GROUP, STAYS, GOES = "group0", "pair", "stays1", "goes1"
NODES = ("n1", "n2")
LOST_S = 30.0
#: When a command is killed, in seconds: before, while and after it changes the CIB, as it comes.
KILLED_AFTER_S = (0.4, 0.8, 1.2, 1.6, 2.0, 2.6)


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """The host that stays has the device by its IQN, before there are groups."""
    made = ledgers.start_on_new_device(scenario, NAME, "64M", rate=100, region_bytes=16 << 20)
    try:
        with initiator(made):
            yield made
        ledgers.assert_nothing_lost(made, delete=True)
    finally:
        ledgers.stop(made)
        if scenario.exists(NAME):
            scenario.delete(NAME)
        for words in (("group", "delete", GROUP), ("delete", STAYS), ("delete", GOES)):
            with contextlib.suppress(CommandError):
                scenario.sanctl("host", *words)


def group(scenario: Scenario) -> dict[str, Any]:
    """Return the group, as `show` prints it."""
    out = scenario.sanctl("host", "group", "show", GROUP, "--output", "json", node="n3")
    found: dict[str, Any] = json.loads(out)["data"]
    return found


def both(load: LedgerLoad) -> dict[str, dict[str, bool]]:
    """Return what the kernels have while both hosts are logged in."""
    return {node: {load.host.iqn: True, SECOND: True} for node in NODES}


def test_a_group_takes_over_what_its_hosts_had(scenario: Scenario, load: LedgerLoad) -> None:
    before = sessions(load)
    scenario.sanctl("host", "create", STAYS, "--iqn", load.host.iqn)
    scenario.sanctl("host", "create", GOES, "--iqn", SECOND)
    scenario.sanctl("host", "group", "create", GROUP, "--host", STAYS, "--host", GOES)
    said = scenario.sanctl("target", "allow", NAME, "--host-group", GROUP)
    assert said.strip() == f"host group {GROUP} may use device {NAME}"
    log_in(load, scenario.portals(NODES))
    assert in_kernels(load, NODES) == both(load)
    assert sessions(load) == before, "the host had the device by its IQN, and lost no session"
    assert group(scenario) == {
        "name": GROUP,
        "hosts": [GOES, STAYS],
        "devices": [NAME],
        "lacking": [],
    }
    print(scenario.sanctl("target", "show", NAME))
    print(scenario.sanctl("host", "show", STAYS))
    with pytest.raises(CommandError) as refused:
        scenario.sanctl("target", "deny", NAME, "--host", GOES)
    assert "SAN-HOST-016" in str(refused.value) and GROUP in str(refused.value)
    assert in_kernels(load, NODES) == both(load)


def test_a_host_that_leaves_loses_the_device_and_the_other_stays(
    scenario: Scenario, load: LedgerLoad
) -> None:
    before, portals = sessions(load), scenario.portals(NODES)
    begin_reads(load, disks(load)[portals[0]][0])
    _, log = reads_of(load)
    scenario.sanctl("host", "group", "remove", GROUP, "--host", GOES, "--yes")
    # Before anything is waited for: the command has waited.
    assert in_kernels(load, NODES) == {node: {load.host.iqn: True} for node in NODES}
    wait_for("its reads to fail", lambda: "failed" in load.host.sh(f"cat {log}"), within_s=LOST_S)
    wait_for(
        "it to have no disk in use",
        lambda: all(state != "running" for _, state in disks(load).values()),
        within_s=LOST_S,
    )
    assert all(read_once(load, disk) != 0 for disk, _ in disks(load).values())
    await_writes(load)
    assert sessions(load) == before
    scenario.sanctl("host", "group", "add", GROUP, "--host", GOES)
    load.host.sh(f"iscsiadm -m node -I {IFACE} -T {load.target} --logout; true", timeout_s=60)
    found = log_in(load, portals)
    assert in_kernels(load, NODES) == both(load)
    assert read_once(load, found[portals[0]][0]) == 0
    assert sessions(load) == before


def test_a_failover_keeps_the_group(scenario: Scenario, load: LedgerLoad) -> None:
    trial = failover.measure_crash(load)
    print(f"  pause {trial.pause.seconds:.1f} s, {trial.pause.errors} errors")
    assert trial.pause.errors == 0 and not trial.violations
    active = collect.active_node(load.bed, NAME)
    assert group(scenario)["lacking"] == []
    wait_for(
        "both hosts' sessions with both nodes",
        lambda: in_kernels(load, NODES) == both(load),
        within_s=180,
    )
    (portal,) = scenario.portals([active])
    assert read_once(load, disks(load)[portal][0]) == 0
    # It leaves after a failover, too.
    scenario.sanctl("host", "group", "remove", GROUP, "--host", GOES, "--yes")
    assert in_kernels(load, NODES) == {node: {load.host.iqn: True} for node in NODES}
    scenario.sanctl("host", "group", "add", GROUP, "--host", GOES)


def test_a_command_that_is_killed_leaves_the_old_or_the_new(
    scenario: Scenario, load: LedgerLoad
) -> None:
    seen = []
    is_in = True
    for after_s in KILLED_AFTER_S:
        word = "remove" if is_in else "add"
        load.bed.sh(
            "n3",
            f"timeout --signal=KILL {after_s} sanctl host group {word} {GROUP} --host {GOES}",
            ok=range(256),
        )
        found = group(scenario)
        # Group and access list change together: nothing between is seen.
        assert found["lacking"] == [] and found["hosts"] in ([STAYS], [GOES, STAYS]), found
        shown = json.loads(scenario.sanctl("target", "show", NAME, "--output", "json", node="n3"))
        assert shown["data"]["hosts"] == found["hosts"]
        assert shown["data"]["host_groups"] == [GROUP]
        left = "old" if len(found["hosts"]) == 1 + is_in else "new"
        seen.append(f"{word} killed after {after_s} s: {left}")
        # The same command once more finishes it, and waits until it is in force.
        scenario.sanctl("host", "group", word, GROUP, "--host", GOES, node="n3")
        is_in = not is_in
        listed = {node: set(acls) for node, acls in in_kernels(load, NODES).items()}
        wanted = {load.host.iqn, SECOND} if is_in else {load.host.iqn}
        assert listed == dict.fromkeys(NODES, wanted)
    print("  " + "; ".join(seen))
    await_writes(load)
    assert is_in


def test_a_list_that_an_older_command_changed(scenario: Scenario, load: LedgerLoad) -> None:
    """It knows no groups: it takes the host off the list alone, and nothing lets it in again."""
    bed = load.bed
    kept = f"{STAYS}={load.host.iqn}"
    bed.sh("n3", f"crm_resource --resource {NAME} --set-parameter hosts --parameter-value {kept}")
    wait_for(
        "the host to be kept out",
        lambda: all({*acls} == {load.host.iqn} for acls in in_kernels(load, NODES).values()),
        within_s=60,
    )
    found = findings(bed, "n3", "status")
    assert GOES in found[f"SAN-HLT-113 device {NAME}"]
    again = scenario.sanctl("host", "group", "add", GROUP, "--host", GOES)
    assert "nothing to do" in again and "SAN-HLT-113" in again
    assert all({*acls} == {load.host.iqn} for acls in in_kernels(load, NODES).values())
    scenario.sanctl("target", "allow", NAME, "--host-group", GROUP)
    assert all({*acls} == {load.host.iqn, SECOND} for acls in in_kernels(load, NODES).values())
    assert f"SAN-HLT-113 device {NAME}" not in findings(bed, "n3", "status")
    await_writes(load)
