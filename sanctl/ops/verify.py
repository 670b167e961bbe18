# SPDX-License-Identifier: GPL-2.0-or-later
"""Has a device's replicas compared, and waits for what comes of it."""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.errors import Refused
from sanctl.model.cib_change import Change, SetParameter
from sanctl.model.cluster import Cluster, Failure
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.verify_result import DIFFERS, INTERRUPTED, REPAIRED, SAME, Order, Verification
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.preconditions import existing_device, refuse_unless_changeable
from sanctl.plan.device.alteration import unready_replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a verify found, and what was repaired of it."""

    node: str
    verification: Verification
    repair: Verification | None


def verify_device(
    session: Session, name: DeviceName, *, is_repair: bool, timeout_s: float
) -> Verified:
    """Compare a device's replicas block by block while hosts use it.

    Args:
        session: the cluster.
        name: the device.
        is_repair: send what differs anew from the copy that serves.
        timeout_s: seconds until the wait is given up; the verify goes on.

    Raises:
        Refused: a replica is not there, or not in sync already.
        NotConverged: it still runs.
    """
    order = Order(int(session.clock.wall_s()), is_repair)
    known: list[Failure] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        device = existing_device(cluster, name)
        refuse_unless_changeable(cluster, device)
        problems = unready_replicas(cluster, device)
        if problems:
            raise Refused(*problems)
        known[:] = cluster.mon.failures_of(name)
        return (SetParameter(name=name, parameter="verify", value=str(order)),)

    session.change(decide)
    cluster = session.wait(
        lambda seen: _ended(session, seen, name, order),
        waiting_for=f"the verify of device {name}",
        timeout_s=timeout_s,
        resources=(name.value,),
        known_failures=tuple(known),
        look="it goes on: 'sanctl sync status' shows how far it is and what it found",
    )
    found = _compared(cluster, existing_device(cluster, name), order)
    assert found is not None
    return Verified(
        node=found[0],
        verification=found[1],
        repair=_repaired(cluster, existing_device(cluster, name), order),
    )


def _ended(session: Session, cluster: Cluster, name: DeviceName, order: Order) -> Progress:
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=True, seen="the device is gone")
    found = _compared(cluster, device, order)
    if found is None:
        going = next(
            (r for _, r in session.running() if r.device == name.value and r.kind == "verify"), None
        )
        far = "not begun yet" if going is None else f"{going.done_percent:.0f}% compared"
        return Progress(is_done=False, seen=far)
    if order.is_repair and found[1].result in {DIFFERS, REPAIRED}:
        # A repair is a resync. Who repairs knows its end first; what asks next needs both to.
        is_sent = _repaired(cluster, device, order) is not None
        is_done = is_sent and not unready_replicas(cluster, device)
        is_given_up = any(
            # What it had begun to repair; one that was broken off while it compared found nothing.
            told.result == INTERRUPTED and told.found_kib
            for node in device.nodes
            if (told := _told(cluster, device, node.value, order)) is not None
        )
        return Progress(is_done=is_done or is_given_up, seen="what differs is sent anew")
    return Progress(is_done=True, seen=found[1].result)


def _compared(
    cluster: Cluster, device: DeviceSpec, order: Order
) -> tuple[str, Verification] | None:
    """Return the node that has compared the replicas for an order, and what it found.

    With DRBD 8.4 the standby repairs, and says so beside it. With DRBD 9 whoever compares repairs,
    and says only that at the end. Who serves no more was interrupted, and another begins again.
    """
    serving = cluster.active_node(device.name)
    for results in ({SAME, DIFFERS}, {REPAIRED}, {INTERRUPTED}):
        for node in device.nodes:
            told = _told(cluster, device, node.value, order)
            if told is None or told.result not in results:
                continue
            if told.result != INTERRUPTED or node.value == serving:
                return node.value, told
    return None


def _repaired(cluster: Cluster, device: DeviceSpec, order: Order) -> Verification | None:
    for node in device.nodes:
        told = _told(cluster, device, node.value, order)
        if told is not None and told.result == REPAIRED:
            return told
    return None


def _told(cluster: Cluster, device: DeviceSpec, node: str, order: Order) -> Verification | None:
    """Return what a node tells of this order; None of another."""
    told = cluster.cib.verifications.get((device.name.value, node))
    return told if told is not None and told.order == order.number else None
