# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what an interrupted change of the replicas left undone, how to finish or undo it.

Read from the CIB and the replicas' published states alone.
"""

from __future__ import annotations

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.device import DeviceSpec
from sanctl.plan.replicas.replica_safety import is_known_up_to_date, up_to_date_primary


def pending_change_of(cluster: Cluster, device: DeviceSpec) -> tuple[str, str] | None:
    """Return what a change of a device's replicas left undone, and what to do; None: nothing."""
    return replica_count_mismatch(device) or incomplete_replicas(cluster, device)


def replica_count_mismatch(device: DeviceSpec) -> tuple[str, str] | None:
    """Return that a device has fewer or more replicas than wanted; None: as many."""
    name, have, wanted = device.name, len(device.nodes), device.replicas
    if have < wanted:
        return (
            f"it has {_replicas(have)}, and {wanted} are wanted",
            f"'sanctl device replicas {name} {wanted}' adds what is missing, "
            f"'sanctl device replicas {name} {have}' leaves it at that",
        )
    if have > wanted:
        return (
            f"it has {_replicas(have)}, and {wanted} {'is' if wanted == 1 else 'are'} wanted",
            f"'sanctl device replicas {name} {wanted} --drop NODE' goes on, "
            f"'sanctl device replicas {name} {have}' keeps all",
        )
    return None


def incomplete_replicas(cluster: Cluster, device: DeviceSpec) -> tuple[str, str] | None:
    """Return which replicas are incomplete: initial or full resync under way; None: none."""
    name = device.name
    half = tuple(
        node
        for node in device.nodes
        if cluster.mon.state(node) in MEMBER_STATES
        and cluster.replica(name, node).disk == "Inconsistent"
    )
    rest = len(device.nodes) - len(half)
    if not half or not rest or up_to_date_primary(cluster, device) is None:
        return None
    drops = " ".join(f"--drop {node}" for node in half)
    return (
        f"the replica on {', '.join(map(str, half))} is resyncing",
        "a replica that is being added is dropped again with "
        f"'sanctl device replicas {name} {rest} {drops}'",
    )


def unknown_replicas(cluster: Cluster, device: DeviceSpec) -> tuple[str, str] | None:
    """Return which replicas are not known to be up to date, started or not; None: all are."""
    behind = [n for n in device.nodes if not is_known_up_to_date(cluster, device, n)]
    rest = len(device.nodes) - len(behind)
    if not behind:
        return None
    if not rest:
        return (
            "no replica is known to be in sync right now",
            f"'sanctl device show {device.name}' shows its replicas, and how to take one back",
        )
    drops = " ".join(f"--drop {node}" for node in behind)
    return (
        f"the replica on {', '.join(map(str, behind))} is not known to be in sync",
        "a replica that is being added is dropped again with "
        f"'sanctl device replicas {device.name} {rest} {drops}'",
    )


def _replicas(count: int) -> str:
    return "one replica" if count == 1 else f"{count} replicas"
