# SPDX-License-Identifier: GPL-2.0-or-later
"""A file of a replica that cannot be looked at is not missing.

A disk gives EIO for the block that holds one inode, or a folder, or for all reads, or now and then,
and a replica is started over it, promoted, watched. Nothing is made anew or deleted: afterwards
each file has the inode and the content that it had, and a copy that is whole is not filled anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.machines.node_faults import DiskBehaviour
from tests.support import steps, unreadable
from tests.support.unreadable import NODE, SIZE_MIB, Written, break_disk

# The first one makes the laboratory.
pytestmark = pytest.mark.timeout(1200)


class Kept(NamedTuple):
    """A device in a pool without flash, and that pool on a node's disk."""

    written: Written
    pool: str
    number: int

    @property
    def bed(self) -> LabSession:
        return self.written.scene.bed

    @property
    def path(self) -> str:
        return f"/srv/sanctl/{self.pool}"

    @property
    def disk(self) -> str:
        return f"/dev/mapper/lab-disk{self.number}"

    def file(self, kind: str) -> str:
        """Return the path of one of the replica's files."""
        found = self.bed.sh(NODE, f"ls {self.path}/devices/{self.written.name}.*.data").stdout
        return found.strip().removesuffix("data") + kind


@pytest.fixture(scope="module")
def kept(bed: LabSession) -> Iterator[Kept]:
    pool, number = ("disk2", 2) if bed.lab.spec.has_flash else ("main", 1)
    made = Kept(Written(Scenario(bed, Initiator(bed, "i1")), "eio1", pool), pool, number)
    bed.sh("n3", f"sanctl node standby {NODE}", timeout_s=240)
    put_apart(made, "data", fillers=32)
    put_apart(made, "meta", fillers=64)
    online(made)
    yield made
    break_disk(bed, NODE, number, DiskBehaviour.OK)
    online(made)
    made.written.check()
    made.written.delete()


def put_apart(kept: Kept, kind: str, *, fillers: int) -> None:
    """Give a file of a replica an inode in a block of its own: 16 share one."""
    file = kept.file(kind)
    kept.bed.sh(
        NODE,
        f"cd {kept.path}/devices; mkdir fill; for nr in $(seq {fillers}); do : >fill/$nr; done;"
        f" cp --archive --sparse=always {file} {file}.x; mv {file}.x {file};"
        f" for nr in $(seq 16); do : >fill/x$nr; done; rm -r fill; sync",
        timeout_s=120,
    )
    others = {"data", "meta"} - {kind}
    beside = [f"{kept.path}/devices", *(kept.file(each) for each in others)]
    sectors = [unreadable.inode_sector(kept.bed, NODE, kept.disk, each) for each in beside]
    assert unreadable.inode_sector(kept.bed, NODE, kept.disk, file) not in sectors


def online(kept: Kept) -> None:
    kept.bed.sh("n3", f"sanctl node online {NODE} --timeout 30", ok=range(256), timeout_s=90)
    kept.written.await_in_sync()


def mend_filesystem(kept: Kept) -> None:
    """Have the pool's filesystem as it was made, once its disk answers: ext4 is damaged by EIO.

    A file that is created gets its name, then EIO for the block of its inode, and the name stays
    (EUCLEAN). The pool cannot be used until it is checked.
    """
    bed = kept.bed
    bed.sh("n3", f"sanctl node standby {NODE}", timeout_s=240)
    checked = bed.sh(
        NODE,
        f"umount {kept.path} && {{ e2fsck -f -y {kept.disk}; status=$?; mount {kept.path};"
        " exit $status; }",
        ok=(0, 1),
        timeout_s=120,
    )
    print(f"    {checked.stdout}")
    online(kept)

    def is_usable() -> bool:
        listed = bed.sh("n3", "sanctl pool list", timeout_s=60).stdout.splitlines()
        return any({kept.pool, NODE} <= {*line.split()} and "SAN-" not in line for line in listed)

    wait_for("the pool to be usable", is_usable, within_s=60)


def mark_suspect(kept: Kept) -> None:
    """Have the copy on the node be one that lost writes with RAM, in another boot."""
    marker = kept.file("ram")
    kept.bed.sh(NODE, f"echo 6e5a4a44-4d2c-4a47-8f5e-000000000000 >{marker}; sync")
    put_apart(kept, "ram", fillers=128)


def await_failed_start(kept: Kept, since_s: float) -> str:
    return unreadable.await_line(
        kept.bed, NODE, since_s, rf"{kept.written.name}: start failed", within_s=90
    )


