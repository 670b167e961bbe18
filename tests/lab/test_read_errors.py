# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk that cannot be read is no blank disk, and a file that cannot be looked at is not missing.

Disks of a node give EIO: for one sector, for all reads, now and then. Whatever runs then (the
preparation of a pool, its units, a rollout, a start, a promotion, monitors), nothing is formatted,
made anew or deleted: afterwards all is as it was, told without a line of sanctl.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from sanctl.errors import CommandError
from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import node_faults, rollout
from sanctl.lab.machines.node_faults import DiskBehaviour
from sanctl.lab.machines.spec import LabSpec
from sanctl.lab.measure import kernel_audit
from tests.support import steps, unreadable
from tests.support.laboratory import laboratory
from tests.support.unreadable import (
    BCACHE_SECTOR,
    EXT4_SECTOR,
    NODE,
    ORIGIN,
    SIZE_MIB,
    Written,
    break_disk,
)

PATH, SCRATCH = "/srv/sanctl/main", "/srv/sanctl/main/scratch"
MOUNT = "srv-sanctl-main.mount"
UNITS = f"{MOUNT} sanctl-pool-cache@main.service"
#: As after a boot: the kernel keeps the superblock of a flash that it has.
RELEASE = "for each in /sys/fs/bcache/*-*/unregister; do [ -e $each ] && echo 1 >$each; done; true"
NOTES = "/var/lib/sanctl/pools"
OWN_LAB = os.environ.get("SANCTL_TEST_LAB")


class Fault(NamedTuple):
    """What a disk does; `is_flash`: that before the pool, else the slow one."""

    name: str
    is_flash: bool
    does: DiskBehaviour
    sectors: tuple[int, ...] = ()


FAULTS = (
    Fault("the disk's superblock", False, DiskBehaviour.BAD, (BCACHE_SECTOR,)),
    Fault("the disk, all reads", False, DiskBehaviour.UNREADABLE),
    Fault("the disk, now and then", False, DiskBehaviour.FLAKY),
    Fault("the flash's superblock", True, DiskBehaviour.BAD, (BCACHE_SECTOR,)),
    Fault("the flash, all reads", True, DiskBehaviour.UNREADABLE),
    Fault("the flash, now and then", True, DiskBehaviour.FLAKY),
)
UNDER_BCACHE = Fault("the filesystem's superblock", False, DiskBehaviour.BAD, (EXT4_SECTOR,))


def fault_id(fault: Fault) -> str:
    return fault.name.replace(" ", "-")


@contextlib.contextmanager
def broken(bed: LabSession, fault: Fault) -> Iterator[None]:
    number = bed.lab.spec.all_disks if fault.is_flash else ORIGIN
    break_disk(bed, NODE, number, fault.does, *fault.sectors)
    try:
        yield
    finally:
        break_disk(bed, NODE, number, DiskBehaviour.OK)


@pytest.fixture(scope="module")
def flash_bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    spec = LabSpec(name=OWN_LAB or "testeio", flash_mib=512)
    yield from laboratory(
        request, spec, is_own=OWN_LAB is not None, options=("--flash", f"{spec.flash_mib}M")
    )


@pytest.fixture(autouse=True)
def _audited(flash_bed: LabSession) -> Iterator[None]:
    """As every test of this folder is, in the laboratory of this one."""
    yield
    assert kernel_audit.violations(collect.kernel_views(flash_bed)) == []


@pytest.fixture(scope="module")
def written(flash_bed: LabSession) -> Iterator[Written]:
    assert flash_bed.lab.spec.has_flash, "made with sanctl lab up --flash 512M"
    made = Written(Scenario(flash_bed, Initiator(flash_bed, "i1")), "eio0", "main")
    yield made
    made.delete()


@pytest.fixture(scope="module")
def standby(written: Written) -> Iterator[LabSession]:
    """The pool of a node whose replicas are down, mounted."""
    bed = written.scene.bed
    began_s = time.time()
    bed.sh("n3", f"sanctl node standby {NODE}", timeout_s=240)
    yield bed
    if not is_mounted(bed):
        unmounted(bed, "write-through")
        prepare(bed)
    set_node_mode(bed, "write-through")
    bed.sh(NODE, f"rm -f {SCRATCH}; echo 1 >/sys/block/bcache0/bcache/writeback_running")
    bed.sh("n3", f"sanctl node online {NODE}", timeout_s=400)
    written.await_in_sync()
    # What was written meanwhile, and not the whole device.
    assert unreadable.largest_resync_kib(bed, NODE, written.name, began_s) < SIZE_MIB * 1024 // 2
    written.check()


