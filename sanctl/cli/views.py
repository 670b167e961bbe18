# SPDX-License-Identifier: GPL-2.0-or-later
"""What commands show of the cluster: the data of the JSON output, and the rows of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sanctl.cli.commands.sync_policy import policy_data
from sanctl.cli.sync_views import resync_data
from sanctl.model.cache_policy import Mode
from sanctl.model.cluster import PRESENT, Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import NodeName, format_bytes
from sanctl.model.topology import Pool, Topology
from sanctl.plan.cache.policy_change import cache_words as device_cache_words
from sanctl.plan.cache.policy_change import reason_of
from sanctl.plan.device.placement import room_bytes
from sanctl.plan.health.device_health import device_findings
from sanctl.plan.pool.flash_mode import mode_wish, node_words, told_state, unknown_reason
from sanctl.plan.replicas.pending_change import unfinished

if TYPE_CHECKING:
    from sanctl.cli.documents import contract, pool

UNKNOWN = "?"


def device_state(cluster: Cluster, device: DeviceSpec) -> str:
    """Return one word for the condition of a device."""
    if device.is_stopping:
        return "deleting"
    severities = {finding.severity for finding in device_findings(cluster, device)}
    if Severity.CRITICAL in severities:
        return "down"
    if Severity.WARNING in severities:
        return "degraded"
    in_sync = all(cluster.is_in_sync(device, node) for node in device.nodes)
    return "ok" if in_sync else "degraded"


def device_data(
    cluster: Cluster, device: DeviceSpec, topology: Topology | None = None
) -> contract.Device:
    """Return a device for the JSON output."""
    move = cluster.cib.move(device.name)
    left = unfinished(cluster, device)
    return {
        "name": device.name.value,
        "state": device_state(cluster, device),
        "uuid": device.uuid,
        "wwid": device.wwid,
        "size": device.size.bytes,
        "pool": device.pool.value,
        "minor": device.minor,
        "cache": {
            "mode": device.cache.mode.value,
            "dirty_limit": device.cache.dirty_bytes
            if device.cache.mode is Mode.WRITE_BACK
            else None,
            "read_cache": device.cache.read_bytes,
        },
        "active_node": cluster.active_node(device.name),
        "prefer": device.prefer.value if device.prefer else None,
        "moving_to": move.node if move else None,
        "target": topology.target_iqn(device.name).value if topology else None,
        "initiators": [iqn.value for iqn in device.initiators],
        "sync": policy_data(device.sync),
        "replicas_wanted": device.replicas,
        "unfinished": left[0] if left else None,
        "replicas": [_replica_data(cluster, device, node) for node in device.nodes],
    }


def _replica_data(cluster: Cluster, device: DeviceSpec, node: NodeName) -> contract.Replica:
    state = cluster.mon.state(node)
    replica = cluster.replica(device.name, node)
    known = state in PRESENT
    return {
        "node": node.value,
        "node_state": state.value,
        "role": cluster.mon.role(device.name, node).value if known else None,
        "disk": replica.disk,
        "connection": replica.connection,
        "replication": replica.replication,
        "peer_disk": replica.peer_disk,
        "out_of_sync_bytes": None
        if replica.out_of_sync_kib is None
        else replica.out_of_sync_kib * 1024,
        "size": replica.size_bytes,
        "resync": resync_data(replica.resync) if replica.resync else None,
        "cache": {
            "mode": replica.cache,
            "reason": reason_of(device, replica),
            "dirty": replica.dirty_bytes,
            "node_limit": replica.dirty_node_limit_bytes,
            "flush_s": replica.flush_s,
            "read": replica.read_bytes,
            "read_reason": replica.read_reason,
            "read_held": replica.read_held_bytes,
            "read_hit_percent": replica.read_hit_percent,
            "suspect": replica.is_suspect,
        },
    }


def replica_words(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str:
    """Say a replica's condition in a few words."""
    if cluster.mon.state(node) not in PRESENT:
        return UNKNOWN
    return cluster.replica(device.name, node).brief()


DEVICE_COLUMNS = ("DEVICE", "SIZE", "STATE", "ACTIVE", "REPLICAS")