def hide(kept: Kept, path: str, sector: int) -> None:
    """Have a sector not be read, until the kernel has asked the disk for what it holds.

    A write mends a bad sector, as it does on a disk, so what is dirty has to be written before.
    """

    def is_refused() -> bool:
        break_disk(kept.bed, NODE, kept.number, DiskBehaviour.BAD, sector)
        said = kept.bed.sh(NODE, f"stat {path}", ok=range(256)).stderr
        return "Input/output error" in said

    wait_for(f"{path} to be read from the disk", is_refused, within_s=60, every_s=1.0)


#: What cannot be read, and whether the copy is one that lost writes.
STARTS = [
    ("data", False),
    ("meta", False),
    ("meta", True),
    ("ram", True),
    ("folder", False),
    ("pool", False),
    ("all reads", False),
    ("now and then", False),
]


@pytest.mark.parametrize(
    ("what", "is_suspect"),
    [
        pytest.param(
            *each, marks=pytest.mark.quick if each == ("data", False) else pytest.mark.faults
        )
        for each in STARTS
    ],
)
def test_a_replica_is_started_over_files_that_cannot_be_looked_at(
    kept: Kept, what: str, is_suspect: bool
) -> None:
    bed, name = kept.bed, kept.written.name
    # A start that has failed is not tried again: one of a test before this that ended half-way.
    kept.written.await_in_sync()
    bed.sh("n3", f"sanctl node standby {NODE}", timeout_s=240)
    if is_suspect:
        mark_suspect(kept)
    before = unreadable.files(bed, NODE, kept.path)
    boot = steps.boot_id(bed, NODE)
    began_s = time.time()
    try:
        if what == "all reads":
            break_disk(bed, NODE, kept.number, DiskBehaviour.UNREADABLE)
        elif what == "now and then":
            break_disk(bed, NODE, kept.number, DiskBehaviour.FLAKY)
        else:
            folder = f"{kept.path}/devices"
            path = {"folder": f"{folder}/{name}", "pool": f"{kept.path}/.sanctl-pool"}.get(what)
            sector = (
                unreadable.content_sector(bed, NODE, kept.disk, folder)
                if what == "folder"
                else unreadable.inode_sector(bed, NODE, kept.disk, path or kept.file(what))
            )
            path = path or kept.file(what)
            hide(kept, path, sector)
        bed.sh("n3", f"sanctl node online {NODE} --timeout 20", ok=range(256), timeout_s=90)
        if what != "now and then":
            await_failed_start(kept, began_s)
        bed.sh("n3", f"sanctl node standby {NODE} --timeout 60", ok=range(256), timeout_s=120)
    finally:
        print(f"  {what}, suspect: {is_suspect}")
        for line in unreadable.journal(bed, NODE, began_s):
            print(f"    {line}")
        break_disk(bed, NODE, kept.number, DiskBehaviour.OK)
    assert steps.boot_id(bed, NODE) == boot, "it was fenced"
    # A filesystem whose root cannot be read passes for one that shut itself down: unmounted, and
    # its copies filled anew.
    is_distrusted = f"{kept.pool}.shut-down" in unreadable.notes(bed, NODE)
    bed.sh(NODE, f"mountpoint -q {kept.path} || mount {kept.path}")
    after = unreadable.files(bed, NODE, kept.path)
    before, after = (
        {key: text for key, text in each.items() if not key.endswith((".apart", ".sync"))}
        for each in (before, after)
    )
    if what == "now and then":  # it may have been started, and written to
        before, after = (
            {key: text.split()[0] for key, text in each.items()} for each in (before, after)
        )
    assert after == before
    began_s = time.time()
    online(kept)
    resync = unreadable.largest_resync_kib(bed, NODE, name, began_s)
    print(f"    then: {resync} KiB to sync")
    # A copy that lost writes is filled anew, and no other.
    assert (resync > SIZE_MIB * 1024 // 2) is (is_suspect or is_distrusted)
    assert not is_distrusted or what in {"pool", "all reads", "now and then"}
    assert bed.sh(NODE, f"test -e {kept.file('ram')}", ok=range(256)).status == 1


def kernel_mode(kept: Kept) -> str:
    """Whether acknowledged writes may be in RAM alone on the node, by its kernel."""
    out = kept.bed.sh(
        NODE,
        f"file={kept.file('data')}; loop=$(losetup -n -O NAME -j $file);"
        " echo $(cat /sys/block/$(basename $loop)/loop/dio) $(lsattr $file | cut -c1-20)",
    ).stdout
    is_direct, flags = out.split()
    if "S" in flags:
        return "write-through"
    return "none" if is_direct == "1" else "write-back"


@pytest.fixture
def in_write_back(kept: Kept) -> Iterator[Kept]:
    """With a marker whose inode has a block of its own."""
    bed, folder = kept.bed, f"{kept.path}/devices/fill"
    bed.sh(NODE, f"mkdir {folder}; for nr in $(seq 128); do : >{folder}/$nr; done; sync")
    bed.sh("n3", f"sanctl device cache {kept.written.name} write-back", timeout_s=180)
    wait_for("write-back", lambda: kernel_mode(kept) == "write-back", within_s=60)
    yield kept
    break_disk(bed, NODE, kept.number, DiskBehaviour.OK)
    bed.sh(NODE, f"rm -r {folder}; sync")
    kept.written.await_in_sync()
    bed.sh("n3", f"sanctl device cache {kept.written.name} none", timeout_s=180)
    mend_filesystem(kept)


def hide_marker(kept: Kept) -> None:
    bed = kept.bed
    wait_for(
        "write-back, and its marker",
        lambda: (
            kernel_mode(kept) == "write-back"
            and not bed.sh(NODE, f"sleep 3; test -e {kept.file('ram')}", ok=range(256)).status
        ),
        within_s=60,
    )
    sector = unreadable.inode_sector(bed, NODE, kept.disk, kept.file("ram"))
    assert sector != unreadable.inode_sector(bed, NODE, kept.disk, kept.file("data"))
    hide(kept, kept.file("ram"), sector)


def tell(kept: Kept, what: str, since_s: float) -> None:
    print(f"  {what}: {kernel_mode(kept)}")
    for line in unreadable.journal(kept.bed, NODE, since_s):
        print(f"    {line}")


@pytest.mark.faults
def test_monitors_cannot_read_the_marker(in_write_back: Kept) -> None:
    """They say so and go on as they were: the other copy has all writes; no move comes here."""
    kept, bed = in_write_back, in_write_back.bed
    before = {
        name: text.split()[0] for name, text in unreadable.files(bed, NODE, kept.path).items()
    }
    boot, began_s = steps.boot_id(bed, NODE), time.time()
    hide_marker(kept)
    unreadable.await_line(bed, NODE, began_s, "could not be applied: .*ram", within_s=60)
    moved = bed.sh(
        "n3", f"sanctl device move {kept.written.name} --to {NODE} --timeout 40",
        ok=range(256), timeout_s=120,
    )  # fmt: skip
    tell(kept, f"monitor; move: {moved.status} {moved.stdout}{moved.stderr}", began_s)
    assert kept.written.serves("n1")
    break_disk(bed, NODE, kept.number, DiskBehaviour.OK)
    kept.written.await_in_sync()
    after = {name: text.split()[0] for name, text in unreadable.files(bed, NODE, kept.path).items()}
    after = {name: inode for name, inode in after.items() if not name.endswith(".ram")}
    assert after == {name: inode for name, inode in before.items() if not name.endswith(".ram")}
    assert steps.boot_id(bed, NODE) == boot, "it was fenced"
    resync = unreadable.largest_resync_kib(bed, NODE, kept.written.name, began_s)
    print(f"    then: {resync} KiB to sync")
    assert resync < SIZE_MIB * 1024 // 2


@pytest.mark.faults
def test_the_active_node_is_left_alone_and_cannot_read_its_marker(in_write_back: Kept) -> None:
    """I/O is frozen, or the copy in write-through: one copy acknowledges nothing in RAM alone."""
    kept, bed = in_write_back, in_write_back.bed
    kept.written.move(NODE)
    wait_for("write-back", lambda: kernel_mode(kept) == "write-back", within_s=60)
    began_s = time.time()
    hide_marker(kept)
    bed.cut_power("n1")
    wait_for(
        "DRBD to have noticed",
        lambda: "Connecting" in bed.sh(NODE, f"drbdsetup events2 --now {kept.written.name}").stdout,
        within_s=60,
    )
    for _ in range(10):
        # Asked in this order: what is frozen after it was in write-back was frozen before.
        mode = kernel_mode(kept)
        seen = bed.sh(NODE, f"drbdsetup events2 --now {kept.written.name}").stdout
        # With the space: each peer has a `resync-suspended:no`, too.
        assert mode != "write-back" or " suspended:no" not in seen or "role:Secondary" in seen
        time.sleep(1.0)
    tell(kept, "alone", began_s)
    break_disk(bed, NODE, kept.number, DiskBehaviour.OK)
    bed.ensure_power("n1")
    await_members_online(bed)
    kept.written.await_in_sync()
    kept.written.move("n1")
