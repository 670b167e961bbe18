# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests share that change a device's copies under a running ledger.

Every such test ends the same way: all that was acknowledged is there, no request failed, and the
session to every node that kept its copy is the one it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from sanctl.lab.bench import replica_changes
from sanctl.lab.harness.failover import Load, await_healthy
from sanctl.lab.harness.lab_session import Bed, wait_for
from sanctl.lab.harness.scenario import Scene

SLACK = 2.5  # a shared machine is no stop-watch; what is recorded comes from `sanctl bench levels`
CHANGE_S = 480.0


@contextlib.contextmanager
def loaded(scene: Scene, name: str, nodes: Sequence[str], *, cache: str = "none") -> Iterator[Load]:
    """A device with copies on these nodes, and a ledger on it; nothing of it may be lost."""
    if scene.exists(name):
        scene.delete(name)
    try:
        made = replica_changes.open_load(scene, name, "256M", nodes, cache=cache)
        yield made
        check = replica_changes.close_load(made)
        print(f"  ledger: {check['acknowledged']} acknowledged, {check['lost']} lost")
        assert check["acknowledged"] > 200
        assert (check["lost"], check["errors"]) == (0, 0), check["findings"]
    finally:
        await_healthy(scene.bed, scene.bed.storage[0].name)
        if scene.exists(name):
            scene.delete(name)


def files(bed: Bed, node: str) -> str:
    return bed.sh(node, "ls /srv/sanctl/main/devices", ok=range(256)).stdout


def assert_unnoticed(trial: replica_changes.LevelTrial) -> None:
    print(f"  {trial.name}: longest pause {trial.pause.seconds:.2f} s")
    assert trial.sessions_kept
    assert trial.pause.errors == 0
    assert trial.violations == ()
    assert trial.pause.seconds <= replica_changes.PAUSE_GOAL_S * SLACK


def begin_change(bed: Bed, node: str, *words: str) -> None:
    """Let a node run a command of sanctl in the background, as somebody would at its prompt."""
    bed.sh(
        node,
        "systemctl reset-failed levels-change 2>/dev/null;"
        f" systemd-run --quiet --collect --unit=levels-change sanctl {' '.join(words)}",
    )


def await_filling(bed: Bed, node: str, name: str) -> None:
    """Wait until a node's copy is being filled."""
    wait_for(
        f"a copy to be filled on {node}",
        lambda: "SyncTarget" in bed.sh(node, f"drbdsetup events2 --now {name}").stdout,
        within_s=120,
        every_s=0.3,
    )


def follow(scene: Scene, load: Load, *nodes: str) -> None:
    """Do for the host what docs/howto/replicas.md asks of it when copies have moved."""
    for portal in set(scene.portals()) - set(scene.portals(nodes)):
        record = f"iscsiadm -m node -T {load.target} -p {portal}"
        scene.host.sh(f"{record} --logout; {record} -o delete; true", timeout_s=120)
    scene.host.login(load.target, scene.portals(nodes))
