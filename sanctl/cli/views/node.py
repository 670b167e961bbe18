# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds JSON data and table columns and rows of `node list` and `pool list`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sanctl.cli.output import UNKNOWN
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName, format_bytes
from sanctl.model.topology import Pool, Topology
from sanctl.plan.cluster.standby_reason import StandbyReason, standby_reason
from sanctl.plan.device.placement import room_bytes
from sanctl.plan.pool.flash_mode import (
    node_flash_text,
    published_flash_state,
    unknown_reason,
    wanted_flash_mode,
)

if TYPE_CHECKING:
    from sanctl.cli.documents import node as node_documents
    from sanctl.cli.documents import pool as pool_documents

NODE_COLUMNS = ("NODE", "STATE", "ROLE", "ACTIVE", "REPLICAS", "ROOM")
_SHUTTING_DOWN = "shutting down"


def node_data(cluster: Cluster, topology: Topology | None) -> list[node_documents.Node]:
    """Return all nodes for the JSON output."""
    data: list[node_documents.Node] = []
    for node in sorted(cluster.cib.nodes, key=lambda n: n.name):
        entry = topology.node(node.name) if topology else None
        state = cluster.mon.state(node.name)
        reason = standby_reason(cluster, node.name)
        data.append(
            {
                "name": node.name.value,
                "id": entry.id if entry else None,
                "state": state.value,
                "standby_reason": reason.value if reason else None,
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


def pool_data(cluster: Cluster, pool: Pool, node: NodeName) -> pool_documents.Pool:
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


def _cache_data(cluster: Cluster, pool: Pool, node: NodeName) -> pool_documents.PoolCache | None:
    wish, state = wanted_flash_mode(cluster, pool, node), published_flash_state(cluster, pool, node)
    if wish is None:
        return None
    return {
        "wanted": wish.mode.value,
        "mode": state.mode.value if state else None,
        "reason": (state.reason or None) if state else unknown_reason(cluster, pool, node),
        "dirty": state.dirty_bytes if state else None,
        "flush_s": state.flush_s if state else None,
        "hit_percent": state.hit_percent if state else None,
        "words": node_flash_text(cluster, pool, node),
    }


def node_rows(data: Sequence[node_documents.Node]) -> Iterable[tuple[str, ...]]:
    """Return the rows of NODE_COLUMNS."""
    for node in data:
        pools = ", ".join(
            f"{pool['name']} "
            + (UNKNOWN if pool["room"] is None else f"{format_bytes(pool['room'])}")
            for pool in node["pools"]
        )
        yield (
            node["name"],
            _SHUTTING_DOWN if node["standby_reason"] == StandbyReason.SHUTDOWN else node["state"],
            node["role"] or UNKNOWN,
            str(node["active_devices"]),
            str(node["replicas"]),
            pools or "-",
        )