def device_row(cluster: Cluster, device: DeviceSpec) -> tuple[str, ...]:
    """Return a device's row of DEVICE_COLUMNS."""
    active = cluster.mon.active_nodes(device.name)
    return (
        device.name.value,
        str(device.size),
        device_state(cluster, device),
        ", ".join(active) if active else ("-" if device.is_stopping else UNKNOWN),
        ", ".join(f"{node} {replica_words(cluster, device, node)}" for node in device.nodes),
    )


CACHE_COLUMNS = ("CACHE", "NODE", "NOW")


def cache_rows(cluster: Cluster, nodes: Sequence[contract.Node]) -> Iterator[tuple[str, ...]]:
    """Return the rows of CACHE_COLUMNS: devices with something in RAM, and pools with flash.

    A device with neither a write cache nor a read cache has none. What is wanted of flash is told
    where it is another mode than there is now.
    """
    for device in cluster.cib.devices:
        for node in device.nodes:
            replica = cluster.replica(device.name, node)
            held = replica.cache == Mode.WRITE_BACK.value or replica.read_bytes
            if held or device.cache.mode is Mode.WRITE_BACK or device.cache.read_bytes:
                yield f"device {device.name}", node.value, device_cache_words(device, replica)
    for each in nodes:
        for pool in each["pools"]:
            cache = pool["cache"]
            if cache is not None:
                is_there = cache["mode"] == cache["wanted"]
                wanted = "" if is_there else f"; wanted: {cache['wanted']}"
                yield f"pool {pool['name']}", each["name"], cache["words"] + wanted


NODE_COLUMNS = ("NODE", "STATE", "ROLE", "ACTIVE", "REPLICAS", "ROOM")


def node_data(cluster: Cluster, topology: Topology | None) -> list[contract.Node]:
    """Return all nodes for the JSON output."""
    data: list[contract.Node] = []
    for node in sorted(cluster.cib.nodes, key=lambda n: n.name):
        entry = topology.node(node.name) if topology else None
        state = cluster.mon.state(node.name)
        data.append(
            {
                "name": node.name.value,
                "id": entry.id if entry else None,
                "state": state.value,
                "wants_standby": node.wants_standby,
                "role": entry.role.value if entry else None,
                "active_devices": cluster.active_count(node.name),
                "replicas": sum(1 for d in cluster.cib.devices if node.name in d.nodes),
                "pools": [
                    pool_data(cluster, pool, node.name)
                    for pool in (topology.pools if topology else ())
                    if node.name in pool.nodes
                ],
            }
        )
    return data


def pool_data(cluster: Cluster, pool: Pool, node: NodeName) -> pool.Pool:
    """Return a pool on a node for the JSON output."""
    usage = cluster.pool(pool.name, node)
    known = usage is not None and usage.error is None
    return {
        "name": pool.name.value,
        "total": usage.total_bytes if usage is not None and known else None,
        "free": usage.free_bytes if usage is not None and known else None,
        "room": room_bytes(cluster, pool.name, node),
        "error": usage.error if usage is not None else None,
        "cache": _cache_data(cluster, pool, node),
    }


def _cache_data(cluster: Cluster, pool: Pool, node: NodeName) -> pool.PoolCache | None:
    wish, state = mode_wish(cluster, pool, node), told_state(cluster, pool, node)
    if wish is None:
        return None
    return {
        "wanted": wish.mode.value,
        "mode": state.mode.value if state else None,
        "reason": (state.reason or None) if state else unknown_reason(cluster, pool, node),
        "dirty": state.dirty_bytes if state else None,
        "flush_s": state.flush_s if state else None,
        "hit_percent": state.hit_percent if state else None,
        "words": node_words(cluster, pool, node),
    }


def node_rows(data: Sequence[contract.Node]) -> Iterable[tuple[str, ...]]:
    """Return the rows of NODE_COLUMNS."""
    for node in data:
        pools = ", ".join(
            f"{pool['name']} "
            + (UNKNOWN if pool["room"] is None else f"{format_bytes(pool['room'])}")
            for pool in node["pools"]
        )
        yield (
            node["name"],
            node["state"],
            node["role"] or UNKNOWN,
            str(node["active_devices"]),
            str(node["replicas"]),
            pools or "-",
        )


def finding_data(finding: Finding) -> contract.Finding:
    """Return a finding for the JSON output."""
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "what": finding.what,
        "why": finding.why,
        "do": finding.do,
    }
