# SPDX-License-Identifier: GPL-2.0-or-later
"""Node attributes: how agents tell the cluster what they see, and what it must remember.

Transient attributes go through attrd_updater(8), which holds them in memory until the node leaves
the cluster; permanent ones are part of the CIB (crm_attribute(8)). Pacemaker takes those without
quorum too: who needs it asks corosync.
"""

from __future__ import annotations

from sanctl.parse.attrd import parse_attributes
from sanctl.system.runner import Runner

# Told again by the next monitor: nothing that serves may wait long for being told of.
_TIMEOUT_S = 5.0


def publish(runner: Runner, attribute: str, value: str) -> None:
    """Set a transient attribute of this node."""
    # In one word: Pacemaker 2.1.5 takes a -INFINITY of its own for the options -I -N FINITY, and
    # reports success.
    runner.run(["attrd_updater", "--name", attribute, f"--update={value}"], timeout_s=_TIMEOUT_S)


def whisper(runner: Runner, attribute: str, value: str) -> None:
    """Set a transient attribute of this node that never enters the CIB.

    For what changes every second: a change of the CIB has the scheduler think again.
    """
    runner.run(
        ["attrd_updater", "--name", attribute, f"--update={value}", "--private"],
        timeout_s=_TIMEOUT_S,
    )


def look_up(runner: Runner, attribute: str, node: str) -> str:
    """Return a transient attribute of any node, empty where it has none.

    Raises:
        CommandError: no answer came.
    """
    answer = runner.run(
        ["attrd_updater", "--query", "--name", attribute, "--node", node],
        timeout_s=_TIMEOUT_S,
        ok=(0, 6, 78, 105),
    )
    found = parse_attributes(answer.stdout)
    return found.get(node, "") if answer.status == 0 else ""


def write_all(runner: Runner) -> None:
    """Have all transient attributes written to the CIB again, as the daemon here knows them."""
    runner.run(["attrd_updater", "--refresh"], timeout_s=_TIMEOUT_S)


def withdraw(runner: Runner, attribute: str) -> None:
    """Remove a transient attribute of this node."""
    runner.run(["attrd_updater", "--name", attribute, "--delete"], timeout_s=_TIMEOUT_S)


def set_promotion_score(runner: Runner, resource: str, score: int | None) -> None:
    """Publish this node's promotion score for a resource; None means never.

    The scheduler reads the score of an anonymous clone's instance from `master-RESOURCE`. One
    without any counts as -1, which a constraint that wants it there outweighs (Pacemaker Explained,
    "Promotion scores"); -INFINITY nothing does.
    """
    publish(runner, f"master-{resource}", "-INFINITY" if score is None else str(score))


def withdraw_promotion_score(runner: Runner, resource: str) -> None:
    """Remove this node's promotion score for a resource that is stopped here."""
    withdraw(runner, f"master-{resource}")


def forget(runner: Runner, node: str, attribute: str, *, timeout_s: float) -> None:
    """Remove a permanent attribute of any node; one that is not there is fine."""
    runner.run(
        ["crm_attribute", "--node", node, "--name", attribute, "--delete", "--lifetime", "forever"],
        timeout_s=timeout_s,
        ok=(0, 6, 78, 105),  # no such attribute: before 2.0, 3.0.0, others
    )
