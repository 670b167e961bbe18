# SPDX-License-Identifier: GPL-2.0-or-later
"""The read cache in RAM (dm-cache): its size, the node that has it, no stale read.

In file order, on one device under a ledger in its second half; the first half is for the host's
own blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network
from tests.support import ledgers

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "reads0"
MIB = 2**20
SIZE = 16 * MIB
TOP = f"/dev/mapper/sanctl-{NAME}"
# A monitor's interval, and some for a machine that does other things too.
SOON_S = 60.0
BACK_S = 400.0


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    target = scenario.create(NAME, "128M", prefer="n1")
    path = scenario.host.login(
        target, [node.address(Network.ISCSI) for node in scenario.bed.storage]
    )
    made = ledgers.start(scenario, NAME, target, path, rate=20, region_bytes=32 * MIB)
    yield made
    ledgers.stop(made)
    scenario.delete(NAME)


def cache_of(bed: LabSession, node: str) -> dict[str, Any]:
    """Return the cache of a replica as `device show` has it."""
    shown = bed.sh("n3", f"sanctl device show {NAME} --output json", timeout_s=90).stdout
    replicas = json.loads(shown)["data"]["replicas"]
    found = next(each["cache"] for each in replicas if each["node"] == node)
    assert isinstance(found, dict)
    return found


def parts(bed: LabSession, node: str) -> str:
    """Return the dm devices and files of a read cache on a node, read without sanctl's code."""
    return bed.sh(
        node,
        f"dmsetup ls | grep '^sanctl-{NAME}.ram'; losetup -n -O BACK-FILE | grep /ram/{NAME};"
        f" ls /run/sanctl/ram 2>/dev/null | grep {NAME}; true",
    ).stdout.strip()


def set_read_cache(bed: LabSession, size: str, mode: str = "none") -> None:
    bed.sh("n3", f"sanctl device cache {NAME} {mode} --read-cache {size}", timeout_s=150)


def write_blocks(load: LedgerLoad, word: str, count: int, at: int = 16384) -> None:
    """Write a word over and over into blocks of 4 KiB in the second half of the device."""
    load.host.sh(
        f"yes {word} | dd of={load.run.device} bs=4096 count={count} seek={at} oflag=direct"
        " iflag=fullblock conv=notrunc",
        timeout_s=120,
    )


def read_blocks(load: LedgerLoad, count: int, at: int = 16384) -> dict[str, int]:
    """How often each word is in these blocks, past the host's own cache."""
    out = load.host.sh(
        f"dd if={load.run.device} bs=4096 count={count} skip={at} iflag=direct 2>/dev/null"
        " | tr '\\0' z | fold -w 4 | sort | uniq -c",
        timeout_s=300,
    )
    return {word: int(times) for times, word in (line.split() for line in out.splitlines())}


def test_it_holds_what_is_read_and_no_more_ram_than_its_size(load: LedgerLoad) -> None:
    bed = load.bed
    set_read_cache(bed, "16M")
    assert cache_of(bed, "n1")["read"] == SIZE and parts(bed, "n1") != ""
    assert parts(bed, "n2") == "", "a standby reads nothing"
    write_blocks(load, "abc", 2048)
    for _ in range(4):
        assert read_blocks(load, 2048) == {"abc": 2048 * 1024}
    # Four times as much as it may hold.
    load.host.sh(
        f"dd if={load.run.device} of=/dev/null bs=64k count=1024 skip=1024 iflag=direct",
        timeout_s=300,
    )
    for _ in range(4):
        read_blocks(load, 2048)
    used = bed.sh("n1", f"du -B1 -c /run/sanctl/ram/{NAME}.* | tail -1").stdout.split()[0]
    assert 0 < int(used) < SIZE + 5 * MIB, used
    reported = wait_for(
        "hits",
        lambda: reported if (reported := cache_of(bed, "n1"))["read_hit_percent"] else None,
        within_s=SOON_S,
        every_s=3.0,
    )
    assert 0 < reported["read_held"] <= SIZE


def test_a_write_is_on_the_disk_and_read_back(load: LedgerLoad) -> None:
    bed = load.bed
    write_blocks(load, "new", 2048)
    assert read_blocks(load, 2048) == {"new": 2048 * 1024}
    # The same on the other node's disk, and on this one's below the cache.
    for node in bed.storage:
        out = bed.sh(
            node.name,
            f"sync; dd if=$(ls /srv/sanctl/main/devices/{NAME}.*.data) bs=4096 skip=16384"
            " count=2048 iflag=direct 2>/dev/null | grep -c new",
            timeout_s=120,
        ).stdout
        assert int(out) == 2048 * 1024, node.name


