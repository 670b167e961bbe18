# SPDX-License-Identifier: GPL-2.0-or-later
"""Failovers while fence-peer handlers are killed, and on a survivor whose /run is full.

DRBD calls the handler of a Primary once: what becomes of a freeze whose handler was killed shows on
real kernels only.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator

import pytest

from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network
from sanctl.lab.measure import kernel_audit
from tests.support import ledgers
from tests.support.steps import await_writes, boot_id, dead_bmc, unplugged

pytestmark = pytest.mark.faults

NAME = "killed0"
# The monitor of a Primary comes every ten seconds and looks twice; the machine is shared.
CALLED_AGAIN_S = 60.0
NOTICE_S = 120.0
RETURN_S = 300.0
# Two monitors of each role.
WATCHED_S = 25.0
#: What the kernel starts and waits for, and the handler's own program, which is a child of that.
CALL, PROGRAM = f"[d]rbdadm.* fence-peer {NAME}", "[/]usr/lib/sanctl/fence-peer"


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    with ledgers.ledger_on_new_device(
        scenario, NAME, "128M", rate=50, region_bytes=16 << 20
    ) as made:
        yield made


def pids(bed: LabSession, node: str, pattern: str) -> list[str]:
    return bed.sh(node, f"pgrep -f '{pattern}' || true").stdout.split()


def is_frozen(bed: LabSession, node: str) -> bool:
    return " suspended:fencing" in bed.sh(node, f"drbdsetup events2 --now {NAME}").stdout


def await_call(bed: LabSession, node: str, *, after: list[str]) -> list[str]:
    """Wait until DRBD calls the handler, after those calls; return this one's process id."""
    called = wait_for(
        f"DRBD on {node} to call the handler",
        lambda: [pid for pid in pids(bed, node, CALL) if pid not in after],
        within_s=CALLED_AGAIN_S,
    )
    wait_for("the handler's program", lambda: pids(bed, node, PROGRAM), within_s=CALLED_AGAIN_S)
    return called


def await_end(bed: LabSession, node: str, call: str) -> None:
    wait_for("the end of that call", lambda: call not in pids(bed, node, CALL), within_s=20)


def said(bed: LabSession, node: str, since_s: float, step: str = "") -> list[str]:
    """Return what the handlers and the monitor have said about fencing."""
    fields = "SANCTL_ACTION=fence-peer" + (f" SANCTL_STEP={step}" if step else "")
    lines = bed.sh(
        node, f"journalctl --quiet -o json --since @{since_s:.0f} {fields}"
    ).stdout.splitlines()
    return [str(json.loads(line)["MESSAGE"]) for line in lines]


def await_recovery(load: LedgerLoad, node: str) -> None:
    """Wait until all is as before the fault, on the nodes' tmpfs, too."""
    bed = load.bed
    wait_for("both in sync", lambda: collect.is_in_sync(bed, node, NAME), within_s=RETURN_S)
    failover.await_healthy(bed, node)

    def left_over() -> list[str]:
        script = (
            f"ls /run/sanctl/devices/{NAME} | grep -E 'outdated-unmarked|promoting|[.]new[.]'"
            f"; pgrep -f '{PROGRAM}' || true"
        )
        return [line for each in bed.storage for line in bed.sh(each.name, script).stdout.split()]

    wait_for("nothing to be left over", lambda: not left_over(), within_s=60)


@contextlib.contextmanager
def cibadmin_of_nonsense(bed: LabSession, node: str) -> Iterator[None]:
    """Have cibadmin print half a document, with exit status 0."""
    bed.sh(
        node,
        "printf '#!/bin/sh\\necho \"<cib><configuration\"\\n' > /root/nonsense"
        " && chmod 755 /root/nonsense && mount --bind /root/nonsense /usr/sbin/cibadmin",
    )
    try:
        yield
    finally:
        # While it runs, it is in use.
        bed.sh(node, "umount -l /usr/sbin/cibadmin; rm -f /root/nonsense", ok=range(256))


def kill_program(bed: LabSession, node: str) -> None:
    bed.sh(node, f"pkill -9 -f '{PROGRAM}'")


def run_out_of_memory(bed: LabSession, node: str) -> None:
    """Have the kernel's out-of-memory killer take the handler."""
    bed.sh(
        node,
        f"for pid in $(pgrep -f '{PROGRAM}'); do echo 1000 > /proc/$pid/oom_score_adj; done;"
        " echo f > /proc/sysrq-trigger",
    )


def kill_call(bed: LabSession, node: str) -> None:
    """The handler's program lives on, and its answer reaches nobody."""
    bed.sh(node, f"pkill -9 -f '{CALL}'")


