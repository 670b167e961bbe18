# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `device verify`: orders a verify, waits for its result and for the repair."""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.errors import Refused
from sanctl.model.cib_change import Change, SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.verify_result import (
    DIFFERS,
    INTERRUPTED,
    REPAIRED,
    SAME,
    VerifyRequest,
    VerifyResult,
)
from sanctl.ops.device_change import change_device
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.preconditions import existing_device, refuse_unless_changeable
from sanctl.plan.device.alteration import unready_replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOutcome:
    """What a verify found, and what was repaired of it.

    Attributes:
        node: the node that compared the replicas.
        verification: what that node found.
        repair: what was sent again; None: nothing was.
    """

    node: str
    verification: VerifyResult
    repair: VerifyResult | None


def verify_device(
    session: Session, name: DeviceName, *, is_repair: bool, timeout_s: float
) -> VerifyOutcome:
    """Compare a device's replicas block by block while hosts use it.

    A repair sends the blocks that differ again, from the replica that serves. After `timeout_s` the
    wait is given up, and the verify goes on.

    Raises:
        Refused: a replica is absent, or is out of sync already.
        NotConverged: the verify still runs.
    """
    order = VerifyRequest(int(session.clock.wall_s()), is_repair)

    def plan(cluster: Cluster) -> tuple[Change, ...]:
        device = existing_device(cluster, name)
        refuse_unless_changeable(cluster, device)
        problems = unready_replicas(cluster, device)
        if problems:
            raise Refused(*problems)
        return (SetParameter(name=name, parameter="verify", value=str(order)),)

    outcome = change_device(
        session,
        name,
        plan,
        lambda seen: _verify_progress(session, seen, name, order),
        waiting_for=f"the verify of device {name}",
        timeout_s=timeout_s,
        look="the verify goes on: 'sanctl sync status' shows its progress and its result",
    )
    found = _comparison(outcome.cluster, outcome.device, order)
    assert found is not None
    return VerifyOutcome(
        node=found[0],
        verification=found[1],
        repair=_repair(outcome.cluster, outcome.device, order),
    )


def _verify_progress(
    session: Session, cluster: Cluster, name: DeviceName, order: VerifyRequest
) -> Progress:
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=True, seen="the device is gone")
    found = _comparison(cluster, device, order)
    if found is None:
        running = next(
            (r for _, r in session.running() if r.device == name.value and r.kind == "verify"), None
        )
        seen = "not begun yet" if running is None else f"{running.done_percent:.0f}% compared"
        return Progress(is_done=False, seen=seen)
    if order.is_repair and found[1].result in {DIFFERS, REPAIRED}:
        # A repair is a resync. The node that repairs knows of its end first; a command that comes
        # next needs both replicas to report that they are in sync.
        is_sent = _repair(cluster, device, order) is not None
        is_done = is_sent and not unready_replicas(cluster, device)
        is_given_up = any(
            # An interrupted repair; a verify that was interrupted as it compared found nothing.
            result.result == INTERRUPTED and result.found_kib
            for node in device.nodes
            if (result := _result_of(cluster, device, node.value, order)) is not None
        )
        return Progress(is_done=is_done or is_given_up, seen="blocks that differ are sent again")
    return Progress(is_done=True, seen=found[1].result)


def _comparison(
    cluster: Cluster, device: DeviceSpec, order: VerifyRequest
) -> tuple[str, VerifyResult] | None:
    """Return the node that has compared the replicas for an order, and what the node found.

    With DRBD 8.4 the standby repairs, and reports that beside the comparison. With DRBD 9 the node
    that compares also repairs, and in the end reports the repair alone. A node that no longer
    serves was interrupted, and the new Primary begins again.
    """
    serving = cluster.active_node(device.name)
    for results in ({SAME, DIFFERS}, {REPAIRED}, {INTERRUPTED}):
        for node in device.nodes:
            result = _result_of(cluster, device, node.value, order)
            if result is None or result.result not in results:
                continue
            if result.result != INTERRUPTED or node.value == serving:
                return node.value, result
    return None


def _repair(cluster: Cluster, device: DeviceSpec, order: VerifyRequest) -> VerifyResult | None:
    for node in device.nodes:
        result = _result_of(cluster, device, node.value, order)
        if result is not None and result.result == REPAIRED:
            return result
    return None


def _result_of(
    cluster: Cluster, device: DeviceSpec, node: str, order: VerifyRequest
) -> VerifyResult | None:
    """Return the result that a node has published for this order; None if it is of another."""
    result = cluster.cib.verifications.get((device.name.value, node))
    return result if result is not None and result.order == order.number else None
