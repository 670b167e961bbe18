# SPDX-License-Identifier: GPL-2.0-or-later
"""A data file of many extents is copied ahead; warned of near the limit, refused beyond it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.bench.point_pauses import COUNT_EXTENTS, FRAGMENT
from sanctl.lab.harness import collect
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.model.restore_point import MAX_EXTENTS
from sanctl.plan.device.data_extents import MANY_EXTENTS
from tests.support import steps

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "pieces0"
SIZE_MIB = 1024
#: What is published once a minute by a monitor every ten seconds, on a busy machine.
PUBLISHED_S = 240.0
ROUNDS = 20
COPIED_EXTENTS = 20_000


#: Writes blocks at random until a file is there; says how many, and the longest wait for one.
RANDOM_WRITES = """
import os, random, sys, time
path, stop = sys.argv[1:]
handle = os.open(path, os.O_WRONLY | os.O_DSYNC)
count, longest = 0, 0.0
while not os.path.exists(stop):
    begin = time.monotonic()
    os.pwrite(handle, os.urandom(4096), random.randrange(200000) * 4096)
    count, longest = count + 1, max(longest, time.monotonic() - begin)
print(f"{count} writes, the longest took {longest * 1000:.0f} ms")
"""


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


class Pieces:
    """A device that n1 serves, all of it written, and a restore point of that."""

    def __init__(self, scenario: Scenario) -> None:
        self.bed, self.host = scenario.bed, scenario.host
        target = scenario.create(NAME, f"{SIZE_MIB}M", prefer="n1", nodes=("n1", "n2"))
        self.path = self.host.login(target, scenario.portals())
        self.at = 0
        self.host.sh(
            f"dd if=/dev/urandom of={self.path} bs=1M count={SIZE_MIB} oflag=direct status=none",
            timeout_s=580,
        )

    def snapshot(self, point: str) -> Any:
        """Make a restore point; a busy machine may not make it within half a second."""

        def once() -> bool:
            done = self.bed.sh(
                "n3", f"sanctl snapshot create {NAME} --name {point}", timeout_s=120, ok=range(256)
            )
            assert done.status == 0 or "SAN-SNAP-007" in done.stderr, done.stderr
            return done.status == 0

        wait_for(f"restore point {point}", once, within_s=240)

    def count(self, node: str) -> int:
        """Return the extents of the file on a node."""
        file = f"$(ls /srv/sanctl/main/devices/{NAME}.*.data)"
        return int(self.bed.sh(node, f"python3 -I - {file}", stdin=COUNT_EXTENTS).stdout)

    def break_into(self, extents: int) -> None:
        """Have the host write until the file on n1 has at least so many extents."""
        for _ in range(ROUNDS):
            missing = extents - self.count("n1")
            if missing <= 0:
                return
            # Each write makes two of one extent, or three.
            writes = max(16, missing // 2)
            assert self.at + 2 * writes < SIZE_MIB * 256, "the device is too small"
            self.bed.sh(
                self.host.name,
                f"python3 - {self.path} {self.at} {writes}",
                stdin=FRAGMENT,
                timeout_s=580,
            )
            self.at += 2 * writes
        raise AssertionError(f"{ROUNDS} rounds of writes made no {extents} extents")

    def shown(self) -> dict[str, int | None]:
        """Return the extents by node as `device show` has them."""
        text = self.bed.sh("n3", f"sanctl device show {NAME} --output json", timeout_s=60).stdout
        return {each["node"]: each["extents"] for each in json.loads(text)["data"]["replicas"]}

    def await_shown(self) -> None:
        """Return when what is shown is what there is; nobody writes."""
        there = {node: self.count(node) for node in ("n1", "n2")}
        wait_for(f"{there} to be shown", lambda: self.shown() == there, within_s=PUBLISHED_S)
        print(f"  {there}")

    def warning(self) -> str:
        found = steps.findings(self.bed, "n3", "status")
        return found.get(f"SAN-HLT-126 device {NAME}", "")


@pytest.fixture(scope="module")
def pieces(bed: LabSession) -> Iterator[Pieces]:
    scenario = Scenario(bed, Initiator(bed, "i1"))
    yield Pieces(scenario)
    scenario.host.logout(f"{scenario.iqn_prefix()}.{NAME}")
    bed.sh(
        "n3",
        f"sanctl device delete {NAME} --yes --accept SAN-DEV-023 --with-points",
        timeout_s=240,
        ok=(0, 4),
    )


def test_only_a_device_with_restore_points_is_counted(pieces: Pieces) -> None:
    assert set(pieces.shown().values()) == {None}
    pieces.snapshot("base")
    pieces.await_shown()
    assert pieces.warning() == ""


def digests(bed: LabSession, file: str) -> set[str]:
    """What a file holds on the two nodes; one digest where it is the same."""
    nodes = ("n1", "n2")
    return {bed.sh(node, f"sha256sum < {file}", timeout_s=300).stdout.split()[0] for node in nodes}


def test_many_extents_are_copied_while_a_host_writes(bed: LabSession, pieces: Pieces) -> None:
    """Both nodes' copies are of one moment; without writes they are what the device holds."""
    pieces.break_into(COPIED_EXTENTS)
    stop, random_writes = "/run/test-pieces-stop", RANDOM_WRITES
    bed.sh(pieces.host.name, f"rm -f {stop}")
    with bed.stream(
        pieces.host.name, f"python3 -c {shlex.quote(random_writes)} {pieces.path} {stop}"
    ) as writer:
        pieces.snapshot("busy")
        bed.sh(pieces.host.name, f"touch {stop}")
        said = writer.communicate(timeout=60)[0]
    print(f"  {said.strip()}")
    pieces.snapshot("quiet")
    files = {
        name: json.loads(
            bed.sh("n3", f"sanctl snapshot show {NAME}@{name} --output json", timeout_s=60).stdout
        )["data"]
        for name in ("busy", "quiet")
    }
    print({name: each["pause_ms"] for name, each in files.items()})
    assert len(digests(bed, files["busy"]["file"])) == 1
    of_device = digests(bed, f"$(ls /srv/sanctl/main/devices/{NAME}.*.data)")
    assert digests(bed, files["quiet"]["file"]) == of_device and len(of_device) == 1
    assert digests(bed, files["busy"]["file"]) != of_device