@pytest.mark.timeout(1200)
def test_a_frozen_primary_goes_on_after_its_handlers_were_killed(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """The peer cannot be fenced and is not back: only a handler's answer can end the freeze."""
    bed, began_s = scenario.bed, time.time()
    active = collect.active_node(bed, NAME)
    standby = load.peer_of(active)
    boot = boot_id(bed, active)
    kills: tuple[Callable[[LabSession, str], None], ...]
    kills = (kill_program, run_out_of_memory, kill_call)
    with unplugged(bed, standby, Network.SYNC, Network.HEARTBEAT):
        with dead_bmc(bed, standby):
            wait_for("frozen I/O", lambda: is_frozen(bed, active), within_s=NOTICE_S)
            calls = await_call(bed, active, after=[])
            for kill in kills:
                killed_s = time.monotonic()
                kill(bed, active)
                await_end(bed, active, calls[-1])
                calls += await_call(bed, active, after=calls)
                print(f"  {kill.__name__}: called again in {time.monotonic() - killed_s:.0f} s")
                assert is_frozen(bed, active)
        with cibadmin_of_nonsense(bed, active):
            # For as long as the handler takes to say so, every 30 s.
            wait_for(
                "the handler to meet it",
                lambda: any("SAN-CMD-005" in line for line in said(bed, active, began_s)),
                within_s=90,
            )
            assert is_frozen(bed, active)
        # The peer is cut off all the same: no connection ends the freeze.
        await_writes(load, within_s=NOTICE_S)
        assert not is_frozen(bed, active)
    assert boot_id(bed, active) == boot
    # Once for each, and never for one that lived.
    assert len(said(bed, active, began_s, "call-again")) == len(kills)
    await_recovery(load, active)


#: What is done to the handler's program, as soon as there is one.
KILLS = {
    "killed": f"pkill -9 -f '{PROGRAM}'",
    # The newest is the handler, of a shell. It spares itself the kernel's choice first of all.
    "out-of-memory": (
        f"pid=$(pgrep -n -f '{PROGRAM}') && grep -q '^-1000$' /proc/$pid/oom_score_adj"
        " && echo 1000 > /proc/$pid/oom_score_adj && echo f > /proc/sysrq-trigger"
        " && for j in $(seq 40); do test -e /proc/$pid || break; sleep 0.05; done"
        " && test ! -e /proc/$pid"
    ),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kill", KILLS)
def test_a_takeover_whose_handler_is_killed(
    kill: str, scenario: Scenario, load: LedgerLoad
) -> None:
    """DRBD refuses the promotion then; the cluster tries again."""
    bed = scenario.bed
    active = collect.active_node(bed, NAME)
    survivor = load.peer_of(active)
    await_recovery(load, active)
    boot = boot_id(bed, survivor)
    script = (
        "for i in $(seq 2400); do"
        f" {{ {KILLS[kill]}; }} 2>/dev/null && echo killed && exit 0; sleep 0.05; done; echo none"
    )
    with bed.stream(survivor, script) as killer:
        bed.cut_power(active)
        assert killer.stdout is not None
        assert killer.stdout.readline().strip() == "killed"
    await_writes(load, within_s=NOTICE_S)
    assert collect.active_node(bed, NAME) == survivor
    assert boot_id(bed, survivor) == boot
    bed.ensure_power(active)
    await_recovery(load, survivor)


@pytest.mark.timeout(900)
def test_a_takeover_while_cibadmin_answers_nonsense(scenario: Scenario, load: LedgerLoad) -> None:
    """What cannot be read promotes nothing; once it can be, the takeover goes on by itself."""
    bed, began_s = scenario.bed, time.time()
    active = collect.active_node(bed, NAME)
    survivor = load.peer_of(active)
    await_recovery(load, active)
    boot = boot_id(bed, survivor)
    with cibadmin_of_nonsense(bed, survivor):
        bed.cut_power(active)
        wait_for(
            "the handler to meet it",
            lambda: any("SAN-CMD-005" in line for line in said(bed, survivor, began_s)),
            within_s=NOTICE_S,
        )
        assert not kernel_audit.active_nodes(collect.kernel_views(bed), NAME)
    await_writes(load, within_s=NOTICE_S)
    assert collect.active_node(bed, NAME) == survivor
    assert boot_id(bed, survivor) == boot
    bed.ensure_power(active)
    await_recovery(load, survivor)


@pytest.mark.timeout(900)
def test_a_takeover_with_a_full_run_folder(scenario: Scenario, load: LedgerLoad) -> None:
    bed, began_s = scenario.bed, time.time()
    active = collect.active_node(bed, NAME)
    survivor = load.peer_of(active)
    await_recovery(load, active)
    boot = boot_id(bed, survivor)
    with full_run(bed, survivor):
        assert_no_failure(bed, survivor)
        bed.cut_power(active)
        await_writes(load, within_s=NOTICE_S)
        assert_no_failure(bed, survivor)
        assert collect.active_node(bed, NAME) == survivor
    assert boot_id(bed, survivor) == boot
    print("  " + "\n  ".join(sorted(set(said(bed, survivor, began_s)))))
    bed.ensure_power(active)
    await_recovery(load, survivor)


@contextlib.contextmanager
def full_run(bed: LabSession, node: str) -> Iterator[None]:
    """Leave no byte on a node's /run; tmpfs still takes empty files."""
    bed.sh(node, "dd if=/dev/zero of=/run/ballast bs=4k 2>/dev/null || true", timeout_s=120)
    assert bed.sh(node, "echo full > /run/more", ok=(0, 1, 2)).status != 0
    try:
        yield
    finally:
        bed.sh(node, "rm -f /run/ballast /run/more")


def assert_no_failure(bed: LabSession, node: str) -> None:
    """Watch for as long as two monitors take that Pacemaker counts no failure of the device."""
    end = time.monotonic() + WATCHED_S
    while time.monotonic() < end:
        assert NAME not in bed.sh(node, "crm_mon --one-shot --include=none,failures").stdout
        time.sleep(2.0)
