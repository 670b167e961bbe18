# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds JSON data and table columns and rows of `device list` and `show`, replicas and caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sanctl.cli.output import UNKNOWN
from sanctl.cli.views.sync import resync_data
from sanctl.cli.views.sync_policy import sync_policy_data
from sanctl.model.cache_policy import CacheMode
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import COPYING, HELD
from sanctl.model.findings import Severity
from sanctl.model.names import NodeName
from sanctl.model.restore_point import MAX_EXTENTS
from sanctl.model.topology import Topology
from sanctl.plan.cache.cache_status import mode_reason, replica_cache_text
from sanctl.plan.device.data_extents import extents_by_node
from sanctl.plan.device.restore_progress import report_of, stuck_problem
from sanctl.plan.health.device_health import device_findings
from sanctl.plan.replicas.pending_change import pending_change_of
from sanctl.plan.site.holding import held, is_let_in

if TYPE_CHECKING:
    from sanctl.cli.documents import device as device_documents
    from sanctl.cli.documents import node as node_documents


def device_state(cluster: Cluster, device: DeviceSpec) -> str:
    """Return one word for the condition of a device."""
    if device.is_stopping:
        return "deleting" if device.is_deleting else "stopped"
    if device.is_restoring:
        return "restoring"
    is_served = bool(_shown_as_active(cluster, device))
    if held(cluster, device) is not None and is_served:
        return "held"
    if not is_served:
        return "down"
    # The time is in texts alone.
    severities = {finding.severity for finding in device_findings(cluster, device, now_s=0.0)}
    if severities & {Severity.CRITICAL, Severity.WARNING}:
        return "degraded"
    in_sync = all(
        cluster.is_in_sync(device, node) and not cluster.is_marked(device, node)
        for node in device.nodes
    )
    return "ok" if in_sync else "degraded"


def _shown_as_active(cluster: Cluster, device: DeviceSpec) -> tuple[str, ...]:
    """Return the nodes that serve, by Pacemaker; where that shows none, by the replica itself."""
    serving = cluster.serving_node(device.name)
    return cluster.mon.active_nodes(device.name) or ((serving,) if serving else ())


def active_text(cluster: Cluster, device: DeviceSpec) -> str:
    """Return which node serves a device, for tables and lines."""
    active = _shown_as_active(cluster, device)
    return ", ".join(active) or ("-" if device.is_stopping else UNKNOWN)


def device_data(
    cluster: Cluster, device: DeviceSpec, topology: Topology | None = None
) -> device_documents.Device:
    """Return a device for the JSON output."""
    move = cluster.cib.move(device.name)
    left = pending_change_of(cluster, device)
    return {
        "name": device.name.value,
        "state": device_state(cluster, device),
        "uuid": device.uuid,
        "wwid": device.wwid,
        "size": device.size.bytes,
        "pool": device.pool.value,
        "made_from": device.origin.name if device.origin else None,
        "minor": device.minor,
        "cache": {
            "mode": device.cache.mode.value,
            "dirty_limit": device.cache.dirty_bytes
            if device.cache.mode is CacheMode.WRITE_BACK
            else None,
            "read_cache": device.cache.read_bytes,
        },
        "active_node": cluster.serving_node(device.name),
        "prefer": device.prefer.value if device.prefer else None,
        "moving_to": move.node if move else None,
        "target": topology.target_iqn(device.name).value if topology else None,
        "initiators": [iqn.value for iqn in device.initiators],
        "hosts": [host.name.value for host in device.hosts],
        "host_groups": [group.value for group in device.host_groups],
        "reservations": device.reservations,
        "sync": sync_policy_data(device.sync),
        "replicas_wanted": device.replicas,
        "unfinished": left[0] if left else None,
        "replicas": [_replica_data(cluster, device, node) for node in device.nodes],
        "restore": _restore_data(cluster, device),
        "hold": hold_data(cluster, device),
    }


def hold_data(cluster: Cluster, device: DeviceSpec) -> device_documents.Hold | None:
    """Return which sites a device awaits after a restart; None: none."""
    if not device.awaits:
        return None
    found = held(cluster, device)
    return {
        "sites": list(device.awaits),
        "held": True if found else False if is_let_in(cluster, device) else None,
        "why": found.why if found else None,
    }


