# SPDX-License-Identifier: GPL-2.0-or-later
"""Node attributes as agents publish, query and delete them: attrd_updater(8), crm_attribute(8).

pacemaker-attrd holds transient attributes in memory until the node leaves the cluster; permanent
ones are part of the CIB. Pacemaker accepts both without quorum too: a caller that needs quorum asks
corosync.
"""

from __future__ import annotations

from sanctl.parse.attrd import parse_attributes
from sanctl.system.runner import Runner

# The next monitor publishes again: a device that serves must not wait long for an attribute.
_TIMEOUT_S = 5.0
#: Nothing outweighs it.
_NEVER = "-INFINITY"


def publish(runner: Runner, attribute: str, value: str) -> None:
    """Set a transient attribute of this node."""
    # One argument: Pacemaker 2.1.5 reads a separate -INFINITY as the options -I -N FINITY, and
    # reports success.
    runner.run(["attrd_updater", "--name", attribute, f"--update={value}"], timeout_s=_TIMEOUT_S)


def publish_dampened(runner: Runner, attribute: str, value: str, delay: str) -> None:
    """Set a transient attribute of this node, written to the CIB once it has stayed so for a time.

    The delay is set, too, each time: one that the daemon has from another agent would be kept.
    """
    runner.run(
        ["attrd_updater", "--name", attribute, f"--update-both={value}", f"--delay={delay}"],
        timeout_s=_TIMEOUT_S,
    )


def publish_private(runner: Runner, attribute: str, value: str) -> None:
    """Set a transient attribute of this node that never enters the CIB.

    For values that change every second: each change of the CIB starts the scheduler.
    """
    runner.run(
        ["attrd_updater", "--name", attribute, f"--update={value}", "--private"],
        timeout_s=_TIMEOUT_S,
    )


def query(runner: Runner, attribute: str, node: str) -> str:
    """Return a transient attribute of any node, empty where the node has none.

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


def refresh(runner: Runner) -> None:
    """Have pacemaker-attrd write all transient attributes that it holds to the CIB again."""
    runner.run(["attrd_updater", "--refresh"], timeout_s=_TIMEOUT_S)


def delete(runner: Runner, attribute: str) -> None:
    """Remove a transient attribute of this node."""
    runner.run(["attrd_updater", "--name", attribute, "--delete"], timeout_s=_TIMEOUT_S)


def set_promotion_score(runner: Runner, resource: str, score: int | None) -> None:
    """Publish this node's promotion score for a resource; None means never.

    The scheduler reads the score of an anonymous clone's instance from `master-RESOURCE`. An
    instance without a score counts as -1, which a constraint with a positive score outweighs
    (Pacemaker Explained, "Promotion scores"); nothing outweighs -INFINITY.
    """
    publish(runner, f"master-{resource}", _NEVER if score is None else str(score))


def kept(device: str) -> str:
    """Return the attribute of a node whose standby of a device was whole when it was stopped."""
    return f"kept-{device}"


def has_promotion_score(runner: Runner, resource: str, node: str) -> bool:
    """Return whether a node has published a promotion score for a resource, other than never.

    Raises:
        CommandError: no answer came.
    """
    return query(runner, f"master-{resource}", node) not in ("", _NEVER)


def delete_promotion_score(runner: Runner, resource: str) -> None:
    """Remove this node's promotion score for a resource that is stopped here."""
    delete(runner, f"master-{resource}")


def set_permanent(
    runner: Runner, node: str, attribute: str, value: str, *, timeout_s: float
) -> None:
    """Give a node a permanent attribute."""
    argv = ["crm_attribute", "--node", node, "--name", attribute, "--update", value]
    runner.run([*argv, "--lifetime", "forever"], timeout_s=timeout_s)


def delete_permanent(runner: Runner, node: str, attribute: str, *, timeout_s: float) -> None:
    """Remove a permanent attribute of any node; one that is not there is fine."""
    runner.run(
        ["crm_attribute", "--node", node, "--name", attribute, "--delete", "--lifetime", "forever"],
        timeout_s=timeout_s,
        ok=(0, 6, 78, 105),  # no such attribute: before 2.0, 3.0.0, others
    )


def permanent_path(node: str, attribute: str, value: str) -> str:
    """Return the XPath of a permanent attribute of a node, while it has this value."""
    return (
        f"/cib/configuration/nodes/node[@uname='{node}']/instance_attributes"
        f"/nvpair[@name='{attribute}'][@value='{value}']"
    )
