# SPDX-License-Identifier: GPL-2.0-or-later
"""Empties a node that is about to leave the cluster, within a bounded time, and takes that back.

Run by sanctl-drain.service when the node stops, so nothing here may refuse: whoever shuts a node
down has decided. What cannot be moved is said, and stops in order with the node.
"""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.errors import NotConverged
from sanctl.model.cluster import DRAINED, Cluster
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.draining import CONSTRAINT, Stranded, outlook, unserved, why_stranded
from sanctl.plan.cluster.node_service import existing_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What became of the devices of a node.

    Attributes:
        moved: device and the node that serves it now.
        stranded: devices that stop with the node, with the reason.
        late: devices that were still on their way when the time was over.
    """

    moved: tuple[tuple[DeviceName, str], ...]
    stranded: tuple[Stranded, ...]
    late: tuple[DeviceName, ...]


def drain_node(session: Session, name: NodeName, *, timeout_s: float) -> Drained:
    """Let other nodes serve what this one serves; its replicas stay in step until they stop.

    Raises:
        Refused: the cluster has no such node.
        Unreachable: Pacemaker does not answer here, so there is nobody to move anything.
    """
    cluster = session.observe()
    existing_node(cluster, name)
    first = outlook(cluster, name)
    if CONSTRAINT not in cluster.cib.ids:
        # A rollout older than this command: Pacemaker's own shutdown moves them, less quickly.
        return Drained(
            moved=(),
            stranded=(
                *first.stranded,
                *(
                    Stranded(device=device, reason=f"the CIB has no constraint {CONSTRAINT} yet")
                    for device in first.moving
                ),
            ),
            late=(),
        )
    session.set_node_word(name, DRAINED, "true")
    try:
        cluster = session.wait(
            lambda seen: _progress(seen, name, first.moving),
            waiting_for=f"what {name} serves to be served elsewhere",
            timeout_s=timeout_s,
        )
    except NotConverged:
        cluster = session.observe()
    return _result(cluster, name, first.moving, first.stranded)


def _progress(cluster: Cluster, name: NodeName, moving: tuple[DeviceName, ...]) -> Progress:
    here = outlook(cluster, name).moving if name.value in cluster.cib.drained else moving
    between = unserved(cluster, moving, name)
    words = [f"on {name}: {' '.join(map(str, here))}"] if here else []
    if between:
        words.append(f"between two nodes: {' '.join(map(str, between))}")
    return Progress(is_done=not here and not between, seen="; ".join(words) or "done")


def _result(
    cluster: Cluster,
    node: NodeName,
    moving: tuple[DeviceName, ...],
    stranded: tuple[Stranded, ...],
) -> Drained:
    moved, late, left = [], [], list(stranded)
    for name in moving:
        device, server = cluster.cib.device(name), cluster.active_node(name)
        if server is not None and server != node.value:
            moved.append((name, server))
        elif device is not None and (reason := why_stranded(cluster, device, node)):
            left.append(Stranded(device=name, reason=reason))
        elif device is not None:
            late.append(name)
    return Drained(moved=tuple(moved), stranded=tuple(left), late=tuple(late))


def undrain_node(session: Session, name: NodeName, *, timeout_s: float) -> bool:
    """Put a drained node back into full service; return whether it was drained.

    Waits for Pacemaker: at boot this is called when it has only just been started.

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
    session.set_node_word(name, DRAINED, None)
    session.wait(
        lambda seen: Progress(
            is_done=name.value not in seen.cib.drained, seen=f"{name} is still drained"
        ),
        waiting_for=f"node {name} to be back in service",
        timeout_s=timeout_s,
    )
    return True
