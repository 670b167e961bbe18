# SPDX-License-Identifier: GPL-2.0-or-later
"""Many devices at once: created by one change of the CIB, all or none, and deleted by one command.

Also while a node loses power: what was created comes up when the node is back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online

NODES = ("n1", "n2")
PREFIX = "batch"


def names(count: int) -> tuple[str, ...]:
    return tuple(f"{PREFIX}{number}" for number in range(count))


def epoch(bed: LabSession) -> int:
    """Return how often the CIB's configuration has been changed."""
    found = re.search(r'\sepoch="(\d+)"', bed.sh("n3", "cibadmin -Q --no-children").stdout)
    assert found is not None
    return int(found[1])


def left(bed: LabSession) -> dict[str, str]:
    """Return what there is of the devices of this test in the CIB and on each storage node."""
    script = (
        f"ls /srv/sanctl/main/devices /run/sanctl/drbd.d /run/sanctl/devices | grep {PREFIX};"
        f" losetup -a | grep {PREFIX}; dmsetup ls | grep {PREFIX};"
        f" drbdsetup events2 --now | grep name:{PREFIX};"
        f" find /sys/kernel/config/target -name '*{PREFIX}*'"
    )
    found = {node: bed.sh(node, script, ok=range(256)).stdout for node in NODES}
    found["CIB"] = bed.sh(
        "n3", f"cibadmin --query | grep -v lrm | grep '{PREFIX}'", ok=(0, 1)
    ).stdout
    return {where: text for where, text in found.items() if text}


def are_whole(bed: LabSession, devices: tuple[str, ...]) -> bool:
    """Whether each is served by one node, and its replicas are in sync."""
    states = {node: bed.sh(node, "drbdsetup events2 --now --statistics").stdout for node in NODES}
    return all(
        sum(f"resource name:{name} role:Primary" in text for text in states.values()) == 1
        and all(
            re.search(rf"peer-device name:{name} .*Established peer-disk:UpToDate", text)
            for text in states.values()
        )
        for name in devices
    )


def delete_all(scenario: Scenario) -> None:
    found = [name for name in names(10) if scenario.exists(name)]
    if found:
        scenario.sanctl(
            "device", "delete", *found, "--yes", "--accept", "SAN-DEV-023", timeout_s=500
        )
    wait_for("nothing to be left", lambda: not left(scenario.bed), within_s=60, every_s=1.0)


@pytest.fixture(autouse=True)
def nothing_else(scenario: Scenario) -> Iterator[None]:
    await_members_online(scenario.bed)
    yield
    delete_all(scenario)


@pytest.mark.timeout(900)
def test_ten_are_created_by_one_change_and_deleted_by_one_command(scenario: Scenario) -> None:
    bed = scenario.bed
    before, began_s = epoch(bed), time.monotonic()
    bed.sh(
        "n1",
        "sanctl device create --names-from - --size 32M --replicas 2",
        stdin="".join(f"{name}\n" for name in names(9)) + "batch9 64M  # the largest\n",
        timeout_s=500,
    )
    print(f"  ten created in {time.monotonic() - began_s:.0f} s")
    # One for all of them; and one for each, by which its first promotion is recorded.
    assert epoch(bed) == before + 1 + 10
    assert are_whole(bed, names(10))
    minors = {collect.drbd_minor(bed, "n2", name) for name in names(10)}
    assert len(minors) == 10
    sizes = {name: collect.device_bytes(bed, "n2", name) >> 20 for name in names(10)}
    assert sizes == {**dict.fromkeys(names(9), 32), "batch9": 64}

    before, began_s = epoch(bed), time.monotonic()
    scenario.sanctl(
        "device", "delete", *names(10), "--yes", "--accept", "SAN-DEV-023", timeout_s=500
    )
    print(f"  ten deleted in {time.monotonic() - began_s:.0f} s")
    assert left(bed) == {}
    # One to stop them all, one to remove them all, and for the tombstones one of each node; a few
    # more where a program still had a file's loop device open.
    assert before + 2 + 2 <= epoch(bed) <= before + 2 + 8


def test_one_that_cannot_be_created_keeps_the_others_from_it(scenario: Scenario) -> None:
    bed = scenario.bed
    before = epoch(bed)
    for words, status, code in (
        ("batch0 batch1 Batch2 --size 32M", 2, "SAN-NAME-001"),
        ("batch0 batch1 batch0 --size 32M", 2, "SAN-DEV-021"),
        # Each has room by itself; all together have not.
        ("batch0 batch1 batch2 batch3 --size 1100M", 4, "SAN-POOL-012"),
    ):
        done = bed.sh("n1", f"sanctl device create {words}", ok=range(256), timeout_s=60)
        assert (done.status, code in done.stderr) == (status, True), done.stderr
        print("  " + done.stderr.strip().replace("\n", "\n  "))
    assert epoch(bed) == before
    assert left(bed) == {}


@pytest.mark.timeout(300)
def test_who_is_killed_between_files_and_tombstones_leaves_the_rest_to_the_monitor(
    scenario: Scenario,
) -> None:
    bed, made = scenario.bed, names(2)
    scenario.sanctl("device", "create", *made, "--size", "32M", "--replicas", "2", timeout_s=200)
    step = "/run/sanctl/die-after/deleted-files"
    bed.sh("n2", f"mkdir -p /run/sanctl/die-after && touch {step}")
    scenario.sanctl("device", "delete", *made, "--yes", "--accept", "SAN-DEV-023", timeout_s=200)
    assert bed.sh("n2", f"ls {step}", ok=(0, 2)).status == 2, "it was killed"
    assert left(bed) == {}


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_a_node_that_dies_meanwhile_gets_its_replicas_when_it_is_back(scenario: Scenario) -> None:
    bed = scenario.bed
    made = names(6)
    with ThreadPoolExecutor() as pool:
        command = pool.submit(
            bed.sh,
            "n1",
            f"sanctl device create {' '.join(made)} --size 32M --replicas 2 --timeout 20",
            ok=range(256),
            timeout_s=150,
        )
        wait_for(
            "the first replica to be there",
            lambda: f"name:{PREFIX}" in bed.sh("n2", "drbdsetup events2 --now").stdout,
            within_s=60,
            every_s=0.2,
        )
        bed.cut_power("n2")
        done = command.result()
    print("  " + done.stderr.strip().replace("\n", "\n  "))
    # All of them could not be: the command says so, and names one that is missing.
    assert done.status in {5, 7}
    assert any(name in done.stderr.splitlines()[-1] for name in made)
    bed.ensure_power("n2")
    wait_for("all to be whole", lambda: are_whole(bed, made), within_s=400, every_s=3.0)
