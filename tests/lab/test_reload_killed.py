# SPDX-License-Identifier: GPL-2.0-or-later
"""`reload-agent` of the device agent killed after a step, while a host writes.

Pacemaker is involved: a command changes a parameter, Pacemaker has the agent of each node apply it,
and the agent of one node dies half-way. What it left is applied by the next action: nothing is
stopped, nothing moves, and the host notices nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from sanctl.lab.bench import replica_changes
from sanctl.lab.harness import collect, failover
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import ledgers
from tests.support.replica_change_steps import CHANGE_S
from tests.support.steps import PAUSE_DEADLINE_S, assert_no_error, await_idle, await_writes

pytestmark = pytest.mark.faults

NAME = "reload0"
NODES = ("n1", "n2")
STRANGER = "iqn.2026-11.net.example:stranger"
# Two monitors of each role, on a busy machine.
APPLIED_S = 60.0
FOLDER = "/run/sanctl/die-after"


@dataclass(frozen=True)
class Change:
    """A change that reaches a step: the command, and what the kernel of a node then has."""

    words: Callable[[int], tuple[str, ...]]
    is_applied: Callable[[LabSession, str, int], bool]


def _initiators(bed: LabSession, node: str, number: int) -> bool:
    acls = f"ls /sys/kernel/config/target/iscsi/*.{NAME}/tpgt_*/acls"
    return f"{STRANGER}{number}" in bed.sh(node, acls).stdout.split()


def _rate(bed: LabSession, node: str, number: int) -> bool:
    shown = bed.sh(node, f"drbdsetup show {NAME}").stdout
    return re.search(rf"c-max-rate\s+{(40 + number) * 1024}k", shown) is not None


def _size(bed: LabSession, node: str, number: int) -> bool:
    found = bed.sh(node, f"blockdev --getsize64 /dev/mapper/sanctl-{NAME}").stdout
    return int(found) == _size_mib(number) << 20


def _size_mib(number: int) -> int:
    return 64 + 8 * number


_RATE = Change(lambda number: ("device", "sync", NAME, "--rate-max", f"{40 + number}M"), _rate)
_SIZE = Change(lambda number: ("device", "resize", NAME, f"{_size_mib(number)}M"), _size)
CHANGES = {
    "initiators": Change(
        lambda number: ("target", "allow", NAME, f"{STRANGER}{number}"), _initiators
    ),
    "policy": _RATE,
    "files": _SIZE,
    "grown": _SIZE,
}


@pytest.fixture(scope="module")
def load(scenario: Scenario) -> Iterator[LedgerLoad]:
    """A ledger on a device that n1 serves; nothing may be lost."""
    with ledgers.ledger_on_new_device(
        scenario, NAME, "64M", rate=100, region_bytes=16 << 20
    ) as made:
        yield made


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    """Numbers that make each change differ from those before it."""
    return iter(range(1, 100))


def assert_left_alone(load: LedgerLoad, began_s: float) -> None:
    """Check that Pacemaker has no failure to show, that nothing moved, and all is well."""
    bed = load.bed
    await_idle(bed, "n3")
    await_writes(load)
    assert assert_no_error(load, began_s) <= PAUSE_DEADLINE_S
    log = collect.journals(bed, NODES, began_s)
    # After a reload Pacemaker promotes once more what is promoted already.
    taken_down = {"start", "demote", "stop"}
    assert [e.message for e in log if e.device == NAME and e.action in taken_down] == []
    assert any(e.device == NAME for e in log), "the journals tell nothing"
    assert collect.active_node(bed, NAME) == "n1"
    assert NAME not in bed.sh("n3", "crm_mon --one-shot --include=none,failures").stdout
    failover.await_healthy(bed, "n1")


def killed_reloads(bed: LabSession, node: str, since_s: float) -> int:
    line = f"{NAME}: device reload-agent: the process was killed before its end"
    out = bed.sh(node, f"journalctl --quiet --since @{since_s:.0f} | grep -c '{line}' || true")
    return int(out.stdout)


def change_with_a_kill(bed: LabSession, node: str, step: str, *words: str) -> float:
    """Run a command while the agent on a node is to die after a step; return when it began."""
    began_s, trap = time.time(), f"{FOLDER}/{step}"
    bed.sh(node, f"mkdir -p {FOLDER}; touch {trap}")
    try:
        done = bed.sh("n3", f"sanctl {' '.join(words)}", ok=range(256), timeout_s=200)
        print(f"  {time.time() - began_s:.0f} s, status {done.status} {done.stderr.strip()}")
        wait_for(
            "the agent to die",
            lambda: bed.sh(node, f"test -e {trap}", ok=(0, 1)).status == 1,
            within_s=30,
        )
    finally:
        bed.sh(node, f"rm -f {trap}")
    assert killed_reloads(bed, node, began_s) == 1
    return began_s


@pytest.mark.parametrize("node", NODES, ids=["active", "standby"])
@pytest.mark.parametrize("step", CHANGES)
def test_killed_after_a_step(
    scenario: Scenario, load: LedgerLoad, numbers: Iterator[int], step: str, node: str
) -> None:
    bed, change, number = scenario.bed, CHANGES[step], next(numbers)
    began_s = change_with_a_kill(bed, node, step, *change.words(number))
    wait_for(
        "the change to be applied on both nodes",
        lambda: all(change.is_applied(bed, each, number) for each in NODES),
        within_s=APPLIED_S,
    )
    print(f"  applied on both after {time.time() - began_s:.0f} s")
    assert_left_alone(load, began_s)


def _has_replicas_on(bed: LabSession, nodes: tuple[str, ...]) -> bool:
    return replica_changes.replica_nodes(bed, "n1", NAME) == nodes


def test_killed_while_the_other_replica_goes_and_comes(
    scenario: Scenario, load: LedgerLoad
) -> None:
    """The agent of the node that serves dies when DRBD has the changed list of peers."""
    bed = scenario.bed
    for words in (("1", "--drop", "n2"), ("2", "--add", "n2")):
        began_s = change_with_a_kill(bed, "n1", "nodes", "device", "replicas", NAME, *words)
        wanted = ("n1",) if words[0] == "1" else NODES
        wait_for(
            f"replicas on {' and '.join(wanted)}",
            partial(_has_replicas_on, bed, wanted),
            within_s=CHANGE_S,
        )
        await_idle(bed, "n3")
        await_writes(load)
        assert assert_no_error(load, began_s) <= PAUSE_DEADLINE_S
        assert collect.active_node(bed, NAME) == "n1"
        assert NAME not in bed.sh("n3", "crm_mon --one-shot --include=none,failures").stdout
    wait_for("both in sync", lambda: collect.is_in_sync(bed, "n1", NAME), within_s=CHANGE_S)
    failover.await_healthy(bed, "n1")
