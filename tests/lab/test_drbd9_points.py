# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD 9: restore points of three replicas, under a writer, of one moment on all that are in sync.

In file order, on one device, on a laboratory as tests/lab/test_drbd9_replicas.py has, with pools
of XFS.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from sanctl.lab.harness import point_copies
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network
from tests.support import ledgers, steps
from tests.support.drbd9_devices import (
    REGION_BYTES,
    ReplicatedDevice,
    laboratory_with_drbd_9,
    power_is_back,
)

pytestmark = [pytest.mark.faults, pytest.mark.drbd9, pytest.mark.in_order]

NAME, CLONE, LONE = "pts", "ptscopy", "ptslone"
NODES = ("n1", "n2", "n3")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    for made in laboratory_with_drbd_9(request, filesystem="xfs"):
        if made.sh("n1", "stat -f -c %T /srv/sanctl/main").stdout.strip() != "xfs":
            pytest.skip("restore points need pools of XFS: 'sanctl lab up' makes them")
        yield made


@pytest.fixture(scope="module")
def three(bed: LabSession) -> Iterator[ReplicatedDevice]:
    made = ReplicatedDevice(Scenario(bed, Initiator(bed, "i1")), NAME, NODES)
    made.await_recovery()
    yield made
    bed.sh(
        "n5", f"sanctl device delete {NAME} --yes --accept SAN-DEV-023 --with-points", timeout_s=240
    )


@pytest.fixture(scope="module")
def load(three: ReplicatedDevice) -> Iterator[LedgerLoad]:
    made = ledgers.start(
        three.scenario, NAME, three.target, three.path, rate=100.0, region_bytes=REGION_BYTES
    )
    yield made
    ledgers.stop(made)


def run(bed: LabSession, *words: str, status: int = 0) -> Any:
    """Run a command on a node that is always there; return its JSON's data, or its problems."""
    done = bed.sh("n5", f"sanctl {' '.join(words)} --output json", timeout_s=300, ok=range(256))
    assert done.status == status, done.stdout + done.stderr
    found = json.loads(done.stdout)
    return found["problems"] if status else found["data"]


def take(bed: LabSession, device: str, name: str) -> Any:
    return steps.take_point(bed, "n5", device, name)


def assert_of_one_moment(load: LedgerLoad, made: Any, nodes: Sequence[str]) -> None:
    """Check that a restore point is on these nodes, the same, and a state that the log allows."""
    assert [each["node"] for each in made["nodes"]] == sorted(nodes), made
    assert made["missing_on"] == sorted(set(NODES) - set(nodes))
    file = run(load.bed, "snapshot", "show", f"{NAME}@{made['name']}")["file"]
    assert point_copies.find_faults(load, file, nodes, min_writes=101) == []


def digests(bed: LabSession, nodes: Sequence[str], path: str) -> set[str]:
    return {bed.sh(node, f"sha256sum <{path}", timeout_s=120).stdout.split()[0] for node in nodes}


def test_they_are_of_one_moment_on_all_three(load: LedgerLoad) -> None:
    for number in range(5):
        steps.await_writes(load)
        began_s = time.time()
        made = take(load.bed, NAME, f"p{number}")
        assert_of_one_moment(load, made, NODES)
        steps.assert_not_interrupted(load, began_s)
    for number in range(1, 5):
        assert run(load.bed, "snapshot", "delete", "--yes", f"{NAME}@p{number}")["away"] == []


@pytest.mark.parametrize(
    ("node", "step", "exists"),
    [
        ("n1", "point-held", False),
        ("n1", "point-recorded", True),
        ("n3", "point-peer-copied", False),
        ("n2", "point-peer-flushed", True),
    ],
)
def test_a_process_that_is_killed(load: LedgerLoad, node: str, step: str, exists: bool) -> None:
    bed = load.bed
    steps.await_writes(load)
    began_s = time.time()
    bed.sh(node, f"mkdir -p /run/sanctl/die-after && touch /run/sanctl/die-after/{step}")
    words = f"sanctl snapshot create {NAME} --name killed --timeout 20"

    def is_killed() -> bool:
        return bed.sh(node, f"ls /run/sanctl/die-after/{step}", ok=(0, 2)).status == 2

    try:
        done = bed.sh("n5", words, timeout_s=120, ok=range(256))
        for _ in range(10):
            if is_killed():
                break
            # A busy machine may not make it within half a second.
            assert "SAN-SNAP-007" in done.stderr, done.stderr
            done = bed.sh("n5", words, timeout_s=120, ok=range(256))
        assert is_killed()
    finally:
        bed.sh(node, f"rm -f /run/sanctl/die-after/{step}")
    assert (done.status == 0) == exists, done.stderr
    steps.assert_no_error(load, began_s)
    if exists:
        file = run(bed, "snapshot", "show", f"{NAME}@killed")["file"]
        wait_for(
            "the pool agents to name the files",
            lambda: all(bed.sh(each, f"ls {file}", ok=(0, 2)).status == 0 for each in NODES),
            within_s=60,
        )
        assert point_copies.find_faults(load, file, NODES, min_writes=101) == []
        run(bed, "snapshot", "delete", "--yes", f"{NAME}@killed")


