# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a mounted filesystem may take the place of the lost one of a pool without flash.

The rollout marks a pool's filesystem once, while the node has no replica in it. Where it is lost
later, a filesystem without a marker may be the wrong one, or none at all: only an operator's
`pool prepare NAME --anew` marks it, and only where it holds nothing. Whether another filesystem of
the pool takes its place, one with replicas, is an operator's choice, too: of a pool that began
here the node knows one filesystem alone (sanctl/drivers/pool_files.py).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sanctl.errors import Problem
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.topology import Pool

ACCEPT_FILESYSTEM = "SAN-POOL-033"
"""Accepted by code: the filesystem that is mounted is the pool's, although its id is not."""
MARKER, DEVICES = ".sanctl-pool", "devices"
#: Of an interrupted run, which wrote it before the marker.
_ID = ".sanctl-filesystem"
#: What mkfs.ext4 makes; mkfs.xfs makes nothing.
_OF_THE_FILESYSTEM = frozenset({"lost+found"})


class MountEvidence(NamedTuple):
    """What was found at a pool's path.

    Attributes:
        is_mounted: the path is the root of a mounted filesystem.
        real_path: the path without symbolic links.
        entries: the names in the filesystem's root.
        marker: the uuid that its marker names; None without one.
        holds_devices: there is something in its folder of devices.
    """

    is_mounted: bool
    real_path: str
    entries: Collection[str]
    marker: str | None
    holds_devices: bool


def marking_problems(pool: Pool, node: str, found: MountEvidence) -> tuple[Problem, ...]:
    """Return why what is mounted at a pool's path does not become the pool."""
    path = str(pool.path)
    place = _place_problem(
        pool,
        node,
        found,
        "make one on the new disk, put it into /etc/fstab, mount it, and run this again",
    )
    if place is not None:
        return (place,)
    if found.marker == pool.uuid and found.holds_devices:
        return (
            _problem(
                pool,
                node,
                f"{path} is the pool already, and {path}/{DEVICES} holds replicas",
                "nothing is missing; to discard them, unmount it and make a new filesystem",
            ),
        )
    if found.marker not in {None, pool.uuid}:
        why = f"{path} is marked as another pool, {found.marker}"
        return (_problem(pool, node, why, "mount the right filesystem"),)
    # Interrupted after the marker, the command goes on.
    ours = {MARKER, DEVICES, _ID} if found.marker is not None else {_ID}
    others = sorted(
        each
        for each in set(found.entries) - _OF_THE_FILESYSTEM - ours
        if not each.startswith((f"{MARKER}.new", f"{_ID}.new"))
    )
    if others:
        more = " ..." if len(others) > 5 else ""
        return (
            _problem(
                pool,
                node,
                f"the filesystem at {path} is not empty: {', '.join(others[:5])}{more}",
                "mount the right one; or, if nobody needs that, make a new filesystem",
            ),
        )
    return ()


def accepting_problems(
    pool: Pool, node: str, found: MountEvidence, *, is_used: bool
) -> tuple[Problem, ...]:
    """Return why what is mounted at a pool's path is not taken for the pool's, whatever its id.

    Args:
        pool: the pool.
        node: this node.
        found: what is there.
        is_used: replicas in it are started here: what is accepted counts as suspect, and hosts may
            be using that.
    """
    place = _place_problem(pool, node, found, "mount the one that is to be the pool's")
    if place is not None:
        return (place,)
    if found.marker != pool.uuid:
        marked = f"is marked as another pool, {found.marker}" if found.marker else "has no marker"
        return (_problem(pool, node, f"{pool.path} {marked}", "mount the right filesystem"),)
    if is_used:
        return (_in_use(pool, node),)
    return ()


def distrusting_problems(
    pool: Pool, node: str, *, is_standby: bool, is_used: bool
) -> tuple[Problem, ...]:
    """Return why the replicas of a pool on this node are not made suspect now.

    Args:
        pool: the pool, mounted or not.
        node: this node.
        is_standby: Pacemaker has put the node into standby: no replica is started here meanwhile.
        is_used: replicas in it are started here.
    """
    if is_used:
        return (_in_use(pool, node),)
    if not is_standby:
        return (
            Problem(
                "SAN-POOL-021",
                f"{node} is not in standby: replicas in pool {pool.name} may be started there",
                f"'sanctl node standby {node}' first",
            ),
        )
    return ()


def accepting_node_problems(cluster: Cluster, pool: Pool, node: NodeName) -> tuple[Problem, ...]:
    """Return why a filesystem is not taken for a pool's on a node that may use it at once.

    In service its replicas would start the moment it is accepted, and one without peers be served.
    """
    state = cluster.mon.state(node)
    if state is NodeState.STANDBY:
        return ()
    return (
        Problem(
            "SAN-POOL-021",
            f"node {node} is {state.value}, so replicas in pool {pool.name} may start at any time",
            f"'sanctl node standby {node}' first",
        ),
    )


def only_replicas(cluster: Cluster, pool: Pool, node: NodeName) -> tuple[DeviceName, ...]:
    """Return the devices whose only replica is in a node's pool: served as old as that is."""
    return tuple(
        device.name
        for device in cluster.cib.devices
        if device.pool == pool.name and device.nodes == (node,)
    )


def _in_use(pool: Pool, node: str) -> Problem:
    return Problem(
        "SAN-POOL-021",
        f"replicas in pool {pool.name} are still started on {node}",
        f"'sanctl node standby {node}' first",
    )


def _place_problem(pool: Pool, node: str, found: MountEvidence, do: str) -> Problem | None:
    if found.real_path != str(pool.path):
        why = f"{pool.path} leads through a symbolic link to {found.real_path}"
        return _problem(pool, node, why, "give the pool that path in the inventory")
    if not found.is_mounted:
        return _problem(pool, node, f"no filesystem is mounted at {pool.path}", do)
    return None


def _problem(pool: Pool, node: str, why: str, do: str) -> Problem:
    return Problem("SAN-POOL-032", f"pool {pool.name} on {node}: {why}; nothing was changed", do)
