"""How a pool's flash is used: changing it, making a pool anew, what the nodes say of it."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.errors import Problem, Refused
from sanctl.model.cache import Mode
from sanctl.model.change import Change, SetNodeAttribute
from sanctl.model.cluster import Cluster
from sanctl.model.health import Finding, Severity
from sanctl.model.names import NodeName, PoolName, format_bytes
from sanctl.model.poolcache import WISH, CacheState
from sanctl.model.topology import Pool, Topology
from sanctl.plan.copies import is_good
from sanctl.plan.creation import no_quorum_problem
from sanctl.plan.goal import Progress

#: Writing back what is dirty holds up a change of the mode, or a flash's removal, this long.
_LONG_FLUSH_S = 300

SENTENCES = {
    "flash-lost": "the flash has failed",
    "no-flash": "there is no flash that is the pool's",
    "not-prepared": "it is still the pool as it was before it got flash",
    "flushing": "the slow disk is still getting what is on flash alone",
    "changing": "the node has not got there yet",
}
_LASTING = frozenset({"flash-lost", "no-flash", "not-prepared"})


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


def wanted_mode(cluster: Cluster, pool: Pool, node: NodeName) -> Mode | None:
    """Return the mode that is wanted of a pool on a node; None where it has no flash."""
    if pool.cache is None:
        return None
    for each in cluster.cib.nodes:
        if each.name == node:
            word = each.attributes.get(f"{WISH}{pool.name}", "")
            return Mode(word) if word in set(Mode) else pool.cache.mode
    return pool.cache.mode


def plan_mode(cluster: Cluster, pool: Pool, mode: Mode) -> tuple[Change, ...]:
    """Return the changes that give a pool a mode on all its nodes; nothing where it has it.

    Raises:
        Refused: no quorum.
    """
    if not cluster.mon.has_quorum:
        raise Refused(no_quorum_problem())
    members = {each.name for each in cluster.cib.nodes}
    return tuple(
        SetNodeAttribute(node=node, attribute=f"{WISH}{pool.name}", value=mode.value)
        for node in pool.nodes
        if node in members and wanted_mode(cluster, pool, node) is not mode
    )


def mode_applied(cluster: Cluster, pool: Pool, mode: Mode) -> Progress:
    """A mode is applied when every node whose agent runs is in it, or lacks its flash for good."""
    told = {
        node: usage.cache if (usage := cluster.pool(pool.name, node)) is not None else None
        for node in pool.nodes
        if cluster.is_pool_agent_running(node)
    }
    return Progress(
        is_done=all(_has_settled(state, mode) for state in told.values()),
        seen=", ".join(f"{node}: {cache_words(state)}" for node, state in told.items()),
    )


def _has_settled(state: CacheState | None, mode: Mode) -> bool:
    if state is None or state.wanted is not mode:
        return False
    return state.mode is mode or state.reason in _LASTING


def cache_words(state: CacheState | None) -> str:
    """Say what a pool's flash is in, in a few words."""
    if state is None:
        return "?"
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


def cache_findings(pool: Pool, node: NodeName, state: CacheState | None) -> Iterator[Finding]:
    """Return what is to be known of a pool's flash on a node."""
    if pool.cache is None or state is None:
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