def test_what_is_unmapped_reads_as_zeros(load: LedgerLoad) -> None:
    """dm-cache alone would go on to give what it held."""
    bed = load.bed
    assert read_blocks(load, 2048) == {"new": 2048 * 1024}
    disk = f"$(dmsetup info -c --noheadings -o blkdevname sanctl-{NAME}.disk)"
    reported = bed.sh("n1", f"cat /sys/block/{disk}/queue/discard_max_bytes").stdout
    assert reported.strip() == "0"
    # As a host would that has not heard yet that it cannot.
    bed.sh("n1", f"blkdiscard -f --offset {64 * MIB} --length {4 * MIB} {TOP}", timeout_s=120)
    assert read_blocks(load, 1024) == {"zzzz": 1024 * 1024}
    assert read_blocks(load, 1024, at=16384 + 1024) == {"new": 1024 * 1024}
    # And the targets report so to hosts.
    attribute = f"/sys/kernel/config/target/core/iblock_*/sanctl-{NAME}/attrib/emulate_tpu"
    for node in bed.storage:
        assert bed.sh(node.name, f"cat {attribute}").stdout.strip() == "0"


def test_it_grows_shrinks_and_goes_while_hosts_write(load: LedgerLoad) -> None:
    bed = load.bed
    for size, wanted in (("32M", 32 * MIB), ("8M", 8 * MIB), ("none", None)):
        set_read_cache(bed, size)
        assert cache_of(bed, "n1")["read"] == wanted
    assert parts(bed, "n1") == ""
    attribute = f"/sys/kernel/config/target/core/iblock_*/sanctl-{NAME}/attrib/emulate_tpu"
    assert bed.sh("n1", f"cat {attribute}").stdout.strip() == "1"
    set_read_cache(bed, "16M", mode="write-through")


def test_more_ram_than_there_is_is_refused_by_the_node(load: LedgerLoad) -> None:
    bed = load.bed
    held = bed.sh("n1", "mkdir -p /run/hog && mount -t ramfs hog /run/hog; free -b | grep Mem:")
    total = int(held.stdout.split()[1])
    try:
        free = int(held.stdout.split()[6])
        bed.sh("n1", f"head -c {max(free - total // 4, 0)} /dev/zero >/run/hog/hog", timeout_s=120)
        set_read_cache(bed, "128M", mode="write-through")
        reported = cache_of(bed, "n1")
        assert (reported["read"], reported["read_reason"]) == (0, "no-ram")
    finally:
        bed.sh("n1", "umount /run/hog")
    wait_for(
        "the read cache, now that there is room",
        lambda: cache_of(bed, "n1")["read"] == 128 * MIB,
        within_s=SOON_S,
        every_s=3.0,
    )


def test_it_is_away_while_the_replicas_are_compared(load: LedgerLoad) -> None:
    bed = load.bed
    set_read_cache(bed, "16M", mode="write-through")
    with bed.stream(
        "n1", f"while :; do dmsetup table sanctl-{NAME}.ram >/dev/null 2>&1 && have=in || have=out;"
        " echo $have $(drbdsetup status --verbose | grep -o 'replication:Verify[ST]'); sleep 0.2;"
        " done",
    ) as watch:  # fmt: skip
        bed.sh("n3", f"sanctl device verify {NAME}", timeout_s=240)
        watch.terminate()
        assert watch.stdout is not None
        seen = set(watch.stdout.read().splitlines())
    assert "in replication:VerifyS" not in seen
    assert "out replication:VerifyS" in seen
    wait_for(
        "the read cache to be back",
        lambda: cache_of(bed, "n1")["read"] == SIZE,
        within_s=SOON_S,
        every_s=3.0,
    )


def test_it_follows_the_device_and_grows_with_it(load: LedgerLoad) -> None:
    bed = load.bed
    bed.sh("n3", f"sanctl device move {NAME} --to n2", timeout_s=150)
    wait_for(
        "a read cache on the node that serves now",
        lambda: cache_of(bed, "n2")["read"] == SIZE and parts(bed, "n1") == "",
        within_s=SOON_S,
        every_s=3.0,
    )
    bed.sh("n3", f"sanctl device resize {NAME} 160M", timeout_s=150)
    wait_for(
        "the read cache of the larger device",
        lambda: cache_of(bed, "n2")["read"] == SIZE and collect.is_in_sync(bed, "n2", NAME),
        within_s=SOON_S,
        every_s=3.0,
    )
    assert collect.device_bytes(bed, "n2", NAME) == 160 * MIB
    assert read_blocks(load, 1024, at=16384 + 1024) == {"new": 1024 * 1024}


