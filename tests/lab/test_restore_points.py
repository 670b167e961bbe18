# SPDX-License-Identifier: GPL-2.0-or-later
"""Restore points under a writer: a state of one moment on each replica, and a short pause.

What dies on the way leaves no held I/O and no half restore point.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sanctl.lab.harness import collect, failover, point_copies
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import node_faults
from sanctl.lab.machines.node_faults import FilledFilesystem
from sanctl.lab.measure import ledger_latency
from sanctl.system.runner import LocalRunner
from tests.support import ledgers, steps

pytestmark = [pytest.mark.faults, pytest.mark.in_order]

NAME = "snap0"
REGION_BYTES = 8 << 20
POINTS = 6
#: RuntimeMaxSec of sanctl-point@.service, and what a busy machine adds.
HELD_AT_MOST_S = 2.0 + 28.0
_LIST = f"ls /srv/sanctl/main/points/ 2>/dev/null | grep {NAME}. || true"
#: Opens the gate of a device in the hold, once this node's replica has been copied, until hosts
#: have written, and suspends it again. The process that holds it is stopped meanwhile. (Before the
#: first copy that would do no harm: all copies would be of the later moment.)
_OPEN_IN_HOLD = """
import glob, os, signal, subprocess, sys, time
sys.path.insert(0, os.path.realpath("/opt/sanctl/current"))
from sanctl.drivers import drbd_kernel, drbdsetup, gate
name = sys.argv[1]
minor, give_up = int(gate.gate_table(name).removeprefix("drbd")), time.monotonic() + 30
show = ["systemctl", "show", "-P", "MainPID", f"sanctl-point@{name}"]
print("ready")
pid = 0
while not pid and time.monotonic() < give_up:
    pid = int(subprocess.run(show, capture_output=True, text=True, check=True).stdout)
while not gate.is_held(name):
    if time.monotonic() > give_up:
        sys.exit("nothing was held")
# The child that copies has ended when the copy is made.
def copies():
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            state, parent = open(path).read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            return True
    return False
while copies():
    if time.monotonic() > give_up:
        sys.exit("no copy was made")
os.kill(pid, signal.SIGSTOP)
if not gate.is_held(name):
    os.kill(pid, signal.SIGCONT)
    sys.exit("the hold was over")
before = drbd_kernel.ended_writes(minor)
gate.release(name)
until = time.monotonic() + 0.3
while drbd_kernel.ended_writes(minor) == before and time.monotonic() < until:
    pass
gate.hold(name)
wrote = drbd_kernel.ended_writes(minor) != before
os.kill(pid, signal.SIGCONT)
print("suspended again" if wrote else "no host wrote")
"""


@pytest.fixture(scope="module")
def bed(xfs_bed: LabSession) -> LabSession:
    """Return a laboratory whose pools are XFS."""
    return xfs_bed


@pytest.fixture(scope="module")
def scenario(bed: LabSession) -> Scenario:
    from sanctl.lab.harness.initiator import Initiator  # noqa: PLC0415

    return Scenario(bed, Initiator(bed, "i1"))


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    load = ledgers.start_on_new_device(
        scenario, NAME, "256M", rate=200.0, region_bytes=REGION_BYTES
    )
    yield load
    ledgers.stop(load)
    load.host.logout(load.target)
    # The last test has deleted it, unless one failed.
    scenario.bed.sh(
        "n3",
        f"sanctl device delete {NAME} --yes --accept SAN-DEV-023 --with-points",
        timeout_s=240,
        ok=(0, 4),
    )


def snapshot(bed: LabSession, *words: str, ok: bool = True) -> Any:
    # Within half a second a busy machine may make none, though the command tries three times.
    for _ in range(6 if ok and words[0] == "create" and "--timeout" not in words else 1):
        done = bed.sh(
            "n3", f"sanctl snapshot {' '.join(words)} --output json", timeout_s=120, ok=range(256)
        )
        if "SAN-SNAP-007" not in done.stdout:
            break
    found = json.loads(done.stdout)
    assert (done.status == 0) == ok, done.stdout + done.stderr
    return found["data"] if ok else found["problems"]


def assert_of_one_moment(load: LedgerLoad, name: str) -> None:
    """Check that a restore point is the same on both nodes, and a state that the log allows."""
    file = file_of(load.bed, name)
    assert point_copies.find_faults(load, file, ("n1", "n2"), min_writes=101) == []


def file_of(bed: LabSession, name: str) -> str:
    return str(snapshot(bed, "show", f"{NAME}@{name}")["file"])


def digest(bed: LabSession, node: str, path: str) -> str:
    return bed.sh(node, f"sha256sum <{path}", timeout_s=120).stdout.split()[0]


def is_resyncing(bed: LabSession) -> bool:
    return "SyncTarget" in bed.sh("n2", f"drbdadm cstate {NAME}", ok=range(256)).stdout


def read_small_blocks(load: LedgerLoad) -> None:
    """Read less than a block of the pool's filesystem, as a host that boots does."""
    load.host.sh(f"dd if={load.run.device} of=/dev/null bs=512 count=9 skip=3 iflag=direct")


