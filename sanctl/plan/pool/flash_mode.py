# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: `pool cache`: the mode of a pool's flash on all its nodes; may a pool be reformatted."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.errors import Problem, Refused
from sanctl.model.cache_policy import CacheMode
from sanctl.model.cib_change import Change, SetNodeAttribute
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName, PoolName, format_bytes
from sanctl.model.pool_cache import MODE_ATTRIBUTE_PREFIX, CacheState, WantedMode, parse_wanted_mode
from sanctl.model.topology import Pool, Topology
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.preconditions import (
    maintenance_problems,
    quorum_problems,
    unknown_pool_problem,
    unmanaged_problems,
    unreadable_device_problems,
)
from sanctl.plan.device.restore_points import only_holder_problems
from sanctl.plan.replicas.replica_safety import (
    flush_hint,
    in_ram_problem,
    is_known_stable,
    lacks_flush_alone,
    may_be_in_ram_alone,
)

FLASH_REASON_TEXTS = {
    "flash-lost": "the flash has failed",
    "no-flash": "there is no flash that is the pool's",
    "no-bcache": "the pool is still as it was before it got flash",
    "not-prepared": "an older release of sanctl there says that the pool has no flash, and does "
    "not look whether it has",
    "flushing": "data that is on flash alone is still being written to the slow disk",
    "changing": "the node has not changed the mode yet",
    "no-agent": "its pool agent does not run",
    "untold": "its pool agent has published nothing yet",
} | {
    NodeState.STANDBY.value: "the node is in standby",
    NodeState.OFFLINE.value: "the node is offline",
    NodeState.UNCLEAN.value: "the node is unclean",
    NodeState.MAINTENANCE.value: "the node is in maintenance",
    NodeState.PENDING.value: "the node is joining",
    NodeState.UNKNOWN.value: "Pacemaker says nothing of the node",
}
#: Each was seen: no data of the pool is on flash alone.
LASTING_REASONS = frozenset({"flash-lost", "no-flash", "no-bcache"})
#: What a release without `no-bcache` also publishes where the slow disk is not there. It proves
#: nothing.
UNPROVEN_REASON = "not-prepared"
#: Nodes in these states apply no wanted mode before an operator has acted.
ABSENT_STATES = frozenset(NodeState) - {NodeState.ONLINE, NodeState.PENDING}


def existing_pool(topology: Topology, name: PoolName) -> Pool:
    """Return a pool, with a flash cache or without.

    Raises:
        Refused: there is no pool of that name.
    """
    pool = topology.pool(name)
    if pool is None:
        raise Refused(unknown_pool_problem(topology, name))
    return pool


def existing_cached_pool(topology: Topology, name: PoolName) -> Pool:
    """Return a pool that has a flash cache.

    Raises:
        Refused: there is no pool of that name, or it has no flash.
    """
    pool = existing_pool(topology, name)
    if pool.cache is None:
        raise Refused(
            Problem(
                "SAN-POOL-018",
                f"pool {name} has no flash cache",
                "give it `cache` in the inventory: docs/howto/pool-cache.md; in place of a lost "
                f"filesystem without flash: 'sanctl pool prepare {name} --anew'",
            )
        )
    return pool


def wanted_flash_mode(cluster: Cluster, pool: Pool, node: NodeName) -> WantedMode | None:
    """Return the mode wanted of a pool's flash on a node; None where it has no flash."""
    if pool.cache is None:
        return None
    for each in cluster.cib.nodes:
        if each.name == node:
            return parse_wanted_mode(
                each.attributes.get(f"{MODE_ATTRIBUTE_PREFIX}{pool.name}", ""), pool.cache.mode
            )
    return WantedMode(pool.cache.mode)


def common_wanted_mode(cluster: Cluster, pool: Pool) -> CacheMode | None:
    """Return the mode wanted of a pool on all its nodes; None where the nodes differ."""
    wishes = (wanted_flash_mode(cluster, pool, node) for node in pool.nodes)
    modes = {wish.mode for wish in wishes if wish is not None}
    return modes.pop() if len(modes) == 1 else None


def plan_flash_mode(cluster: Cluster, pool: Pool, mode: CacheMode) -> tuple[Change, ...]:
    """Return the changes that set a pool's mode on all its nodes; nothing where it is set.

    Raises:
        Refused: no quorum, or Pacemaker would not carry it out.
    """
    problems = [*quorum_problems(cluster), *maintenance_problems(cluster)]
    if problems:
        raise Refused(*problems)
    members = {each.name for each in cluster.cib.nodes}
    return tuple(
        SetNodeAttribute(
            node=node,
            attribute=f"{MODE_ATTRIBUTE_PREFIX}{pool.name}",
            value=str(WantedMode(mode, wish.serial + 1)),
        )
        for node in pool.nodes
        if node in members
        and (wish := wanted_flash_mode(cluster, pool, node)) is not None
        and wish.mode is not mode
    )


