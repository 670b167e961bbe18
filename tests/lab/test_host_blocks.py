# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts have blocks of 512 bytes, whatever the file or the disk of a replica asks for.

The loop device over a file on XFS that shares blocks, or on a disk with blocks of 4096 bytes, has
blocks of 4096 by the kernel's choice: what a host reads in 512 bytes would be an I/O error there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import ledgers, steps

NAME = "blocks0"
SERVED_WITHIN_S, WHOLE_WITHIN_S = 120.0, 300.0

#: Makes a file that wants blocks of 4096 bytes: by sharing blocks, or by its disk.
_FILE = "mount $disk m; dd if=/dev/urandom of=m/f bs=1M count=8"
_SHARES = f"mkfs.xfs -q $disk; {_FILE}; cp --reflink=always m/f m/g"
_LARGE = f"mkfs.ext4 -q $disk; {_FILE}"
#: Prints, of the kernel's choice and of ours: block, direct I/O, result of direct I/O in 512 bytes;
#: of ours also whether direct I/O was refused later, and the dirty bytes after a write.
_ASK = """
import json, mmap, os
from sanctl.drivers import loop, page_cache

def look(block_bytes):
    device = loop.attach("m/f", block_bytes=block_bytes)
    try:
        stays_buffered = page_cache.set_buffered("m/f", on=False)
        page_cache.set_synchronous("m/f", on=True)
        with open(f"/sys/block/{device[5:]}/queue/logical_block_size") as text:
            block = int(text.read())
        handle, memory = os.open(device, os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, 4096)
        try:
            os.preadv(handle, [memoryview(memory)[:512]], 512)
            memory[:512] = bytes([7]) * 512
            os.pwritev(handle, [memoryview(memory)[:512]], 1536)
            with open("m/f", "rb") as file:
                outcome = "written" if file.read(2048)[1536:] == bytes([7]) * 512 else "wrong"
        except OSError as error:
            outcome = os.strerror(error.errno)
        finally:
            os.close(handle)
        used = page_cache.usage("m/f")
        return block, stays_buffered, outcome, used and used.dirty_bytes
    finally:
        page_cache.set_synchronous("m/f", on=False)
        loop.detach("m/f")

os.chdir(FOLDER)
loop.find = lambda path, find=loop.find: find(os.path.abspath(path))
loop.detach = lambda path, detach=loop.detach: detach(os.path.abspath(path))
print(json.dumps([look(0), look(loop.HOST_BLOCK_BYTES)]))
"""


@pytest.mark.quick
@pytest.mark.parametrize(
    ("make", "sector"), [(_SHARES, 512), (_LARGE, 4096)], ids=["shared-blocks", "4096-byte-disk"]
)
def test_a_loop_device_has_the_blocks_of_hosts(bed: LabSession, make: str, sector: int) -> None:
    folder = "/var/tmp/blocks"
    mounted = f"mkdir -p {folder}/m; cd {folder}; truncate -s 400M disk.img; disk=$(losetup"
    # udev may have the loop device over the file open for a moment, which keeps the mount busy.
    undo = "for i in $(seq 100); do umount m && break; sleep 0.1; done; losetup -d $disk; rm -r"
    script = _ASK.replace("FOLDER", repr(folder))
    out = bed.sh(
        "n2",
        f"{mounted} --find --show --sector-size {sector} disk.img)\n{{ {make}; }} >&2\n"
        f"(cd /opt/sanctl/current && python3 -) \n{undo} {folder}",
        stdin=script,
        timeout_s=120,
    ).stdout
    kernels, ours = json.loads(out)
    assert kernels == [4096, False, "Invalid argument", 0]
    assert ours == [512, True, "written", 0]


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture
def load(bed: LabSession) -> Iterator[LedgerLoad]:
    scenario = Scenario(bed, Initiator(bed, "i1"))
    made = ledgers.start_on_new_device(scenario, NAME, "128M", rate=100, region_bytes=8 << 20)
    yield made
    ledgers.stop(made)
    scenario.delete(NAME)


def replica(bed: LabSession, node: str) -> Any:
    shown = bed.sh("n3", f"sanctl device show {NAME} --output json", timeout_s=90).stdout
    return next(one for one in json.loads(shown)["data"]["replicas"] if one["node"] == node)


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_a_replica_that_shares_blocks_serves_after_a_failover(load: LedgerLoad) -> None:
    bed = load.bed
    bed.sh("n2", f"cd /srv/sanctl/main/devices; cp --reflink=always {NAME}.*.data copy.img")
    bed.sh("n3", "sanctl node standby n2", timeout_s=240)
    bed.sh("n3", "sanctl node online n2", timeout_s=240)
    wait_for("both replicas", lambda: collect.is_in_sync(bed, "n1", NAME), within_s=WHOLE_WITHIN_S)
    wait_for(
        "the reason on n2",
        lambda: replica(bed, "n2")["cache"]["reason"] == "blocks",
        within_s=SERVED_WITHIN_S,
        every_s=3.0,
    )
    assert replica(bed, "n2")["cache"]["mode"] == "write-through"
    assert steps.kernel_mode(bed, NAME, "n2") == "write-through"
    assert f"SAN-HLT-054 device {NAME}" in steps.findings(bed, "n3", "status")

    bed.cut_power("n1")
    wait_for(
        "n2 to serve",
        lambda: collect.active_node(bed, NAME) == "n2",
        within_s=SERVED_WITHIN_S,
    )
    # What failed: DRBD dropped the only good disk at a host's first read of 512 bytes.
    load.host.sh(f"dd if={load.run.device} of=/dev/null bs=512 count=9 skip=3 iflag=direct")
    bed.ensure_power("n1")
    wait_for("both replicas", lambda: collect.is_in_sync(bed, "n2", NAME), within_s=WHOLE_WITHIN_S)

    # Write-back needs no direct I/O, and its end must not wait for it.
    for mode in ("write-back", "write-through", "none"):
        bed.sh("n3", f"sanctl device cache {NAME} {mode}", timeout_s=150)
    assert steps.kernel_mode(bed, NAME, "n2") == "write-through"
    assert steps.kernel_mode(bed, NAME, "n1") == "none"
    bed.sh("n2", "rm /srv/sanctl/main/devices/copy.img")
    ledgers.assert_nothing_lost(load)
