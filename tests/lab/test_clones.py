# SPDX-License-Identifier: GPL-2.0-or-later
"""Devices that are made from a restore point: whole on every node, and on their own from then on.

A replica that is no copy of the restore point is never declared good.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import node_faults
from sanctl.lab.machines.node_faults import FilledFilesystem
from sanctl.system.runner import LocalRunner
from tests.support import ledgers, steps

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

ORIGIN, QUIET, CLONE = "orig", "quiet", "copy"
NODES = ("n1", "n2")
SIZE = "64M"
REGION_BYTES = 8 << 20


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """Return a ledger on the origin, which runs in all of these tests."""
    load = ledgers.start_on_new_device(
        scenario, ORIGIN, SIZE, rate=100.0, region_bytes=REGION_BYTES
    )
    # Something that is not zero all over the device.
    load.host.sh(
        f"dd if=/dev/urandom of={load.run.device} bs=1M seek=32 count=24 oflag=direct conv=fsync",
        timeout_s=120,
    )
    yield load
    ledgers.stop(load)
    remove(scenario, ORIGIN)


@pytest.fixture(scope="module")
def copy_load(scenario: Scenario, load: LedgerLoad) -> Iterator[LedgerLoad]:
    """Return a ledger on the clone, which the host uses beside the origin."""
    target = f"{scenario.iqn_prefix()}.{CLONE}"
    path = scenario.host.login(target, scenario.portals())
    made = ledgers.start(scenario, CLONE, target, path, rate=100.0, region_bytes=REGION_BYTES)
    yield made
    ledgers.stop(made)
    remove(scenario, CLONE)


def remove(scenario: Scenario, name: str) -> None:
    """Delete a device that a test may have deleted already."""
    scenario.host.logout(f"{scenario.iqn_prefix()}.{name}")
    scenario.bed.sh(
        "n3",
        f"sanctl device delete {name} --yes --accept SAN-DEV-023 --with-points",
        timeout_s=240,
        ok=(0, 4),
    )


def run(bed: LabSession, *words: str, status: int = 0) -> Any:
    """Run a command; return its JSON's data, or its problems where it is to fail."""
    done = bed.sh("n3", f"sanctl {' '.join(words)} --output json", timeout_s=300, ok=range(256))
    assert done.status == status, done.stdout + done.stderr
    found = json.loads(done.stdout)
    return found["problems"] if status else found["data"]


def take(bed: LabSession, device: str, name: str) -> Any:
    return steps.take_point(bed, "n3", device, name)


def clone(bed: LabSession, name: str, origin: str, *words: str, status: int = 0) -> Any:
    began_s = time.monotonic()
    found = run(bed, "device create", name, "--from", origin, *words, status=status)
    print(f"  {name} from {origin}: {time.monotonic() - began_s:.1f} s")
    return found


def digest(bed: LabSession, node: str, path: str) -> str:
    return bed.sh(node, f"sha256sum <{path}", timeout_s=120).stdout.split()[0]


def data_digest(bed: LabSession, node: str, name: str) -> str:
    return digest(bed, node, f"$(ls /srv/sanctl/main/devices/{name}.*.data)")


def point_digest(bed: LabSession, node: str, point: str, *, of: str = ORIGIN) -> str:
    return digest(bed, node, run(bed, "snapshot show", f"{of}@{point}")["file"])


def sent_kib(bed: LabSession, node: str, minor: int) -> tuple[int, int]:
    """Return how many KiB DRBD of a node has sent and received for a device."""
    text = bed.sh(node, "cat /proc/drbd").stdout
    found = re.search(rf"^ *{minor}: .*\n +ns:(\d+) nr:(\d+)", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1]), int(found[2])


