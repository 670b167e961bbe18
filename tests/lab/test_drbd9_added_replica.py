# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD 9: a third and a fourth replica whose first fill breaks off, on a loaded device.

The good replicas have to stay good whatever becomes of the new one, and all are the same at the
end, block by block. On a laboratory as tests/lab/test_drbd9_replicas.py has.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network
from tests.support.drbd9_devices import (
    DEADLINE_S,
    ReplicatedDevice,
    journal_lines,
    laboratory_with_drbd_9,
    writing,
)
from tests.support.steps import await_writes, unplugged

pytestmark = [pytest.mark.faults, pytest.mark.drbd9]

_SLOW = ("--rate-min", "1M", "--rate-max", "1M")
_FAST = ("--rate-min", "32M", "--rate-max", "network")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    yield from laboratory_with_drbd_9(request)


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(params=["n3", "n4"])
def added(request: pytest.FixtureRequest) -> str:
    """The node that gets a replica; those before it have one."""
    return str(request.param)


@pytest.fixture
def device(scenario: Scenario, added: str) -> Iterator[ReplicatedDevice]:
    made = ReplicatedDevice(scenario, f"to{added}", [f"n{n}" for n in range(1, int(added[1]))])
    # Zeros are not sent: the fill would be over at once.
    made.scenario.host.sh(
        f"dd if=/dev/urandom of={made.path} bs=1M count=96 oflag=direct", timeout_s=300
    )
    yield made
    scenario.delete(made.name)


def test_a_first_fill_that_breaks_off_costs_no_good_replica(
    device: ReplicatedDevice, added: str
) -> None:
    bed, name, count = device.bed, device.name, int(added[1])
    good = device.nodes
    assert device.active() == "n1"
    began_s = time.time()
    with writing(device) as load:
        await_writes(load)
        device.scenario.sanctl("device", "sync", name, *_SLOW, timeout_s=120)
        tried = bed.sh(
            "n1",
            f"sanctl device replicas {name} {count} --add {added} --timeout 20",
            timeout_s=120,
            ok=range(256),
        )
        print(f"  {tried.stdout}{tried.stderr}")
        assert tried.status != 0
        wait_for(f"{added} to be filled", lambda: left_kib(device, added) > 0, within_s=DEADLINE_S)
        with unplugged(bed, added, Network.SYNC):
            wait_for(
                f"{added} to have lost contact",
                lambda: "connection:Connected" not in device.events(added),
                within_s=DEADLINE_S,
            )
            await_writes(load)
        wait_for(f"{added} to go on", lambda: left_kib(device, added) > 0, within_s=DEADLINE_S)
        device.scenario.sanctl("device", "sync", name, *_FAST, timeout_s=120)
        device.nodes = (*good, added)
        device.await_recovery()
    for node in good:
        filled = journal_lines(device, node, began_s, filled_from(added))
        assert not filled, filled
        # On a busy machine good ones may lose each other for a moment.
        lost = journal_lines(device, node, began_s, r"disk\( UpToDate -> ")
        apart = journal_lines(device, node, began_s, rf" ({'|'.join(good)}): conn\( Connected -> ")
        assert apart or not lost, lost
    for node in device.nodes:
        assert not journal_lines(device, node, began_s, r"Missed end of resync as sync-source")
    assert device.differing_sectors("n1") == 0


def filled_from(source: str) -> str:
    """What a replica's journal says as another one begins to fill it."""
    return rf" {source}: repl\( \w+ -> (WFBitMapT|SyncTarget)\b"


def left_kib(device: ReplicatedDevice, node: str) -> int:
    """How much of a replica still differs from the one that fills it."""
    found = re.findall(r"replication:SyncTarget .*out-of-sync:(\d+)", device.events(node))
    return max(map(int, found), default=0)
