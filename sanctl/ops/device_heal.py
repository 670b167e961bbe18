# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl device heal`: shows diverged replicas; keeps the chosen one and discards the other."""

from __future__ import annotations

from collections.abc import Collection

from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.device_change import change_device
from sanctl.ops.session import Session
from sanctl.parse.cib import DISCARD_PREFIX, REVIVE_PREFIX
from sanctl.plan.cluster.convergence import Progress, replicas_text
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.replicas.heal import Diagnosis, diagnose, plan_heal


def examine_replicas(session: Session, name: DeviceName) -> Diagnosis:
    """Compare a device's replicas.

    Raises:
        Refused: there is no such device.
        Unreachable: Pacemaker does not answer.
    """
    cluster = session.observe()
    return diagnose(cluster, existing_device(cluster, name))


def heal_device(
    session: Session,
    name: DeviceName,
    keep: NodeName,
    *,
    shown: Diagnosis,
    accepted: Collection[str],
    timeout_s: float,
) -> Cluster:
    """Keep the replica on one node, discard the other; return when the kept replica serves.

    By then the discarded replica is being replaced, or will be as soon as its node is there.

    Raises:
        Refused: the replicas are not as they were shown, or that replica cannot be kept.
        CommandError: an agent failed.
        NotConverged: the order is stored, and not carried out yet.
    """
    return change_device(
        session,
        name,
        lambda seen: plan_heal(seen, name, keep, shown=shown, accepted=accepted),
        lambda seen: _heal_progress(seen, name, keep),
        waiting_for=f"device {name} to be healed",
        timeout_s=timeout_s,
        look="the order is stored and goes on by itself: "
        f"'journalctl SANCTL_DEVICE={name} SANCTL_ACTION=heal' on the device's nodes",
    ).cluster


def _heal_progress(cluster: Cluster, name: DeviceName, keep: NodeName) -> Progress:
    """Whether the kept replica serves, and no order is left to carry out."""
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=False, seen="the device is gone")
    orders = {f"{prefix}{name}" for prefix in (DISCARD_PREFIX, REVIVE_PREFIX)}
    open_orders = [node.name for node in cluster.cib.nodes if orders & set(node.attributes)]
    done = not open_orders and cluster.active_node(name) == keep.value
    return Progress(is_done=done, seen=replicas_text(cluster, device))