def published_flash_state(cluster: Cluster, pool: Pool, node: NodeName) -> CacheState | None:
    """Return what a node's pool agent publishes of a pool's flash; None is unknown.

    What a stopped agent published may have changed since. What an agent published of an earlier
    wanted mode does not prove that it applies the present one.
    """
    usage, wish = cluster.pool(pool.name, node), wanted_flash_mode(cluster, pool, node)
    state = usage.cache if usage is not None else None
    if state is None or wish is None or not cluster.is_pool_agent_running(node):
        return None
    if (state.wanted, state.serial) == wish:
        return state
    return state._replace(wanted=wish.mode, reason="changing")


def unknown_reason(cluster: Cluster, pool: Pool, node: NodeName) -> str:
    """Return why the mode of a pool's flash is unknown: a key of FLASH_REASON_TEXTS, or a code."""
    state = cluster.mon.state(node)
    if state is not NodeState.ONLINE:
        return state.value
    if not cluster.is_pool_agent_running(node):
        return "no-agent"
    usage = cluster.pool(pool.name, node)
    return (usage.error if usage is not None else None) or "untold"


def flash_mode_progress(cluster: Cluster, pool: Pool, mode: CacheMode) -> Progress:
    """A mode is applied when every present node is in it, or lacks its flash for good."""
    away = absent_nodes(cluster, pool)
    return Progress(
        is_done=all(
            has_settled(published_flash_state(cluster, pool, node), mode)
            for node in pool.nodes
            if node not in away
        ),
        seen=", ".join(f"{node}: {node_flash_text(cluster, pool, node)}" for node in pool.nodes),
    )


def has_settled(state: CacheState | None, mode: CacheMode) -> bool:
    """Whether a node's flash is in a mode, or stays out of it for good."""
    if state is None or state.wanted is not mode:
        return False
    return (state.mode is mode and not state.reason) or state.reason in LASTING_REASONS


def absent_nodes(cluster: Cluster, pool: Pool) -> tuple[NodeName, ...]:
    """Return the nodes of a pool that do not apply a mode now, and are not about to."""
    return tuple(node for node in pool.nodes if cluster.mon.state(node) in ABSENT_STATES)


def absent_node_problems(cluster: Cluster, pool: Pool, mode: CacheMode) -> tuple[Problem, ...]:
    """Return on which absent nodes a mode is not known to be applied.

    For write-back an absent node is no risk: none is returned, unless all nodes are absent.
    """
    away = absent_nodes(cluster, pool)
    if mode is CacheMode.WRITE_BACK and len(away) < len(pool.nodes):
        return ()
    return tuple(
        Problem(
            "SAN-POOL-024",
            f"pool {pool.name} is not known to be in {mode.value} on {node}: "
            + FLASH_REASON_TEXTS[cluster.mon.state(node).value]
            + (
                ""
                if mode is CacheMode.WRITE_BACK
                else "; its data may be on its flash alone, so leave that in"
            ),
            f"{return_text(cluster, node)}, and run this again: it tells when the mode is applied",
        )
        for node in away
    )


def return_text(cluster: Cluster, node: NodeName) -> str:
    """Return what makes a node apply the wanted mode, as text."""
    match cluster.mon.state(node):
        case NodeState.STANDBY:
            return f"'sanctl node online {node}'; the node applies the mode then"
        case NodeState.OFFLINE:
            return f"start {node}; the node applies the mode then"
        case _:
            return f"'sanctl status' says what to do about {node}; it applies the mode then"


def node_flash_text(cluster: Cluster, pool: Pool, node: NodeName) -> str:
    """Return the state of a pool's flash on a node as text."""
    state = published_flash_state(cluster, pool, node)
    if state is not None:
        return flash_text(state)
    reason = unknown_reason(cluster, pool, node)
    return f"? ({FLASH_REASON_TEXTS.get(reason, reason)})"


def flash_text(state: CacheState) -> str:
    """Return the state of a pool's flash as text."""
    text = state.mode.value
    if state.dirty_bytes:
        text += f", {format_bytes(state.dirty_bytes)} dirty"
        if state.flush_s is not None:
            text += f", {state.flush_s} s to flush"
    if state.hit_percent is not None:
        text += f", {state.hit_percent} % hits"
    if state.reason:
        text += f" ({FLASH_REASON_TEXTS.get(state.reason, state.reason)})"
    return text


