# SPDX-License-Identifier: GPL-2.0-or-later
"""Heals a device whose replicas have diverged, or of which none may be served."""

from __future__ import annotations

from collections.abc import Collection

from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster, Failure
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.session import Session
from sanctl.parse.cib import DISCARD_PREFIX, REVIVE_PREFIX
from sanctl.plan.cluster.convergence import Progress, describe
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
    """Keep one node's copy and give the other up; return when that one serves.

    What is to be discarded is replaced by then, or will be as soon as its node is there.

    Raises:
        Refused: the replicas are not as they were shown, or that copy cannot be kept.
        CommandError: an agent failed.
        NotConverged: it is ordered, and not done yet.
    """
    known: list[Failure] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = cluster.mon.failures_of(name)
        return plan_heal(cluster, name, keep, shown=shown, accepted=accepted)

    session.change(decide)
    return session.wait(
        lambda seen: _healed(seen, name, keep),
        waiting_for=f"device {name} to be healed",
        timeout_s=timeout_s,
        resources=(name.value,),
        known_failures=tuple(known),
        look=f"it is ordered and goes on by itself: 'journalctl SANCTL_DEVICE={name} "
        "SANCTL_ACTION=heal' on its nodes",
    )


def _healed(cluster: Cluster, name: DeviceName, keep: NodeName) -> Progress:
    """Whether the kept copy serves, and no order is left to carry out."""
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=False, seen="the device is gone")
    orders = {f"{prefix}{name}" for prefix in (DISCARD_PREFIX, REVIVE_PREFIX)}
    open_orders = [node.name for node in cluster.cib.nodes if orders & set(node.attributes)]
    done = not open_orders and cluster.active_node(name) == keep.value
    return Progress(is_done=done, seen=describe(cluster, device))
