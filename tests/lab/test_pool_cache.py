# SPDX-License-Identifier: GPL-2.0-or-later
"""Flash in front of a pool (bcache): changes of mode, flash lost, power cut with dirty data.

One device through all of it, in file order, and a ledger on it, which is checked at the end. In a
laboratory of its own, whose nodes have a flash disk.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect, point_copies
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines import node_faults
from sanctl.lab.machines.node_faults import DiskBehaviour
from sanctl.lab.machines.spec import LabSpec
from sanctl.lab.measure import kernel_audit
from sanctl.system.runner import LocalRunner
from tests.support import ledgers
from tests.support.json_contract import breaches
from tests.support.laboratory import laboratory

pytestmark = pytest.mark.faults

NAME = "flash0"
MIB = 2**20
ORIGIN, FLASH = 1, 2
BACK_DEADLINE_S = 300.0
#: A node's slow disk in sysfs.
SLOW = "/sys/block/$(basename $(readlink -f /dev/mapper/lab-disk1))"
OWN_LAB = os.environ.get("SANCTL_TEST_LAB")


@pytest.fixture(scope="module")
def flash_bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    spec = LabSpec(name=OWN_LAB or "testflash", flash_mib=512, filesystem="xfs")
    yield from laboratory(
        request,
        spec,
        is_own=OWN_LAB is not None,
        options=("--flash", f"{spec.flash_mib}M", "--filesystem", spec.filesystem),
    )


@pytest.fixture(scope="module")
def load(flash_bed: LabSession) -> Iterator[LedgerLoad]:
    assert flash_bed.lab.spec.has_flash, "made with sanctl lab up --flash 512M"
    for node in flash_bed.storage:
        flash_bed.sh(node.name, "sanctl pool prepare main", timeout_s=120)
    set_mode(flash_bed, "write-through")
    scenario = Scenario(flash_bed, Initiator(flash_bed, "i1"))
    target = scenario.create(NAME, "128M", prefer="n1")
    path = scenario.host.login(target, scenario.portals())
    made = ledgers.start(scenario, NAME, target, path, rate=50, region_bytes=32 * MIB)
    yield made
    ledgers.stop(made)
    set_mode(flash_bed, "write-through")
    scenario.delete(NAME)


@pytest.fixture(autouse=True)
def _audited(flash_bed: LabSession) -> Iterator[None]:
    """As every test of this folder is, in the laboratory of this one."""
    yield
    assert kernel_audit.violations(collect.kernel_views(flash_bed)) == []


def set_mode(bed: LabSession, mode: str) -> None:
    """Return when the command does; asked where no pool is."""
    done = bed.sh("n3", f"sanctl pool cache main {mode} --output json", timeout_s=400)
    assert breaches("pool cache", done.stdout) == []


def kernel_state(bed: LabSession, node: str) -> tuple[str, str]:
    """State and mode of bcache, read from sysfs without sanctl's code."""
    out = bed.sh(
        node,
        f"cd {SLOW}/bcache 2>/dev/null"
        " && echo \"$(cat state)|$(grep -o '\\[.*\\]' cache_mode)\" || echo '-|-'",
    ).stdout.strip()
    state, _, mode = out.partition("|")
    return state, mode.strip("[]")


def break_flash(bed: LabSession, node: str, does: DiskBehaviour) -> None:
    node_faults.break_disk(bed.lab, bed.node(node), FLASH, does, LocalRunner())


def log(bed: LabSession, node: str, since_s: float) -> str:
    return bed.sh(
        node, f"journalctl -q --no-pager -o cat --since=@{since_s:.0f} SANCTL_ACTION=pool-cache",
        ok=(0, 1), timeout_s=60,
    ).stdout  # fmt: skip


def await_log(bed: LabSession, node: str, since_s: float, words: str, *, within_s: float) -> None:
    wait_for(f"{words!r} on {node}", lambda: words in log(bed, node, since_s), within_s=within_s)


def await_in_sync(bed: LabSession, *, but_not: str = "") -> None:
    asked = next(node.name for node in bed.storage if node.name != but_not)
    wait_for(
        "both replicas in sync",
        lambda: collect.is_in_sync(bed, asked, NAME),
        within_s=BACK_DEADLINE_S,
        every_s=2.0,
    )


def is_mounted(bed: LabSession, node: str) -> bool:
    return bed.sh(node, "mountpoint -q /srv/sanctl/main", ok=range(256)).status == 0


def test_a_refused_write_of_metadata_is_not_tried_for_ever(load: LedgerLoad) -> None:
    """As XFS is made, hosts' writes hang where a disk refuses some blocks."""
    retries = "cat /sys/fs/xfs/bcache0/error/metadata/{EIO,default,ENOSPC}/retry_timeout_seconds"
    for node in load.bed.storage:
        wait_for(
            f"the pool's agent on {node.name} to have set it",
            lambda name=node.name: (  # type: ignore[misc]
                load.bed.sh(name, retries).stdout.split() == ["20", "20", "-1"]
            ),
            within_s=60,
            every_s=2.0,
        )


