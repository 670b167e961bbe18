# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `snapshot create` and `delete`: orders in the CIB, and the wait for their outcome."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence

from sanctl.errors import CommandError, NotConverged, Problem, Refused, SanctlError
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import PointFailure, PointOrder, RestorePoint
from sanctl.ops.cib_room import within_room
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.point_group import HEARD, plan_group_order
from sanctl.plan.device.restore_points import (
    existing_point,
    plan_order_withdrawal,
    plan_point_deletion,
    plan_point_order,
    refuse_another_point,
)

#: How long a device's role may be hidden: a reload of both replicas, on busy nodes.
_ROLE_S = 20.0
#: Another restore point of the device is being made; a busy machine has not made it in time. Both
#: may be over in a moment. The latter is tried again so often alone: each time hosts' I/O waits.
_IN_THE_WAY, _NOT_IN_TIME, _TRIES = "SAN-SNAP-012", "SAN-SNAP-007", 3
_AGAIN_S = 2.0
#: What an attempt has where the caller's part of it took all of the time.
_LEAST_S = 5.0


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

    def plan(seen: Cluster, orders: dict[DeviceName, PointOrder]) -> tuple[Change, ...]:
        return plan_point_order(seen, device, orders[device], session.clock.wall_s())

    cluster, points = _create(
        session, {device: order}, plan, ipc_buffer_bytes=ipc_buffer_bytes, timeout_s=timeout_s
    )
    return cluster, points[0]


def create_point_patiently(
    session: Session,
    device: DeviceName,
    order: PointOrder,
    *,
    ipc_buffer_bytes: int,
    timeout_s: float,
    begins: Callable[[PointOrder], None],
) -> RestorePoint:
    """Have a restore point made that something else cannot do without, and wait for it.

    Beside another one that is being made, and where a busy machine has not made it within its half
    second, it is tried again, by another order each time: else a copy or a backup would not be made
    for an hour, or a night, because of one second.

    Args:
        session: the cluster.
        device: the device.
        order: the first order.
        ipc_buffer_bytes: the IPC buffer of the Pacemaker that runs here.
        timeout_s: seconds until the last order is withdrawn.
        begins: told each order before it is given, with the token that its restore point will have.

    Raises:
        As `create_point`.
    """
    deadline_s = session.clock.monotonic_s() + timeout_s
    failed = 0
    for number in itertools.count():
        token = hashlib.sha256(f"{order.token} {number}".encode()).hexdigest()[:16]
        given_s = int(session.clock.wall_s())
        current = order._replace(token=token, given_s=given_s) if number else order
        begins(current)
        left_s = max(deadline_s - session.clock.monotonic_s(), _LEAST_S)
        try:
            return create_point(
                session, device, current, ipc_buffer_bytes=ipc_buffer_bytes, timeout_s=left_s
            )[1]
        except (Refused, CommandError) as error:
            codes = {problem.code for problem in error.problems}
            failed += _NOT_IN_TIME in codes
            pause_s = _AGAIN_S if codes == {_IN_THE_WAY} else _AGAIN_S * 5
            left_s = deadline_s - session.clock.monotonic_s()
            is_hopeless = failed >= _TRIES or left_s <= pause_s
            if is_hopeless or not codes <= {_IN_THE_WAY, _NOT_IN_TIME}:
                raise
            session.reporter.update(f"again in {pause_s:g} s: {error.problems[0].text}")
        session.clock.sleep(pause_s)
    raise AssertionError