def set_mode(bed: LabSession, mode: str) -> None:
    bed.sh("n3", f"sanctl pool cache main {mode} --timeout 60", ok=(0, 7), timeout_s=120)


def prepare(bed: LabSession, *, ok: range = range(1), node: str = NODE) -> tuple[int, str]:
    done = bed.sh(node, "sanctl pool prepare main", ok=ok, timeout_s=300)
    return done.status, (done.stdout + done.stderr).strip()


def is_mounted(bed: LabSession) -> bool:
    return bed.sh(NODE, f"mountpoint -q {PATH}", ok=range(256)).status == 0


def set_node_mode(bed: LabSession, mode: str) -> None:
    """Bring a node in standby there, whose agent follows nothing."""
    kernels = {"write-back": "writeback", "write-through": "writethrough"}
    if mode == "write-back":
        bed.sh(
            NODE,
            f"mkdir -p -m 700 {NOTES}; touch {NOTES}/main.write-back; sync",
        )
    bed.sh(
        NODE,
        f"cd /sys/block/bcache0/bcache; echo {kernels[mode]} >cache_mode;"
        " echo 10 >writeback_percent; echo 1 >writeback_running",
    )
    if mode == "write-through":
        bed.sh(NODE, "echo 0 >/sys/block/bcache0/bcache/writeback_percent")
        wait_for(
            "nothing on flash alone",
            lambda: bed.sh(NODE, "cat /sys/block/bcache0/bcache/state").stdout.strip() == "clean",
            within_s=60,
        )
        bed.sh(NODE, f"rm -f {NOTES}/main.write-back; sync")


def unmounted(bed: LabSession, mode: str) -> dict[str, dict[str, str]]:
    """Stop a pool that holds new data, in write-back on flash alone; return what is there."""
    if not is_mounted(bed) and prepare(bed, ok=range(256))[0]:
        # A test before this one has failed.
        bed.sh(NODE, "sanctl pool prepare main --anew --yes", timeout_s=300)
    set_node_mode(bed, mode)
    bed.sh(
        NODE,
        "echo 0 >/sys/block/bcache0/bcache/writeback_running;"
        f" dd if=/dev/urandom of={SCRATCH} bs=1M count=8 conv=fsync status=none",
    )
    if mode == "write-back":
        state = bed.sh(NODE, "cat /sys/block/bcache0/bcache/state").stdout.strip()
        assert state == "dirty"
    there = {"files": unreadable.files(bed, NODE, PATH)}
    bed.sh(NODE, f"systemctl stop {UNITS}; {RELEASE}", timeout_s=120)
    return {**there, **devices(bed)}


def devices(bed: LabSession) -> dict[str, dict[str, str]]:
    return {"devices": unreadable.identity(bed, NODE), "notes": unreadable.notes(bed, NODE)}


def assert_as_before(
    bed: LabSession, before: dict[str, dict[str, str]], *, has_cold_flash: bool = False
) -> None:
    """The devices are those, and once the disk answers the pool comes back with what it held.

    Cold flash, which may have been away from a disk that was used, is emptied at that.
    """
    for kind, now in devices(bed).items():
        assert {key: text for key, text in now.items() if before[kind].get(key) != text} == {}
        assert now.keys() == before[kind].keys()
    print(f"  then: {prepare(bed)[1]}")
    assert unreadable.files(bed, NODE, PATH) == before["files"]
    after = devices(bed)["devices"]
    changed = {key for key, text in after.items() if before["devices"][key] != text}
    assert changed == ({"flash"} if has_cold_flash else set())


@pytest.mark.faults
@pytest.mark.parametrize("fault", FAULTS, ids=fault_id)
@pytest.mark.parametrize("mode", ["write-back", "write-through"])
def test_a_pool_that_was_made_is_prepared(standby: LabSession, mode: str, fault: Fault) -> None:
    before = unmounted(standby, mode)
    with broken(standby, fault):
        # One that fails now and then is met in both of its states.
        for _ in range(4 if fault.does is DiskBehaviour.FLAKY else 1):
            status, said = prepare(standby, ok=range(256))
            print(f"  {mode}, {fault.name}: {status} {said}")
            standby.sh(NODE, f"systemctl stop {UNITS}; {RELEASE}", timeout_s=120)
    # A preparation that breaks off may have used the disk without its flash. What is on flash
    # alone, in write-back, stays.
    is_known = standby.sh(NODE, f"test -e {NOTES}/main.stopped", ok=(0, 1)).status == 0
    assert_as_before(standby, before, has_cold_flash=mode == "write-through" and not is_known)
    if fault.does is not DiskBehaviour.FLAKY:
        assert status != 0 and "SAN-" in said


