# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl target deny` while hosts are logged in: the denied one loses the device, no other does.

Two hosts use the device: the laboratory's own, by multipath with a ledger, and a second one, which
is another initiator name on the same machine. Multipath is kept from the second one's disks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from sanctl.errors import CommandError
from sanctl.lab.harness import failover
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

pytestmark = pytest.mark.faults

NAME, HOST = "access0", "access-host"
OTHER = "iqn.2026-11.net.example:other"
NODES = ("n1", "n2")
#: What ends a session is the target; the host has given up the disk after replacement_timeout.
LOST_S = 30.0


@pytest.fixture
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """The host that stays: nothing it wrote may be lost, no request of it may fail."""
    with ledgers.ledger_on_new_device(
        scenario, NAME, "64M", rate=100, region_bytes=16 << 20
    ) as made:
        yield made


@contextlib.contextmanager
def second_host(load: LedgerLoad, portals: list[str]) -> Iterator[dict[str, tuple[str, str]]]:
    """Have a second host that is allowed and logged in, whatever becomes of it."""
    scenario = Scenario(load.bed, load.host)
    assert f"{SECOND} may use" in scenario.sanctl("target", "allow", NAME, SECOND)
    with initiator(load):
        yield log_in(load, portals)


def test_a_host_that_is_denied_loses_the_device_and_no_other_does(
    scenario: Scenario, load: LedgerLoad
) -> None:
    host, portals = load.host, scenario.portals(NODES)
    before = sessions(load)
    assert before.count("LOGGED_IN") == len(portals)
    with second_host(load, portals) as found:
        assert in_kernels(load, NODES) == {node: {host.iqn: True, SECOND: True} for node in NODES}
        disk, _ = found[portals[0]]  # n1 serves
        assert read_once(load, disk) == 0
        begin_reads(load, disk)
        _, log = reads_of(load)
        began_s = time.monotonic()
        said = scenario.sanctl("target", "deny", NAME, SECOND, "--yes")
        assert said.strip() == f"{SECOND} may no longer use device {NAME}"
        denied_s = time.monotonic() - began_s
        # Before anything is waited for: the command has said so.
        assert in_kernels(load, NODES) == {node: {host.iqn: True} for node in NODES}
        wait_for("its reads to fail", lambda: "failed" in host.sh(f"cat {log}"), within_s=LOST_S)
        lost_s = time.monotonic() - began_s
        print(f"  denied in {denied_s:.1f} s, the host has lost it after {lost_s:.1f} s")
        wait_for(
            "it to have no disk in use",
            lambda: all(state != "running" for _, state in disks(load).values()),
            within_s=LOST_S,
        )
        assert all(read_once(load, each) != 0 for each, _ in disks(load).values())
        for portal in portals:
            assert load.target not in host.sh(
                f"iscsiadm -m discovery -t sendtargets -p {portal} -I {IFACE} -o nonpersistent",
                ok=(0, 21),
            )
        await_writes(load)
        assert sessions(load) == before
        assert in_kernels(load, NODES) == {node: {host.iqn: True} for node in NODES}
        again = scenario.sanctl("target", "deny", NAME, SECOND, "--yes")
        assert again.strip() == f"{SECOND} was not on the list of device {NAME}: nothing to do"
        shown = scenario.sanctl("target", "show", NAME)
        assert SECOND not in shown and host.iqn in shown
    failover.await_healthy(scenario.bed, "n1")
    assert sessions(load) == before


def test_a_host_that_is_denied_is_out_by_all_its_iqns(scenario: Scenario, load: LedgerLoad) -> None:
    """Also by one that was allowed by itself, before it was the host's."""
    host, portals = load.host, scenario.portals(NODES)
    before = sessions(load)
    stays = {node: {host.iqn: True} for node in NODES}
    try:
        with second_host(load, portals) as found:
            scenario.sanctl("host", "create", HOST, "--iqn", OTHER)
            scenario.sanctl("target", "allow", NAME, "--host", HOST)
            scenario.sanctl("host", "set", HOST, "--add-iqn", SECOND)
            # Its sessions have stayed, and the list names it as the host's alone.
            assert in_kernels(load, NODES) == {
                node: {host.iqn: True, SECOND: True, OTHER: False} for node in NODES
            }
            assert f"initiator:    {SECOND}" not in scenario.sanctl("target", "show", NAME)
            disk, _ = found[portals[0]]  # n1 serves
            begin_reads(load, disk)
            _, log = reads_of(load)
            said = scenario.sanctl("target", "deny", NAME, "--host", HOST, "--yes")
            assert said.strip() == f"{HOST} may no longer use device {NAME}: {OTHER}, {SECOND}"
            assert in_kernels(load, NODES) == stays
            wait_for(
                "its reads to fail", lambda: "failed" in host.sh(f"cat {log}"), within_s=LOST_S
            )
            assert all(read_once(load, each) != 0 for each, _ in disks(load).values())
            # By its IQN alone, and the host's afterwards: status says so, and the denial takes it.
            scenario.sanctl("host", "set", HOST, "--remove-iqn", SECOND, "--yes")
            scenario.sanctl("target", "allow", NAME, SECOND)
            scenario.sanctl("host", "set", HOST, "--add-iqn", SECOND)
            assert SECOND in findings(load.bed, "n3", "status")[f"SAN-HLT-123 device {NAME}"]
            said = scenario.sanctl("target", "deny", NAME, "--host", HOST, "--yes")
            assert said.strip() == f"{HOST} may no longer use device {NAME}: {SECOND}"
            assert in_kernels(load, NODES) == stays
            assert f"SAN-HLT-123 device {NAME}" not in findings(load.bed, "n3", "status")
            await_writes(load)
            assert sessions(load) == before
    finally:
        for words in (("target", "deny", NAME, "--host", HOST, "--yes"), ("host", "delete", HOST)):
            with contextlib.suppress(CommandError):
                scenario.sanctl(*words)
    failover.await_healthy(scenario.bed, "n1")
    assert sessions(load) == before
