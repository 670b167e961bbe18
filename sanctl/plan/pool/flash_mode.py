# SPDX-License-Identifier: GPL-2.0-or-later
"""How a pool's flash is used: changing it, making a pool anew, what the nodes say of it."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.errors import Problem, Refused
from sanctl.model.cache_policy import Mode
from sanctl.model.cib_change import Change, SetNodeAttribute
from sanctl.model.cluster import Cluster, NodeState
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import NodeName, PoolName, format_bytes
from sanctl.model.pool_cache import WISH, CacheState, ModeWish, parse_wish
from sanctl.model.topology import Pool, Topology
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.preconditions import maintenance_problems
from sanctl.plan.device.creation import no_quorum_problem
from sanctl.plan.replicas.replica_safety import is_good

#: Writing back what is dirty holds up a change of the mode, or a flash's removal, this long.
_LONG_FLUSH_S = 300

SENTENCES = {
    "flash-lost": "the flash has failed",
    "no-flash": "there is no flash that is the pool's",
    "not-prepared": "it is still the pool as it was before it got flash",
    "flushing": "the slow disk is still getting what is on flash alone",
    "changing": "the node has not got there yet",
    "no-agent": "its pool agent does not run",
    "untold": "it has not told yet",
} | {
    NodeState.STANDBY.value: "the node is in standby",
    NodeState.OFFLINE.value: "the node is offline",
    NodeState.UNCLEAN.value: "the node is unclean",
    NodeState.MAINTENANCE.value: "the node is in maintenance",
    NodeState.PENDING.value: "the node is joining",
    NodeState.UNKNOWN.value: "Pacemaker says nothing of the node",
}
_LASTING = frozenset({"flash-lost", "no-flash", "not-prepared"})
#: Nodes in these states follow no wish before somebody has done something about it.
_AWAY = frozenset(NodeState) - {NodeState.ONLINE, NodeState.PENDING}


def existing_pool(topology: Topology, name: PoolName) -> Pool:
    """Return a pool that is cached.

    Raises:
        Refused: there is none of that name, or it has no flash.
    """
    pool = topology.pool(name)
    if pool is None:
        names = ", ".join(str(each.name) for each in topology.pools)
        raise Refused(
            Problem("SAN-POOL-011", f"there is no pool {name}", f"cluster.toml has: {names}")
        )
    if pool.cache is None:
        raise Refused(
            Problem(
                "SAN-POOL-018",
                f"pool {name} has no flash cache",
                "give it `cache` in the inventory: docs/howto/pool-cache.md",
            )
        )
    return pool


def mode_wish(cluster: Cluster, pool: Pool, node: NodeName) -> ModeWish | None:
    """Return what is wanted of a pool's flash on a node; None where it has no flash."""
    if pool.cache is None:
        return None
    for each in cluster.cib.nodes:
        if each.name == node:
            return parse_wish(each.attributes.get(f"{WISH}{pool.name}", ""), pool.cache.mode)
    return ModeWish(pool.cache.mode)


def common_mode(cluster: Cluster, pool: Pool) -> Mode | None:
    """Return the mode that is wanted of a pool on all its nodes; None where these differ."""
    wishes = (mode_wish(cluster, pool, node) for node in pool.nodes)
    modes = {wish.mode for wish in wishes if wish is not None}
    return modes.pop() if len(modes) == 1 else None


def plan_mode(cluster: Cluster, pool: Pool, mode: Mode) -> tuple[Change, ...]:
    """Return the changes that give a pool a mode on all its nodes; nothing where it has it.

    Raises:
        Refused: no quorum, or Pacemaker would not carry it out.
    """
    problems = [*([] if cluster.mon.has_quorum else [no_quorum_problem()])]
    problems.extend(maintenance_problems(cluster))
    if problems:
        raise Refused(*problems)
    members = {each.name for each in cluster.cib.nodes}
    return tuple(
        SetNodeAttribute(
            node=node,
            attribute=f"{WISH}{pool.name}",
            value=str(ModeWish(mode, wish.serial + 1)),
        )
        for node in pool.nodes
        if node in members
        and (wish := mode_wish(cluster, pool, node)) is not None
        and wish.mode is not mode
    )


