"""All power is lost with disks that forget what was not flushed: what write-through and none keep.

Rows of docs/explanation/cache.md. The last test breaks the rule on purpose, with disks to which no
flush is passed on, and sees that what the others look at finds it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sanctl.demo import observe
from sanctl.demo.bed import Bed, wait_for
from sanctl.demo.scene import Scene
from sanctl.lab import faults
from sanctl.lab.faults import Disk
from sanctl.system.runner import LocalRunner

pytestmark = pytest.mark.faults

NAME = "volatile0"
MIB = 2**20
BLOCKS = 200
# Beyond what filesystems and DRBD touch by themselves; another stretch for each test.
AT_BLOCK = {"write-through": 0, "none": 1000, "cheated": 2000}
BACK_DEADLINE_S = 400.0


@pytest.fixture(scope="module")
def path(scene: Scene) -> Iterator[str]:
    target = scene.create(NAME, "128M", prefer="n1")
    made = scene.host.login(target, scene.portals())
    # Blocks that are holes need the filesystem's journal: here the data is looked at.
    scene.host.sh(
        f"dd if=/dev/zero of={made} bs=1M count=16 oflag=direct conv=fsync", timeout_s=120
    )
    yield made
    for node in scene.bed.storage:
        faults.break_disk(scene.bed.lab, node, 1, Disk.OK, LocalRunner())
    scene.delete(NAME)


def make_volatile(bed: Bed, *, drops_flushes: bool = False) -> None:
    for node in bed.storage:
        faults.break_disk(bed.lab, node, 1, Disk.VOLATILE, LocalRunner())
        if drops_flushes:
            # The kernel then passes no flush to it (sysfs-block, queue/write_cache).
            bed.sh(
                node.name,
                "echo 'write through'"
                " >/sys/block/$(basename $(readlink -f /dev/mapper/lab-disk1))/queue/write_cache",
            )


def set_cache(bed: Bed, mode: str) -> None:
    bed.sh("n3", f"sanctl device cache {NAME} {mode}", timeout_s=150)


def write(scene: Scene, path: str, at: int, *, flushed: bool) -> None:
    """Write numbered blocks one after the other, each acknowledged before the next."""
    lines = f"seq -f 'block %06g {at}' 1 {BLOCKS}"
    scene.host.sh(
        f"{lines} | while read -r line; do printf '%-4095s\\n' \"$line\"; done |"
        f" dd of={path} bs=4096 seek={at} oflag=direct iflag=fullblock"
        f" conv=notrunc{',fsync' if flushed else ''}",
        timeout_s=180,
    )


def found(scene: Scene, path: str, at: int) -> int:
    """How many of the blocks are there, read from the device."""
    out = scene.host.sh(
        f"dd if={path} bs=4096 skip={at} count={BLOCKS} iflag=direct 2>/dev/null"
        f" | tr -d '\\0' | grep -c '^block ...... *{at}' || true",
        timeout_s=300,
    )
    return int(out)


def cut_all_and_wait(scene: Scene) -> None:
    """Cut the power of all storage nodes, give it back, and wait until the host is served."""
    bed = scene.bed
    active = observe.active_node(bed, NAME)
    for name in sorted((node.name for node in bed.storage), key=lambda name: name == active):
        bed.cut_power(name)
    for node in bed.storage:
        if not bed.has_power(node.name):  # fencing may have given it back
            bed.give_power(node.name)
    wait_for(
        "the device to be served",
        lambda: observe.active_node(bed, NAME),
        within_s=BACK_DEADLINE_S,
        every_s=3.0,
    )
    wait_for(
        "both copies in sync",
        lambda: observe.in_sync(bed, observe.active_node(bed, NAME), NAME),
        within_s=BACK_DEADLINE_S,
        every_s=3.0,
    )


def test_write_through_keeps_every_acknowledged_write(scene: Scene, path: str) -> None:
    set_cache(scene.bed, "write-through")
    make_volatile(scene.bed)
    write(scene, path, AT_BLOCK["write-through"], flushed=False)
    cut_all_and_wait(scene)
    assert found(scene, path, AT_BLOCK["write-through"]) == BLOCKS


def test_none_keeps_what_was_flushed(scene: Scene, path: str) -> None:
    set_cache(scene.bed, "none")
    make_volatile(scene.bed)
    write(scene, path, AT_BLOCK["none"], flushed=True)
    cut_all_and_wait(scene)
    assert found(scene, path, AT_BLOCK["none"]) == BLOCKS


def test_a_dropped_flush_is_found_out(scene: Scene, path: str) -> None:
    set_cache(scene.bed, "write-through")
    make_volatile(scene.bed, drops_flushes=True)
    write(scene, path, AT_BLOCK["cheated"], flushed=True)
    cut_all_and_wait(scene)
    assert found(scene, path, AT_BLOCK["cheated"]) < BLOCKS
