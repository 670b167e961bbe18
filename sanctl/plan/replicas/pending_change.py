# SPDX-License-Identifier: GPL-2.0-or-later
"""What a change of a device's copies has left to do, told from the CIB and the copies alone.

Each answer says what is left, and how to go on or back.
"""

from __future__ import annotations

from sanctl.model.cluster import PRESENT, Cluster
from sanctl.model.device import DeviceSpec
from sanctl.plan.replicas.replica_safety import server_of


def unfinished(cluster: Cluster, device: DeviceSpec) -> tuple[str, str] | None:
    """Return what is left to do about a device's copies; None: nothing."""
    return wrong_count(device) or half_filled(cluster, device)


def wrong_count(device: DeviceSpec) -> tuple[str, str] | None:
    """Return that a device has fewer or more copies than wanted; None: as many."""
    name, have, wanted = device.name, len(device.nodes), device.replicas
    if have < wanted:
        return (
            f"it has {_copies(have)}, and {wanted} are wanted",
            f"'sanctl device replicas {name} {wanted}' adds what is missing, "
            f"'sanctl device replicas {name} {have}' leaves it at that",
        )
    if have > wanted:
        return (
            f"it has {_copies(have)}, and {wanted} {'is' if wanted == 1 else 'are'} wanted",
            f"'sanctl device replicas {name} {wanted} --drop NODE' goes on, "
            f"'sanctl device replicas {name} {have}' keeps all",
        )
    return None


def half_filled(cluster: Cluster, device: DeviceSpec) -> tuple[str, str] | None:
    """Return which copies are not complete, being filled for the first time or anew; None: none."""
    name = device.name
    half = tuple(
        node
        for node in device.nodes
        if cluster.mon.state(node) in PRESENT and cluster.replica(name, node).disk == "Inconsistent"
    )
    rest = len(device.nodes) - len(half)
    if not half or not rest or server_of(cluster, device) is None:
        return None
    drops = " ".join(f"--drop {node}" for node in half)
    return (
        f"the copy on {', '.join(map(str, half))} is being filled",
        f"a copy that is being added is taken back with 'sanctl device replicas {name} {rest} "
        f"{drops}'",
    )


def _copies(count: int) -> str:
    return "one copy" if count == 1 else f"{count} copies"
