# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `node drain` and `undrain`: empties a node before it stops; never refuses.

Run by sanctl-drain.service when the node stops, so nothing here may refuse: the shutdown has been
decided. A device that no other node can serve is reported, and stops in order with the node.
"""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.errors import NotConverged
from sanctl.model.cib_names import DRAINED_ATTRIBUTE
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.draining import (
    DRAIN_CONSTRAINT,
    DrainOutlook,
    StrandedDevice,
    devices_being_flushed,
    devices_between_nodes,
    drain_outlook,
    stranded_by_drain,
)
from sanctl.plan.cluster.preconditions import existing_node


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOutcome:
    """What became of the devices of a node.

    Attributes:
        moved: devices, each with the node that serves it now.
        stranded: devices that stop with the node, with the reason.
        late: devices that were still being moved when the time was over.
        unflushed: devices of which no other replica was on stable storage then, as what a resync
            wrote there was still to be flushed.
    """

    moved: tuple[tuple[DeviceName, str], ...]
    stranded: tuple[StrandedDevice, ...]
    late: tuple[DeviceName, ...]
    unflushed: tuple[DeviceName, ...]


def drain_node(session: Session, name: NodeName, *, timeout_s: float) -> DrainOutcome:
    """Let other nodes serve the devices of this one; its replicas stay in sync until they stop.

    Raises:
        Refused: the cluster has no such node.
        Unreachable: Pacemaker does not answer here, so nothing can be moved.
    """
    cluster = session.observe()
    existing_node(cluster, name)
    until_s = session.clock.wall_s() + timeout_s
    first = drain_outlook(cluster, name, waits_until_s=until_s)
    if DRAIN_CONSTRAINT not in cluster.cib.ids:
        # A rollout older than this command: Pacemaker's shutdown moves the devices, only slower.
        return DrainOutcome(
            moved=(),
            stranded=(
                *first.stranded,
                *(
                    StrandedDevice(
                        device=device, reason=f"the CIB has no constraint {DRAIN_CONSTRAINT} yet"
                    )
                    for device in first.moving
                ),
            ),
            late=(),
            unflushed=devices_being_flushed(cluster, name),
        )
    session.set_transient_attribute(name, DRAINED_ATTRIBUTE, "true")
    try:
        cluster = session.wait(
            lambda seen: _progress(seen, name, first.moving, until_s),
            waiting_for=f"the devices of {name} to be served by other nodes",
            timeout_s=timeout_s,
        )
    except NotConverged:
        cluster = session.observe()
    return _result(cluster, name, first, until_s)


def _progress(
    cluster: Cluster, name: NodeName, moving: tuple[DeviceName, ...], until_s: float
) -> Progress:
    outlook = drain_outlook(cluster, name, waits_until_s=until_s)
    here = outlook.moving if name.value in cluster.cib.drained else moving
    between = devices_between_nodes(cluster, moving, name, waits_until_s=until_s)
    parts = [f"on {name}: {' '.join(map(str, here))}"] if here else []
    if between:
        parts.append(f"between two nodes: {' '.join(map(str, between))}")
    flushing = devices_being_flushed(cluster, name)
    if flushing:
        parts.append(f"flushed on the other node after a resync: {' '.join(map(str, flushing))}")
    is_done = not here and not between and not flushing
    return Progress(is_done=is_done, seen="; ".join(parts) or "done")


def _result(cluster: Cluster, node: NodeName, first: DrainOutlook, until_s: float) -> DrainOutcome:
    moved, late, left = [], [], list(first.stranded)
    for name in first.moving:
        device, server = cluster.cib.device(name), cluster.active_node(name)
        if server is not None and server != node.value:
            moved.append((name, server))
        elif device is not None and (
            reason := stranded_by_drain(cluster, device, node, waits_until_s=until_s)
        ):
            left.append(StrandedDevice(device=name, reason=reason))
        elif device is not None:
            late.append(name)
    return DrainOutcome(
        moved=tuple(moved),
        stranded=tuple(left),
        late=tuple(late),
        unflushed=devices_being_flushed(cluster, node),
    )


def undrain_node(session: Session, name: NodeName, *, timeout_s: float) -> bool:
    """Put a drained node back into full service; return whether it was drained.

    Waits for Pacemaker: at boot this is called when Pacemaker has only just been started.

    Raises:
        Refused: the cluster has no such node.
        Unreachable: Pacemaker does not answer.
    """
    cluster = session.wait(
        lambda _: Progress(is_done=True, seen=""),
        waiting_for="Pacemaker to answer",
        timeout_s=timeout_s,
    )
    existing_node(cluster, name)
    if name.value not in cluster.cib.drained:
        return False
    session.set_transient_attribute(name, DRAINED_ATTRIBUTE, None)
    session.wait(
        lambda seen: Progress(
            is_done=name.value not in seen.cib.drained, seen=f"{name} is still drained"
        ),
        waiting_for=f"node {name} to be back in service",
        timeout_s=timeout_s,
    )
    return True
