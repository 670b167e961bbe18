# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `snapshot create` and `delete`: an order in the CIB, and the wait for its outcome."""

from __future__ import annotations

from sanctl.errors import CommandError, NotConverged, Problem, Refused, SanctlError
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import PointFailure, PointOrder, RestorePoint
from sanctl.ops.cib_room import within_room
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.restore_points import (
    existing_point,
    plan_order_withdrawal,
    plan_point_deletion,
    plan_point_order,
)

#: How long a device's role may be hidden: a reload of both replicas, on busy nodes.
_ROLE_S = 20.0


def create_point(
    session: Session,
    device: DeviceName,
    order: PointOrder,
    *,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> tuple[Cluster, RestorePoint]:
    """Have the active node make a restore point, and wait for it.

    An order that failed, or whose outcome is not seen in time, is withdrawn: afterwards there is a
    restore point, or none will be made.

    Args:
        session: the cluster.
        device: the device.
        order: the order, which no other device or command has.
        ipc_buffer_bytes: the IPC buffer of the Pacemaker that runs here.
        timeout_s: seconds until the order is withdrawn.

    Raises:
        Refused: it cannot be made now.
        CommandError: a node could not do its part, and says why; or the restore point is there,
            and its hook has failed after it.
        NotConverged: nothing was seen in time.
    """
    await_active_node(session, device, timeout_s=min(timeout_s, _ROLE_S))

    def plan(seen: Cluster) -> tuple[Change, ...]:
        return plan_point_order(seen, device, order, session.clock.wall_s())

    session.change(within_room(session, plan, ipc_buffer_bytes))
    problem: SanctlError
    try:
        cluster = session.wait(
            lambda seen: _progress(seen, device, order),
            waiting_for=f"restore point {order.name} of device {device}",
            timeout_s=timeout_s,
            look="no restore point was made; 'journalctl SYSLOG_IDENTIFIER=sanctl' on the node "
            "that serves the device says more",
        )
        made = _made(cluster, device, order)
        if made is not None:
            return cluster, _unless_quiet_still(made)
        failure = _failure(cluster, device, order)
        problem = CommandError(
            Problem(failure.code, failure.text)
            if failure
            else Problem("SAN-SNAP-006", f"the order for restore point {order.name} is gone")
        )
    except NotConverged as error:
        problem = error
    except BaseException:
        _withdraw(session, device, order)
        raise
    _withdraw(session, device, order)
    cluster = session.observe()
    made = _made(cluster, device, order)
    if made is not None:
        return cluster, _unless_quiet_still(made)
    raise problem


def _unless_quiet_still(made: RestorePoint) -> RestorePoint:
    """Return a restore point whose hook has ended what it began, or that had none.

    Raises:
        CommandError: the application may still be quiet. There is the restore point.
    """
    if made.hook is None or not made.hook.after:
        return made
    kind = "application" if made.is_application_consistent else "crash"
    raise CommandError(
        Problem(
            made.hook.after,
            f"restore point {made.device}@{made.name} was made and is {kind}-consistent, but hook "
            f"{made.hook.name} failed after it, twice: the application may still be quiet",
            "see to the application first; 'journalctl -t sanctl-hook' on the node that serves the "
            "device has what the hook said",
        )
    )


def await_active_node(session: Session, device: DeviceName, *, timeout_s: float) -> None:
    """Wait until a node serves the device: a change to it hides its role for a moment (ADR 22).

    Raises:
        Refused: there is no such device, or no node serves it.
    """

    def progress(seen: Cluster) -> Progress:
        existing_device(seen, device)
        return Progress(is_done=seen.active_node(device) is not None, seen="no node serves it")

    try:
        session.wait(progress, waiting_for=f"a node that serves {device}", timeout_s=timeout_s)
    except NotConverged as error:
        raise Refused(
            Problem(
                "SAN-SNAP-005",
                f"no node serves device {device} at the moment",
                "'sanctl status' shows why; try again when one does",
            )
        ) from error


def _withdraw(session: Session, device: DeviceName, order: PointOrder) -> None:
    def decide(seen: Cluster) -> tuple[Change, ...]:
        return plan_order_withdrawal(seen, device, order)

    session.change(decide)


def _made(cluster: Cluster, device: DeviceName, order: PointOrder) -> RestorePoint | None:
    points = cluster.cib.points_of(device)
    return next((point for point in points if point.token == order.token), None)


def _failure(cluster: Cluster, device: DeviceName, order: PointOrder) -> PointFailure | None:
    return next(
        (
            failure
            for (name, _), failure in cluster.cib.point_failures.items()
            if name == device.value and failure.token == order.token
        ),
        None,
    )


def _progress(cluster: Cluster, device: DeviceName, order: PointOrder) -> Progress:
    found = cluster.cib.device(device)
    is_done = (
        found is None
        or found.point_order != order
        or _made(cluster, device, order) is not None
        or _failure(cluster, device, order) is not None
    )
    return Progress(is_done=is_done, seen="the node that serves the device has not answered yet")


def delete_point(
    session: Session, device: DeviceName, name: str, *, timeout_s: float
) -> tuple[str, ...]:
    """Delete a restore point, and wait until its files are removed on all nodes that are there.

    Returns:
        The nodes that are away; each removes its file when it is back.

    Raises:
        Refused: there is none, or no quorum.
        NotConverged: a node has not removed its file yet; it will.
    """
    point = existing_point(session.observe(), device, name)
    session.change(lambda seen: plan_point_deletion(seen, device, name))
    cluster = session.wait(
        lambda seen: _deletion_progress(seen, point),
        waiting_for=f"the deletion of restore point {device}@{name}",
        timeout_s=timeout_s,
        look="the deletion goes on by itself",
    )
    left = next((each for each in cluster.cib.points if each.token == point.token), None)
    return left.nodes if left else ()


def _deletion_progress(cluster: Cluster, point: RestorePoint) -> Progress:
    left = next((each for each in cluster.cib.points if each.token == point.token), None)
    here = [
        node.name.value
        for node in cluster.cib.nodes
        if left and node.name.value in left.nodes and cluster.is_pool_agent_running(node.name)
    ]
    return Progress(is_done=not here, seen=f"files are left on {', '.join(here)}")