def told_state(cluster: Cluster, pool: Pool, node: NodeName) -> CacheState | None:
    """Return what a node's pool agent says of a pool's flash; None is unknown.

    What it said before it was stopped may have changed since. What it said of an earlier wish
    does not tell that it follows the present one.
    """
    usage, wish = cluster.pool(pool.name, node), mode_wish(cluster, pool, node)
    state = usage.cache if usage is not None else None
    if state is None or wish is None or not cluster.is_pool_agent_running(node):
        return None
    if (state.wanted, state.serial) == wish:
        return state
    return state._replace(wanted=wish.mode, reason="changing")


def unknown_reason(cluster: Cluster, pool: Pool, node: NodeName) -> str:
    """Return why what a pool's flash is in is not known, as a key of SENTENCES or an error code."""
    state = cluster.mon.state(node)
    if state is not NodeState.ONLINE:
        return state.value
    if not cluster.is_pool_agent_running(node):
        return "no-agent"
    usage = cluster.pool(pool.name, node)
    return (usage.error if usage is not None else None) or "untold"


def mode_applied(cluster: Cluster, pool: Pool, mode: Mode) -> Progress:
    """A mode is applied when every node that can follow is in it, or lacks its flash for good."""
    away = nodes_away(cluster, pool)
    return Progress(
        is_done=all(
            _has_settled(told_state(cluster, pool, node), mode)
            for node in pool.nodes
            if node not in away
        ),
        seen=", ".join(f"{node}: {node_words(cluster, pool, node)}" for node in pool.nodes),
    )


def _has_settled(state: CacheState | None, mode: Mode) -> bool:
    if state is None or state.wanted is not mode:
        return False
    return (state.mode is mode and not state.reason) or state.reason in _LASTING


def nodes_away(cluster: Cluster, pool: Pool) -> tuple[NodeName, ...]:
    """Return the nodes of a pool that do not follow now, and are not about to."""
    return tuple(node for node in pool.nodes if cluster.mon.state(node) in _AWAY)


def away_problems(cluster: Cluster, pool: Pool, mode: Mode) -> tuple[Problem, ...]:
    """Return on which nodes a mode is not known to be reached, though all others are there.

    Towards write-back a node that is away costs nothing: none is returned, unless all are.
    """
    away = nodes_away(cluster, pool)
    if mode is Mode.WRITE_BACK and len(away) < len(pool.nodes):
        return ()
    return tuple(
        Problem(
            "SAN-POOL-024",
            f"pool {pool.name} is not known to be in {mode.value} on {node}: "
            + SENTENCES[cluster.mon.state(node).value]
            + (
                ""
                if mode is Mode.WRITE_BACK
                else "; its data may be on its flash alone, so leave that in"
            ),
            f"{_return_of(cluster, node)}, and run this again: it tells when it is there",
        )
        for node in away
    )


def _return_of(cluster: Cluster, node: NodeName) -> str:
    """Say how a node comes to follow what is wanted of it."""
    match cluster.mon.state(node):
        case NodeState.STANDBY:
            return f"'sanctl node online {node}'; it follows then"
        case NodeState.OFFLINE:
            return f"start {node}; it follows then"
        case _:
            return f"'sanctl status' says what to do about {node}; it follows then"


def node_words(cluster: Cluster, pool: Pool, node: NodeName) -> str:
    """Say what a pool's flash is in on a node, in a few words."""
    state = told_state(cluster, pool, node)
    if state is not None:
        return cache_words(state)
    reason = unknown_reason(cluster, pool, node)
    return f"? ({SENTENCES.get(reason, reason)})"


