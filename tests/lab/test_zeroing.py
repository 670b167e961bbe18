# SPDX-License-Identifier: GPL-2.0-or-later
"""blkdiscard --zeroout on most of a device: no peer times out, no path is lost.

What it may ask for at a time is little, because zeros are written like anything else: the standby's
answer is awaited (ko-count), and so are those to the host's pings. Where LIO knows of atomic writes
a Linux host asks for no zeros at all (sanctl/drivers/lio_backstore.py): it writes them, and this is
easy. On an older kernel, `sanctl lab up --kernel`, it is not.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import ledgers

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "zeros0"
MIB = 2**20
REGION_MIB, ZEROED_MIB = 16, 1500
# What the kernel says of a peer that is given up, and of a session.
GIVEN_UP = "ko-count|Connected -> |NetworkFailure"
LOST_PATH = "detected conn error|ping timeout"


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    target = scenario.create(NAME, f"{REGION_MIB + ZEROED_MIB}M", prefer="n1")
    path = scenario.host.login(target, scenario.portals())
    active = collect.active_node(scenario.bed, NAME)
    wait_for("both replicas", lambda: collect.is_in_sync(scenario.bed, active, NAME), within_s=240)
    made = ledgers.start(scenario, NAME, target, path, rate=20, region_bytes=REGION_MIB * MIB)
    yield made
    ledgers.stop(made)
    scenario.delete(NAME)


def kernel_messages(bed: LabSession, node: str, pattern: str) -> list[str]:
    """Return what a kernel has said of that sort since it was booted."""
    out = bed.sh(node, f"dmesg | grep -E '{pattern}' || true").stdout
    return out.splitlines()


def test_zeroing_a_device_costs_neither_a_replica_nor_a_path(load: LedgerLoad) -> None:
    bed, host = load.bed, load.host
    active = collect.active_node(bed, NAME)
    before = kernel_messages(bed, active, GIVEN_UP), kernel_messages(bed, host.name, LOST_PATH)
    logins = {node.name: collect.accepted_logins(bed, node.name, load.target)
              for node in bed.storage}  # fmt: skip
    output = host.sh(
        f"cat /sys/block/sd*/queue/write_zeroes_max_bytes; began=$(date +%s);"
        f" blkdiscard --zeroout --offset {REGION_MIB * MIB} --length {ZEROED_MIB * MIB}"
        f" {load.run.device}; echo $(($(date +%s) - began)) s",
        timeout_s=900,
    )
    print(f"  at a time, and how long: {output.split()}")
    assert (
        kernel_messages(bed, active, GIVEN_UP),
        kernel_messages(bed, host.name, LOST_PATH),
    ) == before
    assert collect.is_in_sync(bed, active, NAME)
    for node, count in logins.items():
        assert collect.accepted_logins(bed, node, load.target) == count, node


def test_the_host_was_answered_meanwhile_and_lost_nothing(load: LedgerLoad) -> None:
    ledgers.assert_nothing_lost(load, more_than=20)