@pytest.mark.faults
@pytest.mark.parametrize("command", ["prepare", "mount"])
def test_the_filesystems_superblock_cannot_be_read_under_a_whole_bcache(
    standby: LabSession, command: str
) -> None:
    """Its flash begins cold, as after each power cut."""
    before = unmounted(standby, "write-through")
    standby.sh(NODE, f"rm -f {NOTES}/main.stopped; sync")
    with broken(standby, UNDER_BCACHE):
        if command == "prepare":
            status, said = prepare(standby, ok=range(256))
        else:
            done = standby.sh(NODE, f"systemctl start {MOUNT}", ok=range(256), timeout_s=150)
            status, said = done.status, done.stderr
        print(f"  {command}: {status} {said}")
        standby.sh(NODE, f"systemctl stop {UNITS}", timeout_s=120)
        found = devices(standby)
    assert status != 0
    # The flash alone was emptied, which held nothing that the disk does not.
    before["devices"]["flash"] = found["devices"]["flash"]
    assert_as_before(standby, before)


@pytest.mark.faults
@pytest.mark.parametrize("fault", [FAULTS[0], FAULTS[3], FAULTS[4]], ids=fault_id)
def test_a_pool_in_use_is_prepared(standby: LabSession, fault: Fault) -> None:
    unmounted(standby, "write-back")
    prepare(standby)
    before = {"files": unreadable.files(standby, NODE, PATH), **devices(standby)}
    with broken(standby, fault):
        status, said = prepare(standby, ok=range(256))
        print(f"  in use, {fault.name}: {status} {said}")
    assert "SAN-BUG" not in said
    if is_mounted(standby):
        standby.sh(NODE, f"systemctl stop {UNITS}", timeout_s=120)
    assert_as_before(standby, before)


@pytest.mark.faults
def test_a_rollout_over_a_pool_that_was_made(standby: LabSession) -> None:
    """The node has come back, and its pool cannot be mounted."""
    before = unmounted(standby, "write-back")
    with broken(standby, FAULTS[0]):
        standby.sh("n3", f"sanctl node online {NODE} --timeout 5", ok=range(256), timeout_s=60)
        with pytest.raises(CommandError, match="SAN-") as failed:
            rollout.run(standby.lab, arguments=("--tags", "preflight,pools,software"))
        print(f"  {failed.value}")
        standby.sh(NODE, f"systemctl stop {UNITS}", timeout_s=120)
    assert devices(standby) == {key: before[key] for key in ("devices", "notes")}
    rollout.run(standby.lab)
    standby.sh("n3", f"sanctl node standby {NODE}", timeout_s=240)
    after = unreadable.files(standby, NODE, PATH)
    assert inodes(after) == inodes(before["files"])
    assert after["./scratch"] == before["files"]["./scratch"]


def inodes(files: dict[str, str]) -> dict[str, str]:
    """Of what a replica cannot do without."""
    kinds = (".data", ".meta", "scratch", ".sanctl-pool")
    return {name: text.split()[0] for name, text in files.items() if name.endswith(kinds)}