def test_modes_change_under_load(load: LedgerLoad) -> None:
    bed = load.bed
    sessions = load.host.sessions(load.target)
    expected = {
        "write-back": {("clean", "writeback"), ("dirty", "writeback")},
        "write-through": {("clean", "writethrough")},
        "none": {("no cache", "writethrough")},
    }
    for mode in ("write-back", "write-through", "none", "write-back", "none", "write-through"):
        began_s = time.time()
        set_mode(bed, mode)
        print(f"  {mode} after {time.time() - began_s:.1f} s")
        assert {kernel_state(bed, node.name) for node in bed.storage} <= expected[mode]
    assert load.host.sessions(load.target) == sessions


def test_flash_that_fails_in_write_through_costs_nothing(load: LedgerLoad) -> None:
    bed = load.bed
    set_mode(bed, "write-through")
    began_s = time.time()
    try:
        break_flash(bed, "n1", DiskBehaviour.FAIL)
        await_log(bed, "n1", began_s, "the flash has failed", within_s=90)
    finally:
        break_flash(bed, "n1", DiskBehaviour.OK)
    assert is_mounted(bed, "n1")
    # A write that was in flight may have cost the disk, for as long as it takes to attach it again.
    await_in_sync(bed)
    assert bed.sh("n1", f"test -e {SLOW}/bcache/cache", ok=range(256)).status == 1
    found = bed.sh("n3", "sanctl status --output json", ok=(0, 1), timeout_s=60).stdout
    assert "SAN-HLT-091" in {each["code"] for each in json.loads(found)["data"]["findings"]}
    done = bed.sh("n1", "sanctl pool prepare main --output json", timeout_s=120)
    assert breaches("pool prepare", done.stdout) == [] and json.loads(done.stdout)["data"]["done"]
    assert kernel_state(bed, "n1") == ("clean", "writethrough")


def test_power_is_cut_with_writes_on_flash_alone(load: LedgerLoad) -> None:
    """The writes are on flash, and the replica that comes back has them; so has a restore point."""
    bed = load.bed
    set_mode(bed, "write-back")
    point = make_point(load)
    active = collect.active_node(bed, NAME)
    wait_for("writes on flash alone", lambda: kernel_state(bed, active)[0] == "dirty", within_s=60)
    began_s = bed.cut_power(active)
    other = load.peer_of(active)
    wait_for(
        "the other node to serve",
        lambda: collect.active_node(bed, NAME) == other,
        within_s=180,
    )
    bed.ensure_power(active)
    await_log(bed, active, began_s, "what is on flash is right", within_s=240)
    await_in_sync(bed)
    # From the replica that was on flash.
    wait_for(
        "the move, once the replica is published as UpToDate",
        lambda: not bed.sh("n3", f"sanctl device move {NAME} --to {active}", timeout_s=180).status,
        within_s=60,
        every_s=3.0,
    )
    ledgers.assert_nothing_lost(load, more_than=0)
    assert point_copies.find_faults(load, point, ("n1", "n2"), min_writes=20) == []
    bed.sh("n3", f"sanctl snapshot delete {NAME}@flashed --yes", timeout_s=120)


def make_point(load: LedgerLoad) -> str:
    """Make a restore point on both nodes, and return its file."""
    bed = load.bed
    made = f"sanctl snapshot create {NAME} --name flashed"
    wait_for(
        "a restore point", lambda: not bed.sh("n3", made, ok=range(256), timeout_s=120).status,
        within_s=90, every_s=3.0,
    )  # fmt: skip
    shown = bed.sh("n3", f"sanctl snapshot show {NAME}@flashed --output json", timeout_s=60)
    found = json.loads(shown.stdout)["data"]
    assert sorted(each["node"] for each in found["nodes"]) == ["n1", "n2"], found
    return str(found["file"])


