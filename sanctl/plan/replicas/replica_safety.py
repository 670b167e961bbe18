# SPDX-License-Identifier: GPL-2.0-or-later
"""What is certain about the copies of a device: which is good, and which may be dropped.

The rule this guards: the last copy that is known to be up to date is never dropped. Known means
that a node of this quorate cluster serves from it now, or that it is in sync with that one. What a
node that is away holds is not known; what a node that is not yet fenced does is not known either.
"""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem
from sanctl.model.cluster import PRESENT, Cluster, NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.drbd import has_majority
from sanctl.model.names import NodeName
from sanctl.plan.device.creation import node_problems

#: Fewer good copies than wanted for a while, because DRBD 8.4 has no room for one more.
RISK_FEWER_COPIES = "SAN-RISK-004"
#: What a node in these states does with its copy is certain: nothing, or what it is told.
_CERTAIN = PRESENT | {NodeState.OFFLINE}


def server_of(cluster: Cluster, device: DeviceSpec) -> NodeName | None:
    """Return the node that serves a device from a good copy of its own; None: not known."""
    active = cluster.active_node(device.name)
    for node in device.nodes:
        if node.value == active:
            replica = cluster.replica(device.name, node)
            is_good = replica.is_up_to_date and not replica.is_frozen
            return node if is_good and not cluster.is_marked(device, node) else None
    return None


def is_good(cluster: Cluster, device: DeviceSpec, node: NodeName) -> bool:
    """Whether a copy is known to hold all that has been acknowledged."""
    server = server_of(cluster, device)
    if server is None or cluster.mon.state(node) not in PRESENT:
        return False
    if node == server:
        return True
    replica = cluster.replica(device.name, node)
    return replica.is_in_sync_with((server,)) and not cluster.is_marked(device, node)


def is_filling(cluster: Cluster, device: DeviceSpec, node: NodeName) -> bool:
    """Whether a copy is here, not good, and may become that by itself."""
    return cluster.mon.state(node) in PRESENT and not is_good(cluster, device, node)


def lacks_majority(cluster: Cluster, device: DeviceSpec, nodes: Collection[NodeName]) -> bool:
    """Whether DRBD would freeze I/O if these nodes held the copies.

    It counts three and more: those it sees against all (docs/adr/0029). A new one counts among all
    at once, and is seen when its node has started it.
    """
    good = sum(is_good(cluster, device, node) for node in device.nodes if node in nodes)
    return has_majority(len(nodes)) and 2 * good <= len(nodes)


def majority_problem(cluster: Cluster, device: DeviceSpec, nodes: Collection[NodeName]) -> Problem:
    """Return what is said of a change after which I/O would freeze."""
    good = ", ".join(
        str(node) for node in device.nodes if node in nodes and is_good(cluster, device, node)
    )
    return Problem(
        "SAN-REP-007",
        f"device {device.name} would have {len(nodes)} copies, of which only {good or 'none'} "
        "would be in sync: no majority, so its I/O would freeze",
        "bring nodes back, or drop the copies of nodes that are gone first",
    )


def source_problems(cluster: Cluster, device: DeviceSpec) -> tuple[Problem, ...]:
    """Return why it is not known which copy of a device is good."""
    if server_of(cluster, device) is not None:
        return ()
    active = cluster.active_node(device.name)
    if active is None:
        return (
            Problem(
                "SAN-REP-002",
                f"device {device.name} is not served, so which of its copies is the newest is not "
                "known",
                f"see to that first: 'sanctl status', 'sanctl device show {device.name}'",
            ),
        )
    seen = ", ".join(
        f"{node} {cluster.replica(device.name, node).brief()}"
        for node in device.nodes
        if node.value == active
    )
    return (
        Problem(
            "SAN-REP-002",
            f"device {device.name} is not served from a good copy now: {seen}",
            "wait until it is: 'sanctl status' says what is the matter",
        ),
    )


def drop_problems(
    cluster: Cluster, device: DeviceSpec, drops: Collection[NodeName]
) -> tuple[Problem, ...]:
    """Return why these copies may not be dropped, whatever comes in their place later."""
    problems = [
        Problem(
            "SAN-REP-003",
            f"node {node} is {cluster.mon.state(node).value}: what it does with its copy of "
            f"{device.name} is not known",
            f"it has to be fenced or to come back first: 'sanctl node fence {node}'",
        )
        for node in drops
        if cluster.mon.state(node) not in _CERTAIN
    ]
    kept = [node for node in device.nodes if node not in drops]
    if any(is_good(cluster, device, node) for node in kept):
        return tuple(problems)
    unknown = source_problems(cluster, device)
    if unknown:
        return (*problems, *unknown)
    good = ", ".join(str(node) for node in drops if is_good(cluster, device, node))
    rest = "; ".join(f"{node}: {_condition(cluster, device, node)}" for node in kept)
    return (
        *problems,
        Problem(
            "SAN-REP-001",
            f"{good} has the last copy of device {device.name} that is known to be up to date"
            + (f" ({rest})" if rest else ""),
            "let another copy get in sync first",
        ),
    )


def new_copy_problems(cluster: Cluster, device: DeviceSpec, node: NodeName) -> tuple[Problem, ...]:
    """Return why a node cannot get a new copy of a device now."""
    problems = list(node_problems(cluster, device.pool, node, device.size.bytes))
    if any(stone.node == node for stone in cluster.cib.tombstones_of(device.name)):
        problems.append(
            Problem(
                "SAN-REP-004",
                f"node {node} still has the data of an earlier copy of device {device.name}",
                "its pool agent removes it when it runs: try again then",
            )
        )
    return tuple(problems)


def _condition(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str:
    state = cluster.mon.state(node)
    if state not in PRESENT:
        return state.value
    if cluster.is_marked(device, node):
        return "marked as behind"
    return cluster.replica(device.name, node).brief()