@pytest.mark.faults
@pytest.mark.parametrize("fault", [FAULTS[0], FAULTS[1], FAULTS[3], FAULTS[4]], ids=fault_id)
def test_a_blank_disk_with_a_sector_that_cannot_be_read_is_not_blank(
    standby: LabSession, fault: Fault
) -> None:
    """A disk that was never a pool's: it may be anybody's, until what it holds could be read."""
    unmounted(standby, "write-through")
    disks = [f"/dev/ubd{chr(ord('a') + nr)}" for nr in (ORIGIN, standby.lab.spec.all_disks)]
    kept = "/var/tmp/eio"
    standby.sh(
        NODE,
        f"mkdir -p {kept}; cp -a {NOTES} {kept}/pools; rm -f {NOTES}/main.*;"
        + "".join(
            f" dd if={disk} of={kept}/{nr} bs=1M count=2 iflag=direct status=none;"
            f" dd if=/dev/zero of={disk} bs=1M count=2 oflag=direct status=none;"
            for nr, disk in enumerate(disks)
        ),
    )
    try:
        with broken(standby, fault):
            status, said = prepare(standby, ok=range(256))
            print(f"  blank, {fault.name}: {status} {said}")
            standby.sh(NODE, f"systemctl stop {UNITS}", timeout_s=120)
        assert set("".join(unreadable.identity(standby, NODE).values())) == {"0"}
        assert status != 0 and "SAN-" in said
    finally:
        standby.sh(
            NODE,
            f"systemctl stop {UNITS}; rm -rf {NOTES}; cp -a {kept}/pools {NOTES};"
            + "".join(
                f" dd if={kept}/{nr} of={disk} bs=1M oflag=direct conv=notrunc status=none;"
                for nr, disk in enumerate(disks)
            )
            + f" rm -rf {kept}; sync",
        )
        unreadable.drop_caches(standby, NODE)
        prepare(standby)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("mode", "fault"),
    [
        ("write-back", FAULTS[0]),
        ("write-back", FAULTS[3]),
        ("write-through", FAULTS[3]),
        ("write-through", UNDER_BCACHE),
    ],
    ids=lambda each: each if isinstance(each, str) else fault_id(each),
)
def test_a_node_boots_with_it(standby: LabSession, mode: str, fault: Fault) -> None:
    """Power is cut, and at the next boot the disk cannot be read before anything is mounted."""
    bed = standby
    unmounted(bed, mode)
    prepare(bed)
    bed.sh(NODE, "echo 0 >/sys/block/bcache0/bcache/writeback_running")
    before = {"files": unreadable.files(bed, NODE, PATH), **devices(bed)}
    number = bed.lab.spec.all_disks if fault.is_flash else ORIGIN
    script = node_faults.disk_script(number, fault.does, sectors=fault.sectors)
    bed.sh(
        NODE,
        "mkdir -p /etc/systemd/system/lab-disks.service.d; cat >/usr/lib/sanctl-lab/bad;"
        " printf '[Service]\\nExecStartPost=/bin/sh /usr/lib/sanctl-lab/bad\\n'"
        " >/etc/systemd/system/lab-disks.service.d/bad.conf;"
        " mkdir -p /etc/systemd/system/sanctl-pool-cache@.service.d;"
        " printf '[Unit]\\nAfter=lab-disks.service\\n'"
        " >/etc/systemd/system/sanctl-pool-cache@.service.d/bad.conf; sync",
        stdin=script,
    )
    boot = steps.boot_id(bed, NODE)
    began_s = bed.cut_power(NODE)
    try:
        bed.ensure_power(NODE)
        wait_for(
            "another boot", lambda: steps.boot_id(bed, NODE) != boot, within_s=120, every_s=1.0
        )
        wait_for(
            "the units to have been tried",
            lambda: not bed.sh(NODE, f"systemctl list-jobs --no-legend {UNITS}").stdout.strip(),
            within_s=180,
            every_s=2.0,
        )
        print(f"  boot, {mode}, {fault.name}: mounted: {is_mounted(bed)}")
        for line in unreadable.journal(bed, NODE, began_s):
            if "anctl" in line or "SAN-" in line or "ool" in line:
                print(f"    {line}")
        if is_mounted(bed):  # without its flash, in write-through
            assert mode == "write-through" and fault.is_flash
            assert unreadable.files(bed, NODE, PATH) == before["files"]
    finally:
        bed.sh(
            NODE,
            "cd /etc/systemd/system; rm -r lab-disks.service.d sanctl-pool-cache@.service.d;"
            " systemctl daemon-reload",
        )
        break_disk(bed, NODE, number, DiskBehaviour.OK)
    found = devices(bed)
    if mode == "write-through":  # what it held, the disk has
        before["devices"]["flash"] = found["devices"]["flash"]
    assert found == {key: before[key] for key in ("devices", "notes")}
    if is_mounted(bed):
        bed.sh(NODE, f"systemctl stop {UNITS}; {RELEASE}", timeout_s=120)
    print(f"    then: {prepare(bed)[1]}")
    assert unreadable.files(bed, NODE, PATH) == before["files"]