def test_the_disk_alone_is_not_used_while_its_flash_is_away(
    flash_bed: LabSession, writing: None
) -> None:
    """Another flash in its place at boot; then the right one again."""
    bed = flash_bed
    set_mode(bed, "write-back")
    active = collect.active_node(bed, NAME)
    node = next(each.name for each in bed.storage if each.name != active)
    wait_for("writes on flash alone", lambda: kernel_state(bed, node)[0] == "dirty", within_s=60)
    folder = bed.lab.node_directory(bed.node(node))
    disk, away = folder / f"disk{FLASH}.raw", folder / "flash-away.raw"
    began_s = bed.cut_power(node)
    wait_for("power off, and not fenced back on yet", lambda: _taken_out(bed, node), within_s=60)
    disk.rename(away)
    try:
        with disk.open("wb") as file:
            file.truncate(bed.lab.spec.flash_mib * MIB)
        bed.ensure_power(node)
        await_log(bed, node, began_s, "SAN-POOL-016", within_s=240)
        assert not is_mounted(bed, node)
        assert collect.active_node(bed, NAME) == active
    finally:
        bed.cut_power(node)
        away.replace(disk)
        bed.ensure_power(node)
    await_log(bed, node, began_s, "what is on flash is right", within_s=240)
    bed.sh("n3", f"crm_resource --cleanup --resource {NAME}", timeout_s=60)
    await_in_sync(bed, but_not=node)


def _taken_out(bed: LabSession, node: str) -> bool:
    if bed.has_power(node):
        bed.cut_power(node)
    return not bed.has_power(node)


@pytest.mark.parametrize("where", ["standby", "active"])
def test_flash_that_fails_in_write_back_costs_the_replica_and_nothing_else(
    flash_bed: LabSession, writing: None, where: str
) -> None:
    bed = flash_bed
    set_mode(bed, "write-back")
    active = collect.active_node(bed, NAME)
    other = next(each.name for each in bed.storage if each.name != active)
    node = {"standby": other, "active": active}[where]
    wait_for("writes on flash alone", lambda: kernel_state(bed, node)[0] == "dirty", within_s=60)
    try:
        break_flash(bed, node, DiskBehaviour.FAIL)
        # The disk alone is old: nothing may be read from it, or written to it.
        wait_for(
            "DRBD to have dropped the disk",
            lambda: (
                "disk:Diskless"
                in bed.sh(node, f"drbdsetup events2 --now {NAME}", timeout_s=30).stdout.split()
            ),
            within_s=60,
        )
        wait_for(
            "the pool to be reported as failed",
            lambda: (
                "SAN-POOL-016"
                in bed.sh("n3", "sanctl pool list --output json", timeout_s=60).stdout
            ),
            within_s=90,
            every_s=3.0,
        )
    finally:
        break_flash(bed, node, DiskBehaviour.OK)
    # A host is served by a node that has the data.
    wait_for(
        "the node with the good replica to serve",
        lambda: collect.active_node(bed, NAME) != node,
        within_s=120,
    )
    assert kernel_state(bed, node)[0] in {"-", "dirty", "clean", "no cache"}
    done = bed.sh(node, "sanctl pool prepare main --anew --yes", ok=range(256), timeout_s=300)
    # XFS has shut itself down as a rule, and the pool's agent has released the replica's files.
    if done.status:
        assert done.status == 4 and "SAN-POOL-021" in done.stderr, done.stderr
        bed.sh("n3", f"sanctl node standby {node}", timeout_s=240)
        bed.sh(node, "sanctl pool prepare main --anew --yes", timeout_s=300)
        bed.sh("n3", f"sanctl node online {node}", timeout_s=400)
    await_in_sync(bed)
    assert is_mounted(bed, node)


@pytest.fixture
def writing(flash_bed: LabSession, load: LedgerLoad) -> Iterator[None]:
    """A ledger of its own, in place of the first one."""
    ledgers.stop(load)
    run = load.host.start_ledger(
        "flash1", load.run.device, "--rate", "50", "--region", str(32 * MIB)
    )
    yield
    load.host.await_acknowledged(run, 100, within_s=60)
    load.host.stop_ledger(run)
    check = load.host.check_ledger(run)
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]


@pytest.mark.parametrize(
    ("step", "mode"),
    [
        ("noted", "write-back"),
        ("mode", "write-through"),
        ("clean", "write-through"),
        ("flushed", "write-through"),
    ],
)
def test_power_is_cut_at_a_step_of_a_change(
    flash_bed: LabSession, writing: None, step: str, mode: str
) -> None:
    """The agent dies at that step, then the power is cut; the change goes on after the boot."""
    bed = flash_bed
    set_mode(bed, "write-through" if mode == "write-back" else "write-back")
    active = collect.active_node(bed, NAME)
    node = next(each.name for each in bed.storage if each.name != active)
    point = f"/run/sanctl/die-after/pool-cache-{step}"
    bed.sh(node, f"mkdir -p /run/sanctl/die-after; touch {point}")
    with bed.stream("n3", f"sanctl pool cache main {mode} --timeout 500"):
        wait_for(
            f"the agent to die after {step}",
            lambda: bed.sh(node, f"test -e {point}", ok=range(256)).status == 1,
            within_s=90,
        )
        began_s = bed.cut_power(node)
    bed.ensure_power(node)
    await_log(bed, node, began_s, "disk and flash are together", within_s=240)
    await_in_sync(bed, but_not=node)
    set_mode(bed, mode)
