# SPDX-License-Identifier: GPL-2.0-or-later
"""Steps of tests that add or drop replicas of a device under a running ledger.

Every such test ends the same way: all that was acknowledged is there, no request failed, and the
session to every node that kept its replica is the one it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from sanctl.lab.bench import replica_changes
from sanctl.lab.harness.failover import LedgerLoad, await_healthy
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from tests.support import ledgers
from tests.support.steps import PAUSE_DEADLINE_S

CHANGE_S = 480.0


@contextlib.contextmanager
def loaded(
    scenario: Scenario, name: str, nodes: Sequence[str], *, cache: str = "none"
) -> Iterator[LedgerLoad]:
    """A device with replicas on these nodes, and a ledger on it; nothing of it may be lost."""
    if scenario.exists(name):
        scenario.delete(name)
    try:
        made = replica_changes.open_load(scenario, name, "256M", nodes, cache=cache)
        yield made
        ledgers.assert_nothing_lost(made)
    finally:
        await_healthy(scenario.bed, scenario.bed.storage[0].name)
        if scenario.exists(name):
            scenario.delete(name)


def files(bed: LabSession, node: str) -> str:
    return bed.sh(node, "ls /srv/sanctl/main/devices", ok=range(256)).stdout


def assert_unnoticed(trial: replica_changes.ReplicaChange) -> None:
    print(f"  {trial.name}: longest pause {trial.pause.seconds:.2f} s")
    assert trial.sessions_kept
    assert trial.pause.errors == 0
    assert trial.violations == ()
    # A shared machine is no stop-watch: `sanctl bench levels` judges the pause.
    assert trial.pause.seconds <= PAUSE_DEADLINE_S


def begin_change(bed: LabSession, node: str, *words: str) -> None:
    """Run a command of sanctl on a node in the background."""
    bed.sh(
        node,
        "systemctl reset-failed levels-change 2>/dev/null;"
        f" systemd-run --quiet --collect --unit=levels-change sanctl {' '.join(words)}",
    )


def await_filling(bed: LabSession, node: str, name: str) -> None:
    """Wait until a node's replica is being filled."""
    wait_for(
        f"a replica to be filled on {node}",
        lambda: "SyncTarget" in bed.sh(node, f"drbdsetup events2 --now {name}").stdout,
        within_s=120,
        every_s=0.3,
    )


def follow(scenario: Scenario, load: LedgerLoad, *nodes: str) -> None:
    """Do for the host what docs/howto/replicas.md asks of it when replicas have moved."""
    for portal in set(scenario.portals()) - set(scenario.portals(nodes)):
        record = f"iscsiadm -m node -T {load.target} -p {portal}"
        scenario.host.sh(f"{record} --logout; {record} -o delete; true", timeout_s=120)
    scenario.host.login(load.target, scenario.portals(nodes))