def test_the_power_of_the_node_that_serves_is_cut(load: LedgerLoad) -> None:
    """The read cache held no dirty data; the node that takes over starts with an empty one."""
    bed = load.bed
    write_blocks(load, "cut", 1024, at=16384 + 1024)
    assert read_blocks(load, 1024, at=16384 + 1024) == {"cut": 1024 * 1024}
    assert parts(bed, "n2") != ""
    bed.cut_power("n2")
    wait_for(
        "n1 to serve, with a read cache",
        lambda: cache_of(bed, "n1")["read"] == SIZE,
        within_s=2 * SOON_S,
        every_s=3.0,
    )
    assert read_blocks(load, 1024, at=16384 + 1024) == {"cut": 1024 * 1024}
    bed.ensure_power("n2")
    wait_for(
        "both replicas", lambda: collect.is_in_sync(bed, "n1", NAME), within_s=BACK_S, every_s=3.0
    )
    assert parts(bed, "n2") == "", "a standby reads nothing"
    bed.sh("n3", f"sanctl device move {NAME} --to n2", timeout_s=150)
    wait_for(
        "its read cache on the node that is back",
        lambda: cache_of(bed, "n2")["read"] == SIZE,
        within_s=SOON_S,
        every_s=3.0,
    )
    assert read_blocks(load, 1024, at=16384 + 1024) == {"cut": 1024 * 1024}


def test_what_a_killed_agent_has_left_is_cleared_up(load: LedgerLoad) -> None:
    """Dead after the parts were made, before anything led onto them; and the other way round."""
    bed = load.bed
    set_read_cache(bed, "none", mode="write-through")
    assert parts(bed, "n2") == ""
    folder = "/run/sanctl/ram"
    bed.sh(
        "n2",
        f"for part in blocks map; do truncate -s 8M {folder}/{NAME}.$part;"
        f" losetup -f {folder}/{NAME}.$part; done;"
        f" dmsetup create sanctl-{NAME}.ram --table '0 8 zero'",
    )
    wait_for("the parts to go", lambda: parts(bed, "n2") == "", within_s=SOON_S, every_s=3.0)
    # Loaded, and not yet in force: the kernel holds what it would lead onto.
    bed.sh(
        "n2",
        f"sectors=$(dmsetup table sanctl-{NAME}.disk | cut -d ' ' -f 2);"
        f' dmsetup create sanctl-{NAME}.ram --table "0 $sectors zero";'
        f" dmsetup reload sanctl-{NAME}.disk"
        f' --table "0 $sectors delay /dev/mapper/sanctl-{NAME}.ram 0 0"',
    )
    wait_for("that part to go", lambda: parts(bed, "n2") == "", within_s=SOON_S, every_s=3.0)
    set_read_cache(bed, "16M", mode="write-through")
    bed.sh(
        "n2",
        f"loop=$(losetup -n -O NAME -j /srv/sanctl/main/devices/{NAME}.*.data);"
        f' dmsetup reload sanctl-{NAME}.disk --table "0 $(blockdev --getsz $loop) delay $loop 0 0";'
        f" dmsetup resume sanctl-{NAME}.disk",
    )
    wait_for(
        "the read cache to be made again",
        lambda: cache_of(bed, "n2")["read"] == SIZE,
        within_s=SOON_S,
        every_s=3.0,
    )


def test_a_table_that_was_only_loaded_is_not_taken_for_the_one_in_force(
    load: LedgerLoad,
) -> None:
    """An agent killed between the two: sysfs shows what both tables lead onto."""
    bed = load.bed
    bed.sh(
        "n2",
        f"loop=$(losetup -n -O NAME -j /srv/sanctl/main/devices/{NAME}.*.data);"
        f' dmsetup reload sanctl-{NAME}.disk --table "0 $(blockdev --getsz $loop) delay $loop 0 0"',
    )
    set_read_cache(bed, "none", mode="write-through")
    assert parts(bed, "n2") == ""


def test_no_acknowledged_write_is_lost_in_the_end(load: LedgerLoad) -> None:
    ledgers.assert_nothing_lost(load, more_than=100)