def cache_words(state: CacheState) -> str:
    """Say what a pool's flash is in, in a few words."""
    text = state.mode.value
    if state.dirty_bytes:
        text += f", {format_bytes(state.dirty_bytes)} dirty"
        if state.flush_s is not None:
            text += f", {state.flush_s} s to flush"
    if state.hit_percent is not None:
        text += f", {state.hit_percent} % hits"
    if state.reason:
        text += f" ({SENTENCES.get(state.reason, state.reason)})"
    return text


def renewal_problems(cluster: Cluster, pool: Pool, node: NodeName) -> tuple[Problem, ...]:
    """Return why a pool of a node may not be made anew: each device has to be good elsewhere."""
    if not cluster.mon.has_quorum:
        return (no_quorum_problem(),)
    return tuple(
        Problem(
            "SAN-POOL-020",
            f"device {device.name} is not known to have a good copy on another node than {node}",
            "wait until another copy serves and is up to date",
        )
        for device in cluster.cib.devices
        if device.pool == pool.name
        and node in device.nodes
        and not any(is_good(cluster, device, other) for other in device.nodes if other != node)
    )


def cache_findings(cluster: Cluster, pool: Pool, node: NodeName) -> Iterator[Finding]:
    """Return what is to be known of a pool's flash on a node."""
    wish, state = mode_wish(cluster, pool, node), told_state(cluster, pool, node)
    if pool.cache is None or wish is None:
        return
    if state is None:
        yield from _unknown_findings(cluster, pool, node, wish)
        return
    subject = f"pool {pool.name} on {node}"
    if state.mode is not state.wanted:
        is_lasting = state.reason in _LASTING
        yield Finding(
            code="SAN-HLT-091" if is_lasting else "SAN-HLT-090",
            severity=Severity.WARNING if is_lasting else Severity.NOTE,
            subject=subject,
            what=f"its flash is in {state.mode.value} instead of {state.wanted.value}: "
            + SENTENCES.get(state.reason, state.reason),
            why="nothing is at risk; reads and writes are as slow as the disk",
            do=f"a new or repaired device in place of {pool.cache.flash}, then "
            f"'sanctl pool prepare {pool.name}' on {node}"
            if is_lasting
            else "it goes on by itself",
        )
    if state.flush_s is not None and state.flush_s > _LONG_FLUSH_S:
        yield Finding(
            code="SAN-HLT-092",
            severity=Severity.WARNING,
            subject=subject,
            what=f"{format_bytes(state.dirty_bytes)} are on flash alone, about "
            f"{state.flush_s} s of writing to the disk",
            why="without the flash this copy has to be filled anew; a change of mode waits so long",
            do="a faster disk, or 'sanctl pool cache' with write-through",
        )


def _unknown_findings(
    cluster: Cluster, pool: Pool, node: NodeName, wish: ModeWish
) -> Iterator[Finding]:
    usage = cluster.pool(pool.name, node)
    left = usage.cache if usage is not None else None
    if (
        cluster.mon.state(node) is NodeState.STANDBY
        and left is not None
        and (left.wanted, left.serial) == wish
        and _has_settled(left, wish.mode)
    ):
        return  # It was left as is wanted.
    reason = unknown_reason(cluster, pool, node)
    yield Finding(
        code="SAN-HLT-093",
        severity=Severity.NOTE if wish.mode is Mode.WRITE_BACK else Severity.WARNING,
        subject=f"pool {pool.name} on {node}",
        what=f"its flash is not known to be in {wish.mode.value}: {SENTENCES.get(reason, reason)}"
        + (f"; it was left in {cache_words(left)}" if left is not None else ""),
        why="its data may be on its flash alone: leave that in",
        do=_return_of(cluster, node)
        if cluster.mon.state(node) in _AWAY
        else f"wait some seconds; if it stays: 'sanctl doctor' on {node}",
    )