def reformat_problems(cluster: Cluster, pool: Pool, node: NodeName) -> tuple[Problem, ...]:
    """Return why a node's pool may not be reformatted.

    Each device must be good on another node, and have none of its restore points here alone. So
    must one whose replica here was dropped while its files are here still: they may be the best
    there is (sanctl/agents/dropped_replicas.py).
    """
    unread = unreadable_device_problems(cluster, f"may have its only good replica on {node}")
    points = tuple(
        problem
        for device in cluster.cib.devices
        if device.pool == pool.name
        for problem in only_holder_problems(cluster, device, [node])
    )
    dropped = tuple(_dropped_replica_problems(cluster, pool, node))
    unseen = quorum_problems(cluster) or stale_state_problems(cluster, pool, node)
    return unseen or unread + points + dropped + tuple(
        Problem(
            "SAN-POOL-020",
            f"device {device.name} is not known to have a good replica on another node than {node}",
            _good_replica_hint(cluster, device, node),
        )
        for device in cluster.cib.devices
        if device.pool == pool.name
        and node in device.nodes
        and _lacks_good_replica(cluster, device, [each for each in device.nodes if each != node])
    )


def stale_state_problems(cluster: Cluster, pool: Pool, node: NodeName) -> tuple[Problem, ...]:
    """Return why what is published of the replicas in a node's pool may be old.

    In maintenance Pacemaker runs no monitor: a replica that was lost since is still called good.
    """
    if cluster.is_maintenance:
        return maintenance_problems(cluster)
    dropped = {stone.device for stone in cluster.cib.tombstones if stone.node == node}
    devices = [
        each
        for each in cluster.cib.devices
        if each.pool == pool.name and (node in each.nodes or each.name.value in dropped)
    ]
    kept = sorted(
        {
            each
            for device in devices
            for each in device.nodes
            if cluster.mon.state(each) is NodeState.MAINTENANCE
        }
    )
    return (
        *(
            Problem(
                "SAN-DEV-018",
                f"node {each} is in maintenance: what is known of its replicas may be old",
                f"end it: crm_attribute --node {each} --name maintenance --delete",
            )
            for each in kept
        ),
        *(problem for device in devices for problem in unmanaged_problems(cluster, device)),
    )


def _dropped_replica_problems(cluster: Cluster, pool: Pool, node: NodeName) -> Iterator[Problem]:
    """Yield the devices of which this node has files to remove, and no other one a good replica."""
    for stone in cluster.cib.tombstones:
        uuid, _, pool_name = stone.value.partition(" ")
        if stone.node != node or pool_name != pool.name.value:
            continue
        for device in cluster.cib.devices:
            # One that was deleted, or is another one by now, needs nothing of these files.
            if (device.name.value, device.uuid) != (stone.device, uuid):
                continue
            others = [each for each in device.nodes if each != node]
            if not any(is_known_stable(cluster, device, other) for other in others):
                yield Problem(
                    "SAN-POOL-020",
                    f"the replica of device {device.name} on {node} was dropped, its files are "
                    "still there, and no other node is known to have a good replica: they may be "
                    "the best there is",
                    f"{_good_replica_hint(cluster, device, node)}; docs/howto/replicas.md has what "
                    "to do where none is left",
                )


def without_good_replica_elsewhere(
    cluster: Cluster, pool: Pool, node: NodeName
) -> tuple[DeviceName, ...]:
    """Return the devices with a replica in a node's pool and others, none of them known good."""
    return tuple(
        device.name
        for device in cluster.cib.devices
        if device.pool == pool.name
        and node in device.nodes
        and len(device.nodes) > 1
        and not any(
            is_known_stable(cluster, device, other) for other in device.nodes if other != node
        )
    )


def _lacks_good_replica(cluster: Cluster, device: DeviceSpec, others: list[NodeName]) -> bool:
    """Whether no other replica is known good, or the only one may have its newest writes in RAM."""
    return (
        not any(is_known_stable(cluster, device, other) for other in others)
        or may_be_in_ram_alone(cluster, device, others) is not None
    )


def _good_replica_hint(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str:
    others = [other for other in device.nodes if other != node]
    flushed = [other for other in others if lacks_flush_alone(cluster, device, other)]
    if flushed:
        return flush_hint(flushed)
    in_ram = may_be_in_ram_alone(cluster, device, others)
    if in_ram is not None:
        return in_ram_problem(device, in_ram).hint
    return "wait until another replica serves and is up to date"