def test_a_warning_before_the_limit(pieces: Pieces) -> None:
    pieces.break_into(MANY_EXTENTS)
    pieces.await_shown()
    found = pieces.warning()
    print(f"  {found}")
    assert f"{pieces.count('n1')} on n1" in found and f"of the {MAX_EXTENTS}" in found


def test_beyond_the_limit_none_is_made(bed: LabSession, pieces: Pieces) -> None:
    pieces.break_into(MAX_EXTENTS + 1)
    refused = bed.sh(
        "n3", f"sanctl snapshot create {NAME} --name late", timeout_s=120, ok=range(256)
    )
    assert refused.status and "SAN-SNAP-002" in refused.stderr, refused.stderr
    pieces.await_shown()
    assert pieces.warning()


def test_a_replica_that_is_filled_anew_has_few(bed: LabSession, pieces: Pieces) -> None:
    """What docs/howto/restore-points.md says; the other replica's stay as they are."""
    bed.sh("n3", f"sanctl device replicas {NAME} 1 --drop n2 --yes", timeout_s=240)
    bed.sh("n3", f"sanctl device replicas {NAME} 2 --add n2 --timeout 400", timeout_s=450)
    wait_for(
        "both replicas in sync",
        lambda: collect.is_in_sync(bed, "n1", NAME),
        within_s=240,
        every_s=2.0,
    )
    print(f"  {pieces.count('n1')} on n1, {pieces.count('n2')} on n2")
    assert pieces.count("n2") < 1000 < MAX_EXTENTS < pieces.count("n1")
    pieces.await_shown()
    assert "n2" not in pieces.warning()
