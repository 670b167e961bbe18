# SPDX-License-Identifier: GPL-2.0-or-later
"""Power lost on all nodes with volatile disk caches: what each cache policy keeps.

Rows of docs/explanation/cache.md. Also each replica by itself is looked at, while its node is off:
what one lacks, DRBD would send it from the other before a host could read it. The last test breaks
the rule on purpose, with disks to which no flush is passed on, and the same look finds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import node_faults
from sanctl.lab.machines.node_faults import DiskBehaviour
from sanctl.system.runner import LocalRunner
from tests.support import blocks
from tests.support.blocks import Stretch
from tests.support.node_disks import ask_disk
from tests.support.steps import kernel_mode

pytestmark = pytest.mark.faults

NAME = "volatile0"
MIB = 2**20
BLOCKS = 200
FILES = 20
# Beyond what filesystems and DRBD touch by themselves; another stretch for each test.
AT_BLOCK = {"write-through": 0, "none": 1000, "flushed": 2400, "alone": 2800}
CHEATED_AT_BLOCK = {"write-through": 2000, "none": 3400}
BACK_DEADLINE_S = 400.0


@pytest.fixture(scope="module")
def path(scenario: Scenario) -> Iterator[str]:
    target = scenario.create(NAME, "128M", prefer="n1")
    made = scenario.host.login(target, scenario.portals())
    # Blocks that are holes need the filesystem's journal: here the data is looked at.
    scenario.host.sh(
        f"dd if=/dev/zero of={made} bs=1M count=16 oflag=direct conv=fsync", timeout_s=120
    )
    yield made
    for node in scenario.bed.storage:
        node_faults.break_disk(scenario.bed.lab, node, 1, DiskBehaviour.OK, LocalRunner())
    scenario.delete(NAME)


def make_volatile(bed: LabSession, *, drops_flushes: bool = False) -> None:
    for node in bed.storage:
        node_faults.break_disk(bed.lab, node, 1, DiskBehaviour.VOLATILE, LocalRunner())
        if drops_flushes:
            # The kernel then passes no flush to it (sysfs-block, queue/write_cache).
            bed.sh(
                node.name,
                "echo 'write through'"
                " >/sys/block/$(basename $(readlink -f /dev/mapper/lab-disk1))/queue/write_cache",
            )


def set_cache(bed: LabSession, mode: str) -> None:
    bed.sh("n3", f"sanctl device cache {NAME} {mode}", timeout_s=150)


def write(scenario: Scenario, path: str, at: int, *, flushed: bool) -> None:
    blocks.write(scenario.host, path, Stretch(at, BLOCKS), flushed=flushed)


def found(scenario: Scenario, path: str, at: int) -> int:
    return blocks.found(scenario.host, path, Stretch(at, BLOCKS))


def cut_all(scenario: Scenario) -> None:
    """Cut the power of all storage nodes, of the one that serves last."""
    active = collect.active_node(scenario.bed, NAME)
    for name in sorted(
        (node.name for node in scenario.bed.storage), key=lambda name: name == active
    ):
        scenario.bed.cut_power(name)


def on_disk(bed: LabSession, folder: Path, at: int) -> dict[str, int]:
    """How many of the blocks each node's disk holds, by node; the nodes are off."""
    look = (
        f"dd if=$file bs={blocks.BLOCK_BYTES} skip={at} count={BLOCKS} status=none"
        f" | {blocks.counting(Stretch(at, BLOCKS))}"
    )
    return {node.name: int(ask_disk(bed, node, folder, look, device=NAME)) for node in bed.storage}


def await_no_flushes(bed: LabSession) -> None:
    """Return when DRBD flushes the disk of neither node between writes (write-through alone)."""

    def all_drain() -> bool:
        reported = "drbdsetup events2 --now --statistics | grep -c write-ordering:drain"
        return all(int(bed.sh(node.name, reported, ok=(0, 1)).stdout) > 0 for node in bed.storage)

    wait_for("DRBD to leave flushes out", all_drain, within_s=60, every_s=2.0)


def wait_until_served(scenario: Scenario) -> None:
    """Give the power back and wait until both replicas are in sync and the host is served."""
    bed = scenario.bed
    for node in bed.storage:
        bed.ensure_power(node.name)
    wait_for(
        "the device to be served",
        lambda: collect.active_node(bed, NAME),
        within_s=BACK_DEADLINE_S,
        every_s=3.0,
    )
    wait_for(
        "both replicas in sync",
        lambda: collect.is_in_sync(bed, collect.active_node(bed, NAME), NAME),
        within_s=BACK_DEADLINE_S,
        every_s=3.0,
    )


def test_write_through_keeps_every_acknowledged_write(
    scenario: Scenario, path: str, tmp_path: Path
) -> None:
    bed = scenario.bed
    set_cache(bed, "write-through")
    await_no_flushes(bed)
    make_volatile(bed)
    write(scenario, path, AT_BLOCK["write-through"], flushed=False)
    cut_all(scenario)
    assert on_disk(bed, tmp_path, AT_BLOCK["write-through"]) == {"n1": BLOCKS, "n2": BLOCKS}
    wait_until_served(scenario)
    assert found(scenario, path, AT_BLOCK["write-through"]) == BLOCKS


