# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica whose node loses its power while it is filled, or right after, ends equal to its peer.

DRBD's bitmaps call blocks in sync that were in the pool's journal, or a disk's cache, alone
(docs/adr/0082). Nobody writes meanwhile: flushes of hosts would make them stable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from tests.support.replica_change_steps import CHANGE_S, begin_change

NAME = "fill0"
SIZE_MIB = 96
RATE = "8M"
#: Of the file, and past the page cache: the device itself is the active node's alone.
_DIGEST = (
    "dd if=$(ls /srv/sanctl/main/devices/{name}.*.data) bs=4M iflag=direct status=none | sha256sum"
)


@pytest.fixture
def alone(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """A device full of random data with a replica on the first node, which was on both."""
    first, second = (node.name for node in scenario.bed.storage[:2])
    target = scenario.create(NAME, f"{SIZE_MIB}M", prefer=first, nodes=(first, second))
    try:
        disk = scenario.host.login(target, scenario.portals((first, second)))
        scenario.host.sh(
            f"dd if=/dev/urandom of={disk} bs=4M count={SIZE_MIB // 4}"
            " oflag=direct iflag=fullblock status=none conv=fsync",
            timeout_s=300,
        )
        scenario.host.logout(target)
        scenario.sanctl("device", "sync", NAME, "--rate-min", RATE, "--rate-max", RATE)
        scenario.sanctl("device", "replicas", NAME, "1", "--drop", second, timeout_s=CHANGE_S)
        yield first, second
    finally:
        scenario.delete(NAME)


def filled_mib(scenario: Scenario, node: str) -> int:
    """How much of the replica on a node is in sync, as DRBD there says; 0: it is not there yet."""
    text = scenario.bed.sh(node, "cat /proc/drbd").stdout
    found = re.search(r"cs:(?:SyncTarget|Connected) .*?oos:(\d+)", text, re.DOTALL)
    return 0 if found is None else SIZE_MIB - int(found[1]) // 1024


@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("at_mib", [SIZE_MIB // 2, SIZE_MIB], ids=["half way", "at the end"])
def test_a_target_that_loses_its_power_ends_equal(
    scenario: Scenario, alone: tuple[str, str], at_mib: int
) -> None:
    bed, (first, second) = scenario.bed, alone
    begin_change(bed, first, "device", "replicas", NAME, "2", "--add", second)
    wait_for(
        f"{at_mib} MiB to be filled",
        lambda: filled_mib(scenario, second) >= at_mib,
        within_s=180,
        every_s=0.2,
    )
    bed.cut_power(second)
    bed.ensure_power(second)
    await_members_online(bed)
    scenario.sanctl("device", "replicas", NAME, "2", node=first, timeout_s=CHANGE_S)
    wait_for(
        "both to be in sync", lambda: collect.is_in_sync(bed, first, NAME), within_s=300, every_s=2
    )
    # From the blocks alone that DRBD calls different it would mostly be equal, too: whether a block
    # or its bit is stable first is chance.
    refilled = bed.sh(second, f"journalctl -b -o cat --grep '{NAME}: .*a full resync begins'")
    assert refilled.stdout.strip()
    digests = {
        bed.sh(node, f"sync; {_DIGEST.format(name=NAME)}", timeout_s=120).stdout.split()[0]
        for node in (first, second)
    }
    assert len(digests) == 1
