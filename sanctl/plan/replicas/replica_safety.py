# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which replicas are known up to date; refuses drops that would leave none of them.

The rule this guards: the last replica that is known to be up to date is never dropped. Known means
that a node of this quorate cluster serves from it now, or that it is in sync with that node's. What
an absent node holds is not known; what a node that is not yet fenced does is not known either.
"""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem
from sanctl.model.cache_policy import CacheMode
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.drbd import uses_quorum
from sanctl.model.names import NodeName
from sanctl.plan.cluster.hold_nodes import unfit_for_hold
from sanctl.plan.device.node_eligibility import node_problems
from sanctl.plan.device.reservations import keeping_problem

#: Fewer good replicas than wanted for a while, because DRBD 8.4 has no room for one more.
RISK_FEWER_REPLICAS = "SAN-RISK-004"
#: In these cache modes an acknowledged write is no more volatile than on a disk without sanctl.
_NOT_IN_RAM = frozenset({CacheMode.NONE.value, CacheMode.WRITE_THROUGH.value})
#: What a node in these states does with its replica is certain: nothing, or what the CIB says.
_CERTAIN = MEMBER_STATES | {NodeState.OFFLINE}


def up_to_date_primary(cluster: Cluster, device: DeviceSpec) -> NodeName | None:
    """Return the node that serves a device from its own good replica; None: not known."""
    active = cluster.active_node(device.name)
    for node in device.nodes:
        if node.value == active:
            replica = cluster.replica(device.name, node)
            is_good = replica.is_up_to_date and not replica.is_frozen
            return node if is_good and not cluster.is_marked(device, node) else None
    return None


def is_known_up_to_date(cluster: Cluster, device: DeviceSpec, node: NodeName) -> bool:
    """Whether a replica is known to hold every acknowledged write."""
    server = up_to_date_primary(cluster, device)
    if server is None or cluster.mon.state(node) not in MEMBER_STATES:
        return False
    if node == server:
        return True
    replica = cluster.replica(device.name, node)
    return replica.is_in_sync_with((server,)) and not cluster.is_marked(device, node)


def is_known_stable(cluster: Cluster, device: DeviceSpec, node: NodeName) -> bool:
    """Whether a replica is known to have every acknowledged write, over a loss of power as well.

    One that has just been filled is not before it was flushed: it would be suspect, and what filled
    it has to be there then (docs/adr/0082). Nor is one whose flush has failed.
    """
    replica = cluster.replica(device.name, node)
    return is_known_up_to_date(cluster, device, node) and not (
        replica.is_settling or replica.is_suspect
    )


def may_be_in_ram_alone(
    cluster: Cluster, device: DeviceSpec, kept: Collection[NodeName]
) -> NodeName | None:
    """Return the node whose RAM alone may hold acknowledged writes once only `kept` is left.

    In write-back two replicas have each write in RAM, and the policy is what keeps that safe: two
    nodes. The files of a dropped replica are removed at once; the one that stays goes to
    write-through when it has noticed, and its flush may take long, or fail. What a node does not
    say counts as write-back. So does the policy, while a good replica is dropped: one that is in
    write-through for a moment may be back in write-back before the drop.
    """
    good = [node for node in kept if is_known_stable(cluster, device, node)]
    if len(good) != 1:
        return None
    loses = any(
        is_known_up_to_date(cluster, device, node) for node in device.nodes if node not in kept
    )
    is_on_disk = cluster.replica(device.name, good[0]).cache in _NOT_IN_RAM
    return good[0] if not is_on_disk or (loses and _wants_write_back(device)) else None


def in_ram_problem(device: DeviceSpec, node: NodeName) -> Problem:
    """Return the refusal of a drop after which acknowledged writes may be in RAM alone."""
    mode = CacheMode.WRITE_THROUGH if _wants_write_back(device) else device.cache.mode
    return Problem(
        "SAN-REP-010",
        f"device {device.name}: acknowledged writes may be in the RAM of {node} alone once the "
        "other replica is dropped (write-back)",
        f"first 'sanctl device cache {device.name} {mode.value}': it returns once all is on disk"
        + ("; write-back again when two replicas are in sync" if _wants_write_back(device) else ""),
    )


def _wants_write_back(device: DeviceSpec) -> bool:
    return device.cache.mode is CacheMode.WRITE_BACK


def lacks_flush_alone(cluster: Cluster, device: DeviceSpec, node: NodeName) -> bool:
    """Whether `is_known_stable` waits for nothing but the flush of what a resync wrote there."""
    replica = cluster.replica(device.name, node)
    return (
        is_known_up_to_date(cluster, device, node)
        and replica.is_settling
        and not replica.is_suspect
    )


def flush_hint(nodes: Collection[NodeName]) -> str:
    """Return what to do where `lacks_flush_alone` is so of these nodes."""
    return (
        f"wait for the flush on {', '.join(map(str, nodes))} of what a resync wrote there, seconds "
        "as a rule; 'journalctl -u sanctl-resync' there says more"
    )


def may_become_stable(cluster: Cluster, device: DeviceSpec, node: NodeName) -> bool:
    """Whether a replica's node is present and `is_known_stable` may become so by itself."""
    return cluster.mon.state(node) in MEMBER_STATES and not is_known_stable(cluster, device, node)