def is_held(bed: LabSession, node: str) -> bool:
    text = bed.sh(node, f"dmsetup info -c --noheadings -o suspended sanctl-{NAME}-gate").stdout
    return "uspended" in text


def test_restore_points_are_of_one_moment_on_both_replicas(
    scenario: Scenario, load: LedgerLoad
) -> None:
    bed, pauses = scenario.bed, []
    for number in range(POINTS):
        steps.await_writes(load)
        began_s = time.time()
        made = snapshot(bed, "create", NAME, "--name", f"p{number}")
        assert [each["node"] for each in made["nodes"]] == ["n1", "n2"]
        assert made["missing_on"] == []
        seen = ledger_latency.find_pause(load.host.fetch_log(load.run)[1], began_s, time.time())
        assert seen.errors == 0
        pauses.append(made["pause_ms"])
        print(f"  held {made['pause_ms']} ms, the writer's longest pause {seen.seconds * 1000:.0f}")
        assert_of_one_moment(load, f"p{number}")
    print(f"  held: median {statistics.median(pauses):.0f} ms, worst {max(pauses)} ms")
    assert max(pauses) <= 500
    listed = snapshot(bed, "list", NAME)
    assert [each["name"] for each in listed] == [f"p{number}" for number in range(POINTS)]
    # The first ones stay what they were while hosts write on.
    assert_of_one_moment(load, "p0")
    assert "SAN-SNAP-010" in str(snapshot(bed, "create", NAME, "--name", "p0", ok=False))
    refused = bed.sh("n3", f"sanctl device delete {NAME} --yes", ok=range(256), timeout_s=60)
    assert refused.status == 4 and "SAN-SNAP-013" in refused.stderr
    for number in range(1, POINTS):
        assert snapshot(bed, "delete", f"{NAME}@p{number}", "--yes")["away"] == []
    for node in ("n1", "n2"):
        assert len(bed.sh(node, _LIST).stdout.split()) == 1
    steps.assert_not_interrupted(load, began_s)


def test_it_goes_on_after_a_move(scenario: Scenario, load: LedgerLoad) -> None:
    bed = scenario.bed
    for to in ("n2", "n1"):
        bed.sh("n3", f"sanctl device move {NAME} --to {to}", timeout_s=180)
        steps.await_writes(load)
        snapshot(bed, "create", NAME, "--name", f"on-{to}")
        assert_of_one_moment(load, f"on-{to}")
        snapshot(bed, "delete", f"{NAME}@on-{to}", "--yes")


@pytest.mark.parametrize(
    ("node", "step", "exists"),
    [
        ("n1", "point-prepared", False),
        ("n1", "point-held", False),
        ("n1", "point-all-copied", False),
        ("n1", "point-copied", False),
        ("n1", "point-flushed", False),
        ("n1", "point-recorded", True),
        ("n2", "point-peer-ready", False),
        ("n2", "point-peer-copied", False),
        ("n2", "point-peer-flushed", True),
    ],
)
def test_a_process_that_is_killed(
    scenario: Scenario, load: LedgerLoad, node: str, step: str, exists: bool
) -> None:
    bed = scenario.bed
    steps.await_writes(load)
    began_s = time.time()
    bed.sh(node, f"mkdir -p /run/sanctl/die-after && touch /run/sanctl/die-after/{step}")
    try:
        timeout = "--timeout 20"
        snapshot(bed, "create", NAME, "--name", "killed", timeout, ok=exists)
        assert bed.sh(node, f"ls /run/sanctl/die-after/{step}", ok=(0, 2)).status == 2, "not killed"
    finally:
        bed.sh(node, f"rm -f /run/sanctl/die-after/{step}")
    assert not is_held(bed, "n1")
    assert steps.assert_no_error(load, began_s) <= HELD_AT_MOST_S
    names = [each["name"] for each in snapshot(bed, "list", NAME)]
    assert ("killed" in names) == exists
    if exists:
        file = file_of(bed, "killed")
        wait_for(
            "the pool agents to name the files",
            lambda: all(bed.sh(each, f"ls {file}", ok=(0, 2)).status == 0 for each in ("n1", "n2")),
            within_s=60,
        )
        assert_of_one_moment(load, "killed")
        snapshot(bed, "delete", f"{NAME}@killed", "--yes")
    # What is left is no restore point's, and does not keep the next one from being made.
    snapshot(bed, "create", NAME, "--name", "next")
    assert_of_one_moment(load, "next")
    snapshot(bed, "delete", f"{NAME}@next", "--yes")