def test_write_through_keeps_zeros_that_a_host_asked_for(
    scenario: Scenario, path: str, tmp_path: Path
) -> None:
    """WRITE SAME: a loop device makes a change of the file's extents of it, which comes later."""
    bed, at = scenario.bed, AT_BLOCK["write-through"]
    set_cache(bed, "write-through")
    write(scenario, path, at, flushed=True)
    await_no_flushes(bed)
    make_volatile(bed)
    scenario.host.sh(f"blkdiscard --zeroout --offset {at * 4096} --length {BLOCKS * 4096} {path}")
    cut_all(scenario)
    assert on_disk(bed, tmp_path, at) == {"n1": 0, "n2": 0}
    wait_until_served(scenario)
    assert found(scenario, path, at) == 0


def test_none_keeps_what_was_flushed(scenario: Scenario, path: str, tmp_path: Path) -> None:
    bed = scenario.bed
    set_cache(bed, "none")
    make_volatile(bed)
    write(scenario, path, AT_BLOCK["none"], flushed=True)
    active = collect.active_node(bed, NAME)
    cut_all(scenario)
    assert on_disk(bed, tmp_path, AT_BLOCK["none"])[active] == BLOCKS
    wait_until_served(scenario)
    assert found(scenario, path, AT_BLOCK["none"]) == BLOCKS


def test_a_file_that_a_host_has_synced_is_there(
    scenario: Scenario, path: str, tmp_path: Path
) -> None:
    """What broke: the target took FUA, of a journal's commit, and dropped it."""
    bed, host = scenario.bed, scenario.host
    set_cache(bed, "none")
    at_once = "lazy_itable_init=0,lazy_journal_init=0"
    host.sh(
        f"mkfs.ext4 -q -F -E {at_once} {path} && mkdir -p /mnt/synced && mount {path} /mnt/synced",
        timeout_s=180,
    )
    try:
        make_volatile(bed)
        host.sh(
            f"cd /mnt/synced && for k in $(seq {FILES}); do echo $k >$k && sync $k; done",
            timeout_s=180,
        )
        active = next(node for node in bed.storage if node.name == collect.active_node(bed, NAME))
        cut_all(scenario)
        inner = tmp_path / "inner"
        inner.mkdir()
        look = f"mount -o loop $file {inner}; cat {inner}/[0-9]* | sort -n | uniq | wc -l"
        kept = int(ask_disk(bed, active, tmp_path, look, device=NAME))
        wait_until_served(scenario)
    finally:
        host.sh("umount /mnt/synced", timeout_s=120)
    assert kept == FILES


def write_back(bed: LabSession) -> None:
    set_cache(bed, "write-back")
    wait_for(
        "write-back on both",
        lambda: {kernel_mode(bed, NAME, node.name) for node in bed.storage} == {"write-back"},
        within_s=BACK_DEADLINE_S,
        every_s=2.0,
    )


def test_write_back_keeps_what_was_flushed_where_it_served(
    scenario: Scenario, path: str, tmp_path: Path
) -> None:
    bed, at = scenario.bed, AT_BLOCK["flushed"]
    write_back(bed)
    make_volatile(bed)
    write(scenario, path, at, flushed=True)
    active = collect.active_node(bed, NAME)
    cut_all(scenario)
    assert on_disk(bed, tmp_path, at)[active] == BLOCKS
    for node in bed.storage:
        bed.ensure_power(node.name)
    wait_for(
        "both replicas to be suspect", lambda: has_two_suspects(bed), within_s=BACK_DEADLINE_S,
        every_s=5.0,
    )  # fmt: skip
    bed.sh("n3", f"sanctl device heal {NAME} --keep {active} --yes", timeout_s=240)
    wait_until_served(scenario)
    assert collect.active_node(bed, NAME) == active
    assert found(scenario, path, at) == BLOCKS


def has_two_suspects(bed: LabSession) -> bool:
    """Whether no node may serve, both replicas are suspect, and both data generations are known."""
    text = bed.sh("n3", f"sanctl device heal {NAME} --output json", ok=range(256)).stdout
    reported = json.loads(text)["data"]
    return (
        bool(reported)
        and reported["condition"] == "blocked"
        and all(copy["suspect"] and copy["generation"] for copy in reported["copies"])
    )


def test_the_survivor_flushes_before_it_resumes_io(
    scenario: Scenario, path: str, tmp_path: Path
) -> None:
    """Nothing is flushed by the host: the flush is the fence-peer handler's."""
    bed, at = scenario.bed, AT_BLOCK["alone"]
    write_back(bed)
    make_volatile(bed)
    active = collect.active_node(bed, NAME)
    (lost,) = (node.name for node in bed.storage if node.name != active)
    write(scenario, path, at, flushed=False)
    bed.cut_power(lost)
    # It waits until the handler has let I/O go on.
    write(scenario, path, at + BLOCKS, flushed=False)
    assert kernel_mode(bed, NAME, active) == "write-through"
    bed.cut_power(active)
    if bed.has_power(lost):
        bed.cut_power(lost)
    assert on_disk(bed, tmp_path, at)[active] == BLOCKS
    assert on_disk(bed, tmp_path, at + BLOCKS)[active] == BLOCKS
    wait_until_served(scenario)
    assert found(scenario, path, at) == BLOCKS
    assert found(scenario, path, at + BLOCKS) == BLOCKS


@pytest.mark.parametrize("mode", CHEATED_AT_BLOCK)
def test_a_dropped_flush_is_found_out(
    scenario: Scenario, path: str, tmp_path: Path, mode: str
) -> None:
    at = CHEATED_AT_BLOCK[mode]
    set_cache(scenario.bed, mode)
    make_volatile(scenario.bed, drops_flushes=True)
    write(scenario, path, at, flushed=True)
    cut_all(scenario)
    held = on_disk(scenario.bed, tmp_path, at)
    assert max(held.values()) < BLOCKS
    wait_until_served(scenario)
    assert found(scenario, path, at) < BLOCKS