def may_become_up_to_date(cluster: Cluster, device: DeviceSpec, node: NodeName) -> bool:
    """Whether a replica's node is present and the replica may get in sync by itself."""
    return cluster.mon.state(node) in MEMBER_STATES and not is_known_up_to_date(
        cluster, device, node
    )


def lacks_majority(cluster: Cluster, device: DeviceSpec, nodes: Collection[NodeName]) -> bool:
    """Whether DRBD would freeze I/O if these nodes held the replicas.

    DRBD uses quorum with three and more: connected replicas against all (docs/adr/0029). A new
    replica counts among all at once, and connects when its node has started it.
    """
    good = sum(is_known_up_to_date(cluster, device, node) for node in device.nodes if node in nodes)
    return uses_quorum(len(nodes)) and 2 * good <= len(nodes)


def majority_problem(cluster: Cluster, device: DeviceSpec, nodes: Collection[NodeName]) -> Problem:
    """Return the refusal of a change after which I/O would freeze."""
    good = ", ".join(
        str(node)
        for node in device.nodes
        if node in nodes and is_known_up_to_date(cluster, device, node)
    )
    return Problem(
        "SAN-REP-007",
        f"device {device.name} would have {len(nodes)} replicas, of which only {good or 'none'} "
        "would be in sync: no majority, so its I/O would freeze",
        "bring nodes back, or drop the replicas of nodes that are gone first",
    )


def source_problems(cluster: Cluster, device: DeviceSpec) -> tuple[Problem, ...]:
    """Return why it is not known which replica of a device is good."""
    if up_to_date_primary(cluster, device) is not None:
        return ()
    active = cluster.active_node(device.name)
    if active is None:
        return (
            Problem(
                "SAN-REP-002",
                f"device {device.name} is not served, so which of its replicas is the newest is "
                "not known",
                f"have it served first: 'sanctl status', 'sanctl device show {device.name}'",
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
            f"device {device.name} is not served from a good replica now: {seen}",
            "wait until it is: 'sanctl status' says what is wrong",
        ),
    )


def drop_problems(
    cluster: Cluster, device: DeviceSpec, drops: Collection[NodeName]
) -> tuple[Problem, ...]:
    """Return why these replicas may not be dropped, whatever replaces them later."""
    problems = [
        Problem(
            "SAN-REP-003",
            f"node {node} is {cluster.mon.state(node).value}: what it does with its replica of "
            f"{device.name} is not known",
            f"the node has to be fenced or to come back first: 'sanctl node fence {node}'",
        )
        for node in drops
        if cluster.mon.state(node) not in _CERTAIN
    ]
    kept = [node for node in device.nodes if node not in drops]
    if any(is_known_stable(cluster, device, node) for node in kept):
        return tuple(problems)
    unknown = source_problems(cluster, device)
    if unknown:
        return (*problems, *unknown)
    good = ", ".join(str(node) for node in drops if is_known_up_to_date(cluster, device, node))
    rest = "; ".join(f"{node}: {_condition(cluster, device, node)}" for node in kept)
    if good:
        text = f"{good} has the last replica of device {device.name} that is known to be up to date"
    else:
        text = (
            f"{up_to_date_primary(cluster, device)} serves device {device.name} from a replica "
            "that is not known to outlast a loss of power, and no other one that stays is"
        )
    flushed = [node for node in kept if lacks_flush_alone(cluster, device, node)]
    return (
        *problems,
        Problem(
            "SAN-REP-001",
            text + (f" ({rest})" if rest else ""),
            flush_hint(flushed) if flushed else "let another replica get in sync first",
        ),
    )


def new_replica_problems(
    cluster: Cluster, device: DeviceSpec, node: NodeName, accepted: Collection[str] = ()
) -> tuple[Problem, ...]:
    """Return why a node cannot get a new replica of a device now; but for what is `accepted`."""
    problems = list(node_problems(cluster, device.pool, node, device.size.bytes, accepted=accepted))
    if device.awaits and not problems:
        problems += unfit_for_hold(cluster, device.pool, (node,))
    if device.reservations and not problems:
        keeping = keeping_problem(cluster, device.pool, (node,))
        problems += [keeping] if keeping is not None else []
    if any(stone.node == node for stone in cluster.cib.tombstones_of(device.name)):
        is_served = up_to_date_primary(cluster, device) is not None
        problems.append(
            Problem(
                "SAN-REP-004",
                f"node {node} still has the data of an earlier replica of device {device.name}",
                "the node's pool agent removes it when it runs: try again then"
                if is_served
                else "it stays until another node serves the device from a good replica: "
                "docs/howto/replicas.md has what to do where none is left",
            )
        )
    return tuple(problems)


def _condition(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str:
    state = cluster.mon.state(node)
    if state not in MEMBER_STATES:
        return state.value
    if cluster.is_marked(device, node):
        return "marked as outdated"
    replica = cluster.replica(device.name, node)
    if replica.is_suspect:
        return f"{replica.brief()}, suspect"
    if not replica.is_settling:
        return replica.brief()
    return f"{replica.brief()}, what its resync wrote is being flushed"
