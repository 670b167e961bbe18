# SPDX-License-Identifier: GPL-2.0-or-later
"""The power of a node cut that has the only good replica: which unflushed writes its disk has.

The disk keeps every write that it is given (the laboratory's have no cache of their own), so what
is missing is what the pool's filesystem did not have in its journal yet (docs/adr/0048).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.measure import ledger_writer
from sanctl.lab.measure.ledger_writer import BLOCK_BYTES, BlockVerdict, RecordKind
from tests.support import ledgers
from tests.support.node_disks import ask_disk
from tests.support.steps import await_writes

pytestmark = pytest.mark.faults

MIB = 2**20
REGION_BYTES = 64 * MIB
RATE = 150.0
WRITES_S = 12.0
# The looks of sanctl-flush.service are 50 ms apart, and its flushes slow on a busy machine. Without
# the service ext4 commits every five seconds.
NOT_YET_FLUSHED_S = 3.0
BACK_DEADLINE_S = 400.0
_SERVICE = "sanctl-flush.service"


def log_in_to_one_path(scenario: Scenario, target: str, node: str) -> str:
    """Return the disk of a device of one replica: multipathd makes nothing of a single path."""
    (portal,) = scenario.portals([node])
    scenario.host.discover(portal)
    scenario.host.sh(f"iscsiadm -m node -T {target} -p {portal} --login", ok=(0, 15))
    path = f"/dev/disk/by-path/ip-{portal}:3260-iscsi-{target}-lun-0"

    def is_there() -> bool:
        return scenario.bed.sh(scenario.host.name, f"test -b {path}", ok=(0, 1)).status == 0

    wait_for(f"the disk {path}", is_there, within_s=60)
    return path


def start_ledger(scenario: Scenario, device: str, target: str, path: str) -> LedgerLoad:
    return ledgers.start(
        scenario, device, target, path, rate=RATE, region_bytes=REGION_BYTES, synced=False
    )


def cut_and_find_lost(load: LedgerLoad, node: str, folder: Path) -> tuple[int, list[float]]:
    """Cut a node's power under a ledger, and look at what its disk has.

    Returns:
        The number of acknowledged writes; and how long before the last acknowledgement each of
        those was acknowledged whose block holds neither it nor a later one, in seconds.
    """
    bed = load.bed
    bed.cut_power(node)
    # It writes no more when the device is back: what the disk lacks stays as it is.
    load.host.sh(f"systemctl kill --signal=KILL {load.run.unit}")
    head, records = load.host.fetch_log(load.run)
    ask_disk(
        bed, bed.node(node), folder, f"cp --sparse=always $file {folder}/data", device=load.device
    )
    acknowledged = {r.sequence: r.wall_ns for r in records if r.kind is RecordKind.ACK}
    last_ns = max(acknowledged.values())
    lost: list[float] = []
    with (folder / "data").open("rb") as data:
        for block, history in ledger_writer.build_histories(records).items():
            data.seek(head.start_bytes + block * BLOCK_BYTES)
            found = data.read(BLOCK_BYTES)
            if history.acked is not None and (
                ledger_writer.judge_block(found, head.run_id, block, history) is not BlockVerdict.OK
            ):
                lost.append((last_ns - acknowledged[history.acked]) / 1e9)
    print(
        f"  {len(acknowledged)} acknowledged, {len(lost)} lost, oldest {max(lost, default=0):.2f} s"
    )
    return len(acknowledged), sorted(lost)


def runs(bed: LabSession, node: str) -> Callable[[], bool]:
    return lambda: bed.sh(node, f"systemctl is-active {_SERVICE}", ok=range(256)).status == 0


@pytest.fixture
def back(scenario: Scenario) -> Iterator[list[LedgerLoad]]:
    """Bring nodes and devices back after a test, and delete the devices."""
    loads: list[LedgerLoad] = []
    yield loads
    bed = scenario.bed
    for node in bed.storage:
        bed.ensure_power(node.name)
    for load in loads:
        wait_for(
            f"{load.device} to be served",
            lambda load=load: collect.active_node(bed, load.device),  # type: ignore[misc]
            within_s=BACK_DEADLINE_S,
            every_s=3.0,
        )
        ledgers.stop(load)
        scenario.delete(load.device)


@pytest.mark.parametrize("is_written_before", [False, True], ids=["sparse", "written"])
def test_a_device_of_one_replica(
    scenario: Scenario, back: list[LedgerLoad], tmp_path: Path, is_written_before: bool
) -> None:
    """Where a host has written each block before, no extent is new, and nothing is lost."""
    bed = scenario.bed
    target = scenario.create("single0", "128M", prefer="n1", nodes=["n1"])
    path = log_in_to_one_path(scenario, target, "n1")
    if is_written_before:
        scenario.host.sh(
            f"dd if=/dev/zero of={path} bs=1M count={REGION_BYTES // MIB} oflag=direct conv=fsync"
            " status=none",
            timeout_s=180,
        )
    wait_for(f"{_SERVICE} on n1", runs(bed, "n1"), within_s=30)
    load = start_ledger(scenario, "single0", target, path)
    back.append(load)
    time.sleep(WRITES_S)
    load.host.await_acknowledged(load.run, round(RATE * WRITES_S / 3) + 1, within_s=120)
    acknowledged, lost = cut_and_find_lost(load, "n1", tmp_path)
    assert acknowledged > RATE * WRITES_S / 3
    if is_written_before:
        assert lost == []
    else:
        assert max(lost, default=0.0) < NOT_YET_FLUSHED_S


def test_the_survivor_of_two_replicas(
    scenario: Scenario, back: list[LedgerLoad], tmp_path: Path
) -> None:
    """The fence-peer handler starts the service: no monitor has been in between."""
    bed = scenario.bed
    target = scenario.create("single1", "128M", prefer="n1")
    load = start_ledger(
        scenario, "single1", target, scenario.host.login(target, scenario.portals())
    )
    back.append(load)
    active = collect.active_node(bed, "single1")
    lost_node = load.peer_of(active)
    # Fenced, it boots; and it must not be back in sync when the second power is cut.
    bed.sh(lost_node, "systemctl disable pacemaker.service; sync -f /etc")
    try:
        bed.cut_power(lost_node)
        await_writes(load)
        wait_for(f"{_SERVICE} on {active}", runs(bed, active), within_s=30)
        await_writes(load)
        time.sleep(WRITES_S)
        acknowledged, lost = cut_and_find_lost(load, active, tmp_path)
    finally:
        bed.ensure_power(lost_node)
        wait_for(
            f"{lost_node} to boot",
            lambda: (
                not bed.sh(
                    lost_node, "systemctl enable --now pacemaker.service", timeout_s=60
                ).status
            ),
            within_s=BACK_DEADLINE_S,
            every_s=3.0,
        )
    assert acknowledged > RATE
    assert max(lost, default=0.0) < NOT_YET_FLUSHED_S


def test_the_service_ends_when_two_replicas_are_in_sync(scenario: Scenario) -> None:
    bed = scenario.bed
    scenario.create("single2", "64M", prefer="n1")
    try:
        active = collect.active_node(bed, "single2")
        (other,) = (node.name for node in bed.storage if node.name != active)
        bed.sh(active, f"sanctl node standby {other}", timeout_s=180)
        wait_for(f"{_SERVICE} on {active}", runs(bed, active), within_s=60)
        bed.sh(active, f"sanctl node online {other}", timeout_s=300)
        wait_for(f"{_SERVICE} to end", lambda: not runs(bed, active)(), within_s=120, every_s=2.0)
    finally:
        bed.sh(active, f"sanctl node online {other}", timeout_s=300)
        scenario.delete("single2")