def test_a_clone_is_the_restore_point_on_both_nodes_at_once(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed = scenario.bed
    steps.await_writes(load)
    take(bed, ORIGIN, "p0")
    steps.await_writes(load)
    began_s = time.time()
    made = clone(bed, CLONE, f"{ORIGIN}@p0", "--initiator", scenario.host.iqn, "--prefer", "n2")
    origin = run(bed, "device show", ORIGIN)
    assert made["made_from"] == f"{ORIGIN}@p0"
    assert made["size"] == origin["size"]
    assert not {made["uuid"], made["wwid"], made["target"]} & set(map(str, origin.values()))
    assert made["minor"] != origin["minor"]
    assert [each["disk"] for each in made["replicas"]] == ["UpToDate", "UpToDate"]
    point = {point_digest(bed, node, "p0") for node in NODES}
    assert len(point) == 1
    assert {data_digest(bed, node, CLONE) for node in NODES} == point
    assert [sent_kib(bed, node, made["minor"]) for node in NODES] == [(0, 0), (0, 0)]
    verified = run(bed, "device verify", CLONE)
    assert verified["verify"]["result"] == "same", verified
    steps.assert_not_interrupted(load, began_s)


def test_both_are_written_beside_each_other(
    scenario: Scenario, load: LedgerLoad, copy_load: LedgerLoad
) -> None:
    bed = scenario.bed
    assert copy_load.run.device != load.run.device
    assert point_digest(bed, "n1", "p0") == point_digest(bed, "n2", "p0")
    before = point_digest(bed, "n1", "p0")
    for each in (load, copy_load):
        steps.await_writes(each)
    copy_load.host.sh(
        f"dd if=/dev/zero of={copy_load.run.device} bs=1M seek=40 count=8 oflag=direct conv=fsync",
        timeout_s=60,
    )
    at = (
        f"bs=1M skip=40 count=8 iflag=direct status=none if={load.run.device} | tr -d '\\0' | wc -c"
    )
    assert int(load.host.sh(f"dd {at}")) > 7 << 20, "the origin has lost what its clone overwrote"
    assert {point_digest(bed, node, "p0") for node in NODES} == {before}


def test_a_clone_fails_over(scenario: Scenario, load: LedgerLoad, copy_load: LedgerLoad) -> None:
    bed = scenario.bed
    lost = collect.active_node(bed, CLONE)
    began_s = time.time()
    bed.cut_power(lost)
    try:
        steps.await_writes(copy_load)
        steps.await_writes(load)
    finally:
        bed.ensure_power(lost)
    failover.await_healthy(bed, "n3")
    for each in (load, copy_load):
        steps.assert_no_error(each, began_s)
    assert {steps.kernel_mode(bed, CLONE, node) for node in NODES} == {"write-through"}


def test_a_data_file_that_is_lost_is_not_made_from_the_point_again(
    scenario: Scenario, load: LedgerLoad, copy_load: LedgerLoad
) -> None:
    """It is empty, and filled by its peer: the point is older than what hosts have written."""
    bed = scenario.bed
    lost = "n1" if collect.active_node(bed, CLONE) == "n2" else "n2"
    bed.sh("n3", f"sanctl node standby {lost}", timeout_s=180)
    bed.sh(lost, f"rm /srv/sanctl/main/devices/{CLONE}.*.data")
    bed.sh("n3", f"sanctl node online {lost}", timeout_s=240)
    wait_for("the clone", lambda: collect.is_in_sync(bed, lost, CLONE), within_s=240)
    minor = run(bed, "device show", CLONE)["minor"]
    # Zeros are not sent.
    assert sent_kib(bed, lost, minor)[1] >= 16 << 10
    copy_load.host.sh(f"systemctl stop {copy_load.run.unit}", timeout_s=150)
    check = copy_load.host.check_ledger(copy_load.run)
    print(f"  clone: {check['acknowledged']} acknowledged, {check['lost']} lost")
    assert check["acknowledged"] > 200
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]
    assert len({data_digest(bed, node, CLONE) for node in NODES}) == 1


def test_clones_are_whole_without_their_origin(
    scenario: Scenario, load: LedgerLoad, copy_load: LedgerLoad
) -> None:
    bed = scenario.bed
    ledgers.assert_nothing_lost(load)
    before = {data_digest(bed, node, CLONE) for node in NODES}
    scenario.host.logout(load.target)
    bed.sh(
        "n3",
        f"sanctl device delete {ORIGIN} --yes --accept SAN-DEV-023 --with-points",
        timeout_s=240,
    )
    assert run(bed, "snapshot list") == []
    assert {data_digest(bed, node, CLONE) for node in NODES} == before
    read = copy_load.host.sh(
        f"dd if={copy_load.run.device} bs=4M iflag=direct status=none | sha256sum", timeout_s=120
    )
    assert {read.split()[0]} == before
    bed.sh("n3", f"sanctl device move {CLONE} --to n1", timeout_s=120)
    bed.sh("n3", f"sanctl device move {CLONE} --to n2", timeout_s=120)
    assert {data_digest(bed, node, CLONE) for node in NODES} == before
    shown = run(bed, "device show", CLONE)
    assert shown["made_from"] == f"{ORIGIN}@p0"


@pytest.fixture(scope="module")
def origin(scenario: Scenario) -> Iterator[str]:
    """Return a device that no host uses, with a restore point `both` on both nodes."""
    bed = scenario.bed
    run(bed, "device create", QUIET, "--size", SIZE, "--prefer", "n1")
    bed.sh(
        "n1",
        f"dd if=/dev/urandom of=/dev/mapper/sanctl-{QUIET} bs=1M count=60 oflag=direct"
        " conv=nocreat,notrunc,fsync",
        timeout_s=120,
    )
    take(bed, QUIET, "both")
    yield QUIET
    remove(scenario, QUIET)