def _restore_data(cluster: Cluster, device: DeviceSpec) -> device_documents.Restore | None:
    if not device.is_restoring:
        return None
    order, report = device.restore, report_of(cluster, device)
    problem = stuck_problem(cluster, device)
    return {
        "point": order.point if order else None,
        "copying": order is None or order.state == COPYING,
        "held": order is not None and order.state == HELD,
        "done_bytes": report.done_bytes if report and report.total_bytes else None,
        "written_bytes": report.written_bytes if report and report.total_bytes else None,
        "problem": f"{problem.code}: {problem.text}" if problem else None,
    }


def _replica_data(cluster: Cluster, device: DeviceSpec, node: NodeName) -> device_documents.Replica:
    state = cluster.mon.state(node)
    replica = cluster.replica(device.name, node)
    known = state in MEMBER_STATES
    return {
        "node": node.value,
        "node_state": state.value,
        "role": cluster.mon.role(device.name, node).value if known else None,
        "disk": replica.disk,
        "marked": cluster.is_marked(device, node),
        "connection": replica.connection,
        "replication": replica.replication,
        "peer_disk": replica.peer_disk,
        "out_of_sync_bytes": None
        if replica.out_of_sync_kib is None
        else replica.out_of_sync_kib * 1024,
        "size": replica.size_bytes,
        "extents": extents_by_node(cluster, device).get(node.value),
        "resync": resync_data(replica.resync) if replica.resync else None,
        "unflushed": replica.is_settling,
        "cache": {
            "mode": replica.cache,
            "reason": mode_reason(device, replica),
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


def extents_text(cluster: Cluster, device: DeviceSpec) -> str:
    """Return how many extents a device's file has on each node; empty where no node says."""
    known = extents_by_node(cluster, device)
    counts = ", ".join(f"{count} on {node}" for node, count in known.items())
    return f"{counts}; beyond {MAX_EXTENTS} no restore point is made" if counts else ""


def replica_text(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str:
    """Return a replica's condition in a few words."""
    if cluster.mon.state(node) not in MEMBER_STATES:
        return UNKNOWN
    return cluster.replica_brief(device, node)


def replica_flush_text(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str:
    """Return the same, and whether what filled the replica is to stay until it was flushed."""
    replica = cluster.replica(device.name, node)
    is_told = replica.is_settling and replica.is_up_to_date and not replica.is_suspect
    flush = ", not flushed after its resync yet" if is_told else ""
    return replica_text(cluster, device, node) + flush


DEVICE_COLUMNS = ("DEVICE", "SIZE", "STATE", "ACTIVE", "REPLICAS")


def device_row(cluster: Cluster, device: DeviceSpec) -> tuple[str, ...]:
    """Return a device's row of DEVICE_COLUMNS."""
    return (
        device.name.value,
        str(device.size),
        device_state(cluster, device),
        active_text(cluster, device),
        ", ".join(f"{node} {replica_text(cluster, device, node)}" for node in device.nodes),
    )


CACHE_COLUMNS = ("CACHE", "NODE", "NOW")


def cache_rows(cluster: Cluster, nodes: Sequence[node_documents.Node]) -> Iterator[tuple[str, ...]]:
    """Return the rows of CACHE_COLUMNS: devices with something in RAM, and pools with flash.

    A device with neither a write cache nor a read cache has no row. A pool's row names the wanted
    mode of its flash where another mode is in effect.
    """
    for device in cluster.cib.devices:
        for node in device.nodes:
            replica = cluster.replica(device.name, node)
            held = replica.cache == CacheMode.WRITE_BACK.value or replica.read_bytes
            if held or device.cache.mode is CacheMode.WRITE_BACK or device.cache.read_bytes:
                yield f"device {device.name}", node.value, replica_cache_text(device, replica)
    for each in nodes:
        for pool in each["pools"]:
            cache = pool["cache"]
            if cache is not None:
                is_there = cache["mode"] == cache["wanted"]
                wanted = "" if is_there else f"; wanted: {cache['wanted']}"
                yield f"pool {pool['name']}", each["name"], cache["words"] + wanted
