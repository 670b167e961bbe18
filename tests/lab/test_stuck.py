# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests that would never be answered, made so on real kernels, and how the node ends them.

The standby has no disk, so the active node's writes do not wait for it; it dies; and the active
node's disk is slow, so that a flush is on its way when DRBD notices and freezes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import Load
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.harness.scenario import Scene
from sanctl.lab.machines import faults
from sanctl.lab.machines.faults import Disk
from sanctl.lab.measure import audit
from sanctl.plan.failover.hung_io_reboot import FORGOTTEN_AFTER_S, HANGING_AFTER_S
from sanctl.system.runner import LocalRunner

# A command on a node that goes down under it is given up, and its process not waited for.
pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAME = "stuck0"
ROUNDS = 4
# Two looks of the monitor, and a machine that does other things too.
MARGIN_S = 60.0
BACK_S = 240.0


@pytest.fixture(scope="module")
def load(scene: Scene) -> Iterator[Load]:
    """A ledger through all tests: it flushes after each write, and nothing may be lost."""
    target = scene.create(NAME, "128M", prefer="n1")
    made = scene.start_load(
        NAME,
        target,
        scene.host.login(target, scene.portals()),
        rate=0,
        region_bytes=16 << 20,
        tell=lambda text: print(f"  {text}"),
        show=lambda _state: None,
    )
    yield made
    scene.host.stop_ledger(made.run)
    check = scene.host.check_ledger(made.run)
    scene.delete(NAME)
    print(f"  {json.dumps(check)[:300]}")
    assert check["acknowledged"] > 200
    assert (check["lost"], check["errors"]) == (0, 0), check["findings"]


def boot_id(bed: Bed, node: str) -> str:
    return bed.sh(node, "cat /proc/sys/kernel/random/boot_id", timeout_s=10).stdout.strip()


def told(bed: Bed, node: str, words: str) -> bool:
    return words in bed.sh(node, f"drbdsetup events2 --now {NAME}", timeout_s=15).stdout


def await_whole(load: Load, node: str) -> None:
    wait_for("both in sync", lambda: collect.in_sync(load.bed, node, NAME), within_s=BACK_S)
    failover.await_healthy(load.bed, node)


def await_writes(load: Load) -> None:
    with load.host.watch_ledger(load.run) as states:
        failover.await_writes(load, states)


def lose_the_standby(load: Load, active: str, standby: str) -> None:
    """Do what makes DRBD 8.4 forget a flush, more often than not."""
    bed, runner = load.bed, LocalRunner()
    bed.sh(standby, f"drbdsetup detach {load.minor}", timeout_s=30)
    wait_for("a standby without disk", lambda: told(bed, active, "peer-disk:Diskless"), within_s=20)
    faults.break_disk(bed.lab, bed.node(active), 1, Disk.SLOW, runner)
    try:
        bed.cut_power(standby)
        wait_for(
            "the Primary to miss it",
            lambda: not told(bed, active, "connection:Connected"),
            within_s=30,
            every_s=0.2,
        )
        wait_for("the end of the freeze", lambda: told(bed, active, " suspended:no"), within_s=60)
    finally:
        faults.break_disk(bed.lab, bed.node(active), 1, Disk.OK, runner)


@pytest.mark.timeout(1500)
def test_a_request_that_drbd_has_forgotten_ends_with_the_node(scene: Scene, load: Load) -> None:
    bed = scene.bed
    for number in range(ROUNDS):
        active = collect.active_node(bed, NAME)
        standby = load.peer_of(active)
        before = boot_id(bed, active)
        lose_the_standby(load, active, standby)

        def has_ended(node: str = active, before: str = before) -> bool:
            return boot_id(bed, node) != before

        def is_over(node: str = active) -> bool:
            return has_ended() or collect.in_sync(bed, node, NAME)

        # The standby is back within a minute: then either it is filled, or nothing goes on.
        within_s = FORGOTTEN_AFTER_S + MARGIN_S + BACK_S
        wait_for("an end", is_over, within_s=within_s, every_s=1.0)
        if has_ended():
            print(f"  round {number}: forgotten on {active}")
            break
        await_whole(load, active)
    else:
        pytest.fail(f"no request was forgotten in {ROUNDS} rounds: nothing is shown")
    said = bed.sh(active, "journalctl --quiet -b -1 SANCTL_ACTION=self-fence").stdout
    assert "waits for nothing any more" in said
    await_writes(load)
    await_whole(load, active)


@pytest.mark.timeout(900)
def test_a_disk_that_hangs_under_the_active_node_hands_over(scene: Scene, load: Load) -> None:
    bed = scene.bed
    active = collect.active_node(bed, NAME)
    standby = load.peer_of(active)
    await_whole(load, active)
    before, began_s = boot_id(bed, active), time.time()
    faults.break_disk(bed.lab, bed.node(active), 1, Disk.HANG, LocalRunner())
    wait_for(
        f"{standby} to serve",
        lambda: audit.active_nodes(collect.views(bed), NAME) == [standby],
        within_s=HANGING_AFTER_S + MARGIN_S + 60.0,
        every_s=1.0,
    )
    print(f"  served by {standby} after {time.time() - began_s:.0f} s")
    await_writes(load)
    wait_for(f"{active} to be back", lambda: boot_id(bed, active) != before, within_s=BACK_S)
    await_whole(load, standby)