def test_everything_that_holds_io_is_killed_and_stopped(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """The process is stopped in the hold (SIGSTOP), and so ends nothing itself: systemd does."""
    bed = scenario.bed
    steps.await_writes(load)
    began_s = time.time()
    watch = (
        f"f=/sys/dev/block/$(dmsetup info -c --noheadings --separator : -o major,minor"
        f" sanctl-{NAME}-gate)/dm/suspended; "
        f"until pid=$(systemctl show -P MainPID sanctl-point@{NAME}) && [ $pid -gt 0 ];"
        " do :; done; "
        "while [ -d /proc/$pid ]; do read held <$f;"
        " [ $held = 1 ] && kill -STOP $pid && echo stopped && break; done"
    )
    watch = f"timeout 60 bash -c {shlex.quote(watch)}"
    with contextlib.ExitStack() as running:
        process = running.enter_context(bed.stream("n1", watch))
        snapshot(bed, "create", NAME, "--name", "stopped", "--timeout", "20", ok=False)
        assert process.stdout is not None and "stopped" in process.stdout.read()
    assert not is_held(bed, "n1")
    assert steps.assert_no_error(load, began_s) <= HELD_AT_MOST_S


def test_a_gate_that_is_opened_and_suspended_again_makes_no_point(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """In the hold the gate is resumed, hosts write, and it is suspended again: nothing is kept."""
    bed = scenario.bed
    for attempt in range(12):
        steps.await_writes(load)
        began_s = time.time()
        with contextlib.ExitStack() as running:
            words = f"timeout 60 python3 -I -u -c {shlex.quote(_OPEN_IN_HOLD)}"
            process = running.enter_context(bed.stream("n1", f"{words} {NAME}"))
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            name = f"aba{attempt}"
            done = bed.sh(
                "n3",
                f"sanctl snapshot create {NAME} --name {name} --timeout 20",
                ok=range(256),
                timeout_s=60,
            )
            if done.status == 0:
                process.terminate()
            did = process.stdout.read()
        print(f"  attempt {attempt}: {did.strip()}; {done.stderr.strip()}")
        assert not is_held(bed, "n1")
        assert steps.assert_no_error(load, began_s) <= HELD_AT_MOST_S
        if done.status == 0:
            snapshot(bed, "delete", f"{NAME}@{name}", "--yes")
            assert "suspended again" not in did, "a restore point of two moments"
        if "written to while its I/O was held back" in done.stderr:
            return
        # The hold was missed, or took longer than it may.
    raise AssertionError("no hold was opened in time")


def test_a_replica_that_is_behind_has_none(scenario: Scenario, load: LedgerLoad) -> None:
    bed = scenario.bed
    # So that n2's file has shared blocks before the replica is started again.
    snapshot(bed, "create", NAME, "--name", "both")
    snapshot(bed, "delete", f"{NAME}@both", "--yes")
    bed.sh("n3", "sanctl node standby n2", timeout_s=120)
    try:
        steps.await_writes(load)
        made = snapshot(bed, "create", NAME, "--name", "alone")
        assert [each["node"] for each in made["nodes"]] == ["n1"]
        assert made["missing_on"] == ["n2"]
        refused = bed.sh(
            "n3",
            f"sanctl device replicas {NAME} 1 --drop n1 --yes --timeout 5",
            ok=range(256),
            timeout_s=90,
        )
        assert refused.status != 0
        bed.sh("n3", f"sanctl device sync {NAME} --rate-min 256K --rate-max 256K", timeout_s=90)
        # Without a wait: the command's own is for the end of the resync.
        bed.sh("n3", "sanctl node online n2 --timeout 1", timeout_s=60, ok=(0, 7))
        wait_for("a resync of n2", lambda: is_resyncing(bed), within_s=120)
        made = snapshot(bed, "create", NAME, "--name", "resyncing")
        assert is_resyncing(bed)
        assert [each["node"] for each in made["nodes"]] == ["n1"]
    finally:
        bed.sh("n3", "sanctl node online n2", timeout_s=180)
        bed.sh("n3", f"sanctl device sync {NAME} --rate-min 32M --rate-max network", timeout_s=90)
    for name in ("alone", "resyncing"):
        snapshot(bed, "delete", f"{NAME}@{name}", "--yes")
    wait_for("both replicas", lambda: collect.is_in_sync(bed, "n1", NAME), within_s=300)


def test_a_restore_point_outlives_a_failover(scenario: Scenario, load: LedgerLoad) -> None:
    bed = scenario.bed
    steps.await_writes(load)
    snapshot(bed, "create", NAME, "--name", "before-cut")
    before = digest(bed, "n2", file_of(bed, "before-cut"))
    bed.cut_power("n1")
    try:
        wait_for(
            "n2 to serve",
            lambda: bed.sh("n2", f"drbdadm role {NAME}").stdout.startswith("Primary"),
            within_s=240,
        )
        steps.await_writes(load)
        # n2's file shared blocks before the replica was last started (docs/adr/0058).
        read_small_blocks(load)
        assert steps.kernel_mode(bed, NAME, "n2") == "write-through"
        assert digest(bed, "n2", file_of(bed, "before-cut")) == before
        made = snapshot(bed, "create", NAME, "--name", "meanwhile")
        assert [each["node"] for each in made["nodes"]] == ["n2"]
        snapshot(bed, "delete", f"{NAME}@meanwhile", "--yes")
    finally:
        bed.ensure_power("n1")
    failover.await_healthy(bed, "n3")
    assert_of_one_moment(load, "before-cut")
    assert digest(bed, "n1", file_of(bed, "before-cut")) == before
    bed.sh("n3", f"sanctl device move {NAME} --to n1", timeout_s=180)
    read_small_blocks(load)
    assert steps.kernel_mode(bed, NAME, "n1") == "write-through"
    # Files that are written through the page cache now are copied at one moment as well.
    snapshot(bed, "create", NAME, "--name", "buffered")
    assert_of_one_moment(load, "buffered")


def test_pools_that_cannot_have_one(scenario: Scenario, load: LedgerLoad) -> None:
    """A pool without room, and one whose filesystem shares no blocks: refused, nothing is left."""
    bed = scenario.bed
    points = "/srv/sanctl/main/points"
    left = bed.sh("n2", _LIST).stdout
    node_faults.fill_filesystem(bed.lab, bed.node("n2"), FilledFilesystem.POOL, LocalRunner())
    try:
        (problem,) = snapshot(bed, "create", NAME, "--name", "full", ok=False)
        assert problem["code"] == "SAN-SNAP-003" and "n2" in problem["text"]
    finally:
        node_faults.free_filesystem(bed.lab, bed.node("n2"), FilledFilesystem.POOL, LocalRunner())
    bed.sh(
        "n2",
        "truncate -s 64M /run/ext4.image && mkfs.ext4 -q /run/ext4.image"
        f" && mkdir -p {points} && mount -o loop /run/ext4.image {points}",
    )
    try:
        (problem,) = snapshot(bed, "create", NAME, "--name", "ext4", ok=False)
        assert problem["code"] == "SAN-SNAP-001" and "n2" in problem["text"]
    finally:
        bed.sh("n2", f"umount {points}; rm /run/ext4.image")
    assert bed.sh("n2", _LIST).stdout == left
    names = [each["name"] for each in snapshot(bed, "list", NAME)]
    assert not {"full", "ext4"} & set(names)


@pytest.mark.concludes
def test_nothing_was_lost(load: LedgerLoad) -> None:
    ledgers.assert_nothing_lost(load)


def test_the_device_goes_back_to_a_restore_point(scenario: Scenario, load: LedgerLoad) -> None:
    """Written by hand through the gate, as `device restore` does: DRBD replicates it."""
    bed = scenario.bed
    ledgers.stop(load)
    snapshot(bed, "create", NAME, "--name", "good")
    file = file_of(bed, "good")
    good = digest(bed, "n2", file)
    load.host.sh(
        f"dd if=/dev/urandom of={load.run.device} bs=1M count=64 oflag=direct conv=notrunc,fsync",
        timeout_s=120,
    )
    active = collect.active_node(bed, NAME)
    data = f"$(ls /srv/sanctl/main/devices/{NAME}.*.data)"
    assert digest(bed, active, data) != good
    bed.sh(
        active,
        f"dd if={file} of=/dev/mapper/sanctl-{NAME} bs=4M oflag=direct conv=nocreat,notrunc,fsync",
        timeout_s=240,
    )
    assert {digest(bed, node, data) for node in ("n1", "n2")} == {good}
    read = load.host.sh(
        f"dd if={load.run.device} bs=4M iflag=direct status=none | sha256sum", timeout_s=120
    )
    assert read.split()[0] == good
    assert digest(bed, "n2", file) == good, "the restore point itself has not changed"


def test_a_deletion_takes_the_restore_points_along(scenario: Scenario, load: LedgerLoad) -> None:
    bed = scenario.bed
    load.host.logout(load.target)
    refused = bed.sh("n3", f"sanctl device delete {NAME} --yes", ok=range(256), timeout_s=60)
    assert refused.status == 4 and "SAN-SNAP-013" in refused.stderr
    assert all(bed.sh(node, _LIST).stdout for node in ("n1", "n2"))
    bed.sh(
        "n3", f"sanctl device delete {NAME} --yes --accept SAN-DEV-023 --with-points", timeout_s=240
    )
    assert snapshot(bed, "list") == []
    assert [bed.sh(node, _LIST).stdout for node in ("n1", "n2")] == ["", ""]