def create_group(
    session: Session,
    orders: dict[DeviceName, PointOrder],
    *,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> tuple[Cluster, tuple[RestorePoint, ...]]:
    """Have the active node make restore points of several devices at one moment, all or none.

    `orders` are of `group_orders`; everything else as `create_point`.

    Raises:
        Refused: one cannot be made now, or the devices are served by more than one node.
        CommandError: a node could not do its part, and says why; or as `create_point`.
        NotConverged: nothing was seen in time.
    """

    def plan(seen: Cluster, orders: dict[DeviceName, PointOrder]) -> tuple[Change, ...]:
        return plan_group_order(seen, orders, session.clock.wall_s())

    return _create(session, orders, plan, ipc_buffer_bytes=ipc_buffer_bytes, timeout_s=timeout_s)


def _create(
    session: Session,
    orders: dict[DeviceName, PointOrder],
    plan: Callable[[Cluster, dict[DeviceName, PointOrder]], tuple[Change, ...]],
    *,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> tuple[Cluster, tuple[RestorePoint, ...]]:
    names = ", ".join(f"{device}@{order.name}" for device, order in orders.items())
    # By what replicas publish, too: each order before this one was a change of its device.
    _await_nodes(session, tuple(orders), Cluster.serving_node, timeout_s=min(timeout_s, _ROLE_S))
    if session.forget_probes(tuple(orders)):
        # That took a while, and an order is not carried out once it is a minute old.
        now_s = int(session.clock.wall_s())
        orders = {device: order._replace(given_s=now_s) for device, order in orders.items()}

    def planned(seen: Cluster) -> tuple[Change, ...]:
        return plan(seen, orders)

    session.change(within_room(session, planned, ipc_buffer_bytes), can_wait=False)
    problem: SanctlError
    try:
        cluster = session.wait(
            lambda seen: _progress(seen, orders),
            waiting_for=f"restore point {names}",
            timeout_s=timeout_s,
            look="no restore point was made; 'journalctl SYSLOG_IDENTIFIER=sanctl' on the node "
            "that serves the device says more",
        )
        made = _made_of_all(cluster, orders)
        if made is not None:
            return cluster, _unless_quiet_still(made)
        failure = _failure_of_any(cluster, orders)
        problem = CommandError(
            failure.problem
            if failure
            else Problem("SAN-SNAP-006", f"the order for restore point {names} is gone")
        )
    except NotConverged as error:
        problem = error
    except BaseException:
        # The error that led here is the one to tell; the order ends by its time, too.
        with contextlib.suppress(SanctlError):
            _withdraw(session, orders)
        raise
    _withdraw(session, orders)
    cluster = session.observe()
    made = _made_of_all(cluster, orders)
    if made is not None:
        return cluster, _unless_quiet_still(made)
    raise problem


def _unless_quiet_still(points: tuple[RestorePoint, ...]) -> tuple[RestorePoint, ...]:
    """Return restore points of one moment whose hook has ended what it began, or that had none.

    Raises:
        CommandError: the application may still be quiet. There are the restore points.
    """
    made = points[0]
    if made.hook is None or not made.hook.after:
        return points
    kind = "application" if made.is_application_consistent else "crash"
    names = ", ".join(f"{point.device}@{point.name}" for point in points)
    raise CommandError(
        Problem(
            made.hook.after,
            f"restore point {names} was made and is {kind}-consistent, but hook "
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
    _await_nodes(session, [device], Cluster.active_node, timeout_s=timeout_s)


def _await_nodes(
    session: Session,
    devices: Sequence[DeviceName],
    node_of: Callable[[Cluster, DeviceName], str | None],
    *,
    timeout_s: float,
) -> None:
    """Wait until each device is served, all at one moment.

    Of several the role of the first may be hidden when that of the last is seen.
    """
    unserved: list[str] = []

    def progress(seen: Cluster) -> Progress:
        unserved[:] = [
            existing_device(seen, device).name.value
            for device in devices
            if node_of(seen, device) is None
        ]
        return Progress(is_done=not unserved, seen=f"no node serves {', '.join(unserved)}")

    names = ", ".join(map(str, devices))
    try:
        session.wait(progress, waiting_for=f"a node that serves {names}", timeout_s=timeout_s)
    except NotConverged as error:
        raise Refused(
            Problem(
                "SAN-SNAP-005",
                f"no node serves {', '.join(unserved)} at the moment",
                "'sanctl status' shows why; try again when one does",
            )
        ) from error


def _withdraw(session: Session, orders: Mapping[DeviceName, PointOrder]) -> None:
    def decide(seen: Cluster) -> tuple[Change, ...]:
        return tuple(
            change
            for device, order in orders.items()
            for change in plan_order_withdrawal(seen, device, order)
        )

    session.change(decide, can_wait=False)


def _made_of_all(
    cluster: Cluster, orders: Mapping[DeviceName, PointOrder]
) -> tuple[RestorePoint, ...] | None:
    made = [_made(cluster, device, order) for device, order in orders.items()]
    points = tuple(point for point in made if point is not None)
    return points if len(points) == len(orders) else None


def _made(cluster: Cluster, device: DeviceName, order: PointOrder) -> RestorePoint | None:
    points = cluster.cib.points_of(device)
    return next((point for point in points if point.token == order.token), None)


def _failure_of_any(
    cluster: Cluster, orders: Mapping[DeviceName, PointOrder]
) -> PointFailure | None:
    """Return why an order failed; of a group's rather the reason than who has heard of it."""
    tokens = {device.value: order.token for device, order in orders.items()}
    failures = [
        failure
        for (name, _), failure in cluster.cib.point_failures.items()
        if failure.token == tokens.get(name)
    ]
    return min(failures, key=lambda each: HEARD in each.text, default=None)


def _progress(cluster: Cluster, orders: Mapping[DeviceName, PointOrder]) -> Progress:
    is_done = _failure_of_any(cluster, orders) is not None or all(
        (found := cluster.cib.device(device)) is None
        or found.point_order != order
        or _made(cluster, device, order) is not None
        for device, order in orders.items()
    )
    return Progress(is_done=is_done, seen="the node that serves the device has not answered yet")


def delete_point(
    session: Session,
    device: DeviceName,
    name: str,
    *,
    timeout_s: float,
    shown: RestorePoint | None = None,
) -> tuple[str, ...]:
    """Delete a restore point, and wait until its files are removed on all nodes that are there.

    Args:
        session: the cluster.
        device: the device.
        name: the restore point.
        timeout_s: how long to wait.
        shown: the one that an operator was shown; None: whichever has that name.

    Returns:
        The nodes that are away; each removes its file when it is back.

    Raises:
        Refused: there is none, another one than the one shown, or no quorum.
        NotConverged: a node has not removed its file yet; it will.
    """
    point = shown or existing_point(session.observe(), device, name)

    def plan(seen: Cluster) -> tuple[Change, ...]:
        refuse_another_point(seen, point)
        return plan_point_deletion(seen, device, name)

    session.change(plan)
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