def test_what_is_refused_changes_nothing(scenario: Scenario, origin: str) -> None:
    bed = scenario.bed
    before = [each["name"] for each in run(bed, "device list")]
    for words, code, status in (
        (f"new --from {origin}", "SAN-SNAP-008", 2),
        (f"new --from {origin}@none", "SAN-SNAP-009", 4),
        ("new --from nothing@both", "SAN-DEV-002", 4),
        (f"new --from {origin}@both --size 1G", "SAN-CLONE-001", 2),
        (f"new --from {origin}@both --nodes n1,n3", "SAN-NODE-002", 4),
        (f"{origin} --from {origin}@both", "SAN-DEV-001", 4),
    ):
        problems = run(bed, "device create", words, status=status)
        assert code in str(problems), (words, problems)
    assert [each["name"] for each in run(bed, "device list")] == before


@pytest.mark.parametrize("step", ["clone-copied", "clone-stable", "clone-named"])
def test_a_start_that_is_killed(scenario: Scenario, origin: str, step: str) -> None:
    bed = scenario.bed
    bed.sh("n2", f"mkdir -p /run/sanctl/die-after && touch /run/sanctl/die-after/{step}")
    try:
        bed.sh(
            "n3", f"sanctl device create killed --from {origin}@both --timeout 60",
            timeout_s=120, ok=range(1, 256),
        )  # fmt: skip
        assert bed.sh("n2", f"ls /run/sanctl/die-after/{step}", ok=(0, 2)).status == 2
        seen = run(bed, "device show killed")
        assert "UpToDate" not in {each["disk"] for each in seen["replicas"]}, seen
        for words in (
            f"snapshot delete {origin}@both --yes",
            f"device delete {origin} --yes --accept SAN-DEV-023 --with-points",
        ):
            assert "SAN-CLONE-005" in str(run(bed, words, status=4))
        bed.sh("n2", "crm_resource --cleanup --resource killed", timeout_s=60)
        wait_for("the clone", lambda: collect.is_in_sync(bed, "n1", "killed"), within_s=120)
        wanted = point_digest(bed, "n1", "both", of=origin)
        assert {data_digest(bed, node, "killed") for node in NODES} == {wanted}
        assert "cloning" not in bed.sh("n2", "ls /srv/sanctl/main/devices").stdout
    finally:
        bed.sh("n2", f"rm -f /run/sanctl/die-after/{step}")
        remove(scenario, "killed")


def test_a_replica_without_the_point_is_filled_from_one_that_has_it(
    scenario: Scenario, origin: str
) -> None:
    """It holds zeros, and is never declared good: `skip-sync` is not for it."""
    bed = scenario.bed
    bed.sh("n3", "sanctl node standby n2", timeout_s=180)
    try:
        made = take(bed, origin, "alone")
        assert made["missing_on"] == ["n2"]
    finally:
        bed.sh("n3", "sanctl node online n2", timeout_s=240)
    problems = clone(bed, "filled", f"{origin}@alone", "--replicas 1 --nodes n2 --yes", status=4)
    assert "SAN-CLONE-004" in str(problems)
    try:
        made = clone(bed, "filled", f"{origin}@alone")
        wanted = point_digest(bed, "n1", "alone", of=origin)
        assert {data_digest(bed, node, "filled") for node in NODES} == {wanted}
        assert sent_kib(bed, "n1", made["minor"])[0] >= 56 << 10
        bed.sh("n3", "sanctl device move filled --to n2", timeout_s=120)
        assert run(bed, "device verify filled")["verify"]["result"] == "same"
    finally:
        remove(scenario, "filled")


def test_a_node_dies_while_a_clone_is_made(scenario: Scenario, origin: str) -> None:
    bed = scenario.bed
    bed.sh("n2", "mkdir -p /run/sanctl/die-after && touch /run/sanctl/die-after/clone-copied")
    try:
        bed.sh(
            "n3", f"sanctl device create late --from {origin}@both --timeout 60",
            timeout_s=120, ok=range(1, 256),
        )  # fmt: skip
        bed.cut_power("n2")
    finally:
        bed.ensure_power("n2")
    try:
        wait_for("the clone", lambda: collect.is_in_sync(bed, "n1", "late"), within_s=240)
        wanted = point_digest(bed, "n1", "both", of=origin)
        assert {data_digest(bed, node, "late") for node in NODES} == {wanted}
    finally:
        failover.await_healthy(bed, "n3")
        remove(scenario, "late")


def test_a_full_pool_has_no_clone(scenario: Scenario, origin: str) -> None:
    bed = scenario.bed
    node_faults.fill_filesystem(bed.lab, bed.node("n2"), FilledFilesystem.POOL, LocalRunner())
    try:
        wait_for(
            "n2 to say that its pool is full",
            lambda: (
                "has room for 0 B"
                in bed.sh(
                    "n3",
                    "sanctl device place --size 64M --nodes n1,n2 --output json",
                    ok=range(256),
                ).stdout
            ),
            within_s=60,
        )
        assert "SAN-POOL-012" in str(clone(bed, "full", f"{origin}@both", status=4))
    finally:
        node_faults.free_filesystem(bed.lab, bed.node("n2"), FilledFilesystem.POOL, LocalRunner())
    assert "full" not in [each["name"] for each in run(bed, "device list")]