def test_a_standby_without_its_link_has_none(three: ReplicatedDevice, load: LedgerLoad) -> None:
    bed = load.bed
    with steps.unplugged(bed, "n3", Network.SYNC):
        wait_for(
            "n1 to have lost n3's replica",
            lambda: "peer-disk:UpToDate" not in _of_peer(three.events("n1"), "n3"),
            within_s=120,
        )
        steps.await_writes(load)
        assert_of_one_moment(load, take(bed, NAME, "two"), ("n1", "n2"))
    three.await_recovery()
    assert_of_one_moment(load, take(bed, NAME, "three"), NODES)
    for name in ("two", "three"):
        run(bed, "snapshot", "delete", "--yes", f"{NAME}@{name}")


def _of_peer(events: str, peer: str) -> str:
    return "\n".join(line for line in events.splitlines() if f"conn-name:{peer}" in line)


def test_the_node_that_takes_over_goes_on_with_two(
    three: ReplicatedDevice, load: LedgerLoad
) -> None:
    bed = load.bed
    bed.cut_power("n1")
    try:
        wait_for(
            "another node to serve",
            lambda: any(
                bed.sh(each, f"drbdadm role {NAME}", ok=range(256)).stdout.startswith("Primary")
                for each in ("n2", "n3")
            ),
            within_s=180,
        )
        steps.await_writes(load)
        assert_of_one_moment(load, take(bed, NAME, "after"), ("n2", "n3"))
    finally:
        power_is_back(bed, "n1")
    three.await_recovery()
    assert_of_one_moment(load, take(bed, NAME, "whole"), NODES)
    run(bed, "snapshot", "delete", "--yes", f"{NAME}@whole")


def test_a_clone_is_whole_on_all_three(three: ReplicatedDevice, load: LedgerLoad) -> None:
    bed = load.bed
    made = take(bed, NAME, "origin")
    assert_of_one_moment(load, made, NODES)
    file = run(bed, "snapshot", "show", f"{NAME}@origin")["file"]
    run(
        bed, "device", "create", CLONE, "--from", f"{NAME}@origin", "--replicas", "3", "--nodes",
        ",".join(NODES), "--initiator", load.host.iqn,
    )  # fmt: skip
    data = f"$(ls /srv/sanctl/main/devices/{CLONE}.*.data)"
    # Without a write of a host: what DRBD declared equal is what the restore point holds.
    assert digests(bed, NODES, data) == digests(bed, NODES, file)
    copy = ReplicatedDevice(three.scenario, CLONE, NODES)
    try:
        assert copy.is_whole()
        copy.scenario.host.sh(
            f"dd if=/dev/urandom of={copy.path} bs=1M count=8 oflag=direct", timeout_s=120
        )
        assert copy.differing_sectors("n1") == 0
    finally:
        copy.scenario.delete(CLONE)
    run(bed, "snapshot", "delete", "--yes", f"{NAME}@origin")


def test_a_clone_on_two_of_them_and_another_node(load: LedgerLoad) -> None:
    """The node without the restore point is no candidate, and is filled."""
    bed = load.bed
    run(
        bed, "device", "create", CLONE, "--from", f"{NAME}@after", "--replicas", "3", "--nodes",
        ",".join(NODES), "--initiator", load.host.iqn,
    )  # fmt: skip
    copy = ReplicatedDevice(Scenario(bed, load.host), CLONE, NODES)
    try:
        copy.await_recovery()
        assert copy.differing_sectors(copy.active()) == 0
        file = run(bed, "snapshot", "show", f"{NAME}@after")["file"]
        data = f"$(ls /srv/sanctl/main/devices/{CLONE}.*.data)"
        assert digests(bed, NODES, data) == digests(bed, ("n2", "n3"), file)
    finally:
        copy.scenario.delete(CLONE)


def test_one_replica(load: LedgerLoad) -> None:
    bed = load.bed
    run(
        bed, "device", "create", LONE, "--size", "32M", "--replicas", "1", "--nodes", "n2",
        "--initiator", load.host.iqn, "--yes",
    )  # fmt: skip
    try:
        assert [each["node"] for each in take(bed, LONE, "one")["nodes"]] == ["n2"]
        run(bed, "snapshot", "delete", "--yes", f"{LONE}@one")
    finally:
        run(bed, "device", "delete", LONE, "--yes")


def test_all_three_go_back(three: ReplicatedDevice, load: LedgerLoad) -> None:
    """Last: hosts are kept out meanwhile."""
    bed = load.bed
    ledgers.stop(load)
    load.host.logout(load.target)
    file = run(bed, "snapshot", "show", f"{NAME}@after")["file"]
    # n1 was away when it was made. That the host has logged out is published a moment later.
    words = ["device", "restore", NAME, "--to", "after", "--yes"]
    words += ["--accept", "SAN-REST-001", "--accept", "SAN-REST-011"]

    def go_back() -> Any:
        done = bed.sh("n5", f"sanctl {' '.join(words)} --output json", timeout_s=300, ok=range(256))
        # What is on the device is kept first, by a restore point. Until the monitor that follows a
        # reload Pacemaker does not know that a replica is Promoted (docs/adr/0087).
        is_later = any(code in done.stdout for code in ("SAN-SNAP-007", "SAN-REST-004"))
        assert done.status == 0 or is_later, done.stdout + done.stderr
        return json.loads(done.stdout)["data"]

    kept = wait_for("the device to be back", go_back, within_s=300)["kept"]
    data = f"$(ls /srv/sanctl/main/devices/{NAME}.*.data)"
    assert digests(bed, NODES, data) == digests(bed, ("n2", "n3"), file)
    shown = run(bed, "snapshot", "show", f"{NAME}@{kept}")
    assert [each["node"] for each in shown["nodes"]] == list(NODES)
    for name in ("p0", "after", kept):
        run(bed, "snapshot", "delete", "--yes", f"{NAME}@{name}")
