# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a restore point may be made or deleted; what still keeps a device or a replica."""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import CommandError, Problem, Refused, UsageError
from sanctl.model.cib_change import Change, ClearParameter, RemovePoint, SetParameter, SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName, PoolName, format_bytes
from sanctl.model.restore_point import (
    MAX_ALL_POINTS,
    MAX_ENTRIES,
    MAX_POINTS,
    PointOrder,
    RestorePoint,
    parse_point_name,
)
from sanctl.plan.cluster.preconditions import (
    existing_device,
    refuse_unless_changeable,
    refuse_without_quorum,
)
from sanctl.plan.device.clone_needs import needed_by_clones
from sanctl.plan.device.restore_refusals import refuse_deletion_of, refuse_while_restoring


def split_point(text: str) -> tuple[DeviceName, str]:
    """Read `DEVICE@POINT`.

    Raises:
        UsageError: it is not that.
    """
    device, sign, name = text.partition("@")
    if not sign:
        raise UsageError(
            Problem(
                "SAN-SNAP-008",
                f"{text!r} names no restore point",
                "write DEVICE@POINT, such as web@before-upgrade",
            )
        )
    return DeviceName.parse(device), parse_point_name(name)


def existing_point(cluster: Cluster, device: DeviceName, name: str) -> RestorePoint:
    """Return a restore point, also one that is being deleted.

    Raises:
        Refused: there is no such device or restore point.
    """
    points = cluster.cib.points_of(existing_device(cluster, device).name)
    found = next((point for point in points if point.name == name), None)
    if found is not None:
        return found
    known = ", ".join(point.name for point in points[-8:])
    raise Refused(
        Problem(
            "SAN-SNAP-009",
            f"device {device} has no restore point {name}",
            f"it has: {known}" if known else f"'sanctl snapshot create {device}' makes one",
        )
    )


def refuse_another_point(cluster: Cluster, shown: RestorePoint) -> None:
    """Check that the restore point of that name is still the one that is to be deleted.

    Raises:
        Refused: the restore point is gone, or was made anew, while an operator was asked, say.
    """
    found = existing_point(cluster, DeviceName.parse(shown.device), shown.name)
    if found.token != shown.token:
        raise Refused(
            Problem(
                "SAN-SNAP-020",
                f"restore point {shown.device}@{shown.name} is another one than the one to be "
                "deleted: it was made anew since",
                f"'sanctl snapshot show {shown.device}@{shown.name}'; run the command again if "
                "this one is to go, too",
            )
        )


def _nodes_told(cluster: Cluster, device: DeviceSpec, by_schedule: bool) -> tuple[NodeName, ...]:
    """Return the nodes that Pacemaker has to tell of an order: the one that serves has the others.

    All of them where no node is known to serve.
    """
    if by_schedule:
        return ()
    serving = cluster.serving_node(device.name)
    return tuple(node for node in device.nodes if serving in {None, node.value})


def plan_point_order(
    cluster: Cluster,
    name: DeviceName,
    order: PointOrder,
    now_s: float,
    *,
    by_schedule: bool = False,
    is_before_restore: bool = False,
) -> tuple[Change, ...]:
    """Return the change that orders a restore point.

    A restore point of a schedule is not ordered by a parameter of the device, so that no node in
    maintenance matters; for any other one the node that serves must not be in maintenance.

    Raises:
        Refused: there is no such device or it cannot be changed now; it has a restore point of that
            name or too many; another order is open; it is going back to a restore point.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device, on=_nodes_told(cluster, device, by_schedule))
    # Hosts were let in where another node has noted a newer hold: what they wrote is kept.
    if not is_before_restore:
        refuse_while_restoring(cluster, device)
    points = cluster.cib.points_of(name)
    # Of a node that is away, those that are being deleted stay until it is back.
    left = sum(not point.is_deleting for point in points)
    everywhere = sum(not point.is_deleting for point in cluster.cib.points)
    problems = []
    if any(point.name == order.name for point in points):
        problems.append(
            Problem(
                "SAN-SNAP-010",
                f"device {name} has a restore point {order.name} already",
                "give another name with --name",
            )
        )
    if left >= MAX_POINTS or everywhere >= MAX_ALL_POINTS:
        problems.append(
            Problem(
                "SAN-SNAP-011",
                f"device {name} has {left} restore points and all devices have {everywhere}; at "
                f"most {MAX_POINTS} and {MAX_ALL_POINTS}",
                "delete one: 'sanctl snapshot list' shows what each holds",
            )
        )
    elif len(cluster.cib.points) >= MAX_ENTRIES:
        problems.append(
            Problem(
                "SAN-SNAP-011",
                f"{len(cluster.cib.points) - everywhere} restore points wait to be removed on "
                f"nodes that are away: with {everywhere} others, {MAX_ENTRIES} at most",
                "bring the nodes back: 'sanctl status' shows them",
            )
        )
    open_order = device.point_order
    if (
        open_order is not None
        and open_order.token != order.token
        and open_order.is_open(now_s)
        and not _is_settled(cluster, name, open_order)
    ):
        problems.append(
            Problem(
                "SAN-SNAP-012",
                f"restore point {open_order.name} of device {name} is being made",
                "try again in a minute",
            )
        )
    if problems:
        raise Refused(*problems)
    return (SetParameter(name=name, parameter="point", value=str(order)),)


def _is_settled(cluster: Cluster, name: DeviceName, order: PointOrder) -> bool:
    return any(point.token == order.token for point in cluster.cib.points_of(name)) or any(
        failure.token == order.token
        for (device, _), failure in cluster.cib.point_failures.items()
        if device == name.value
    )


def due_order(cluster: Cluster, name: str, now_s: float) -> tuple[DeviceSpec, PointOrder] | None:
    """Return a device and its order for a restore point that is still to be made; None without."""
    device = cluster.cib.device(name)
    order = device.point_order if device else None
    if (
        device is None
        or order is None
        or not order.is_open(now_s)
        or any(point.token == order.token for point in cluster.cib.points_of(name))
    ):
        return None
    return device, order


def is_recorded(cluster: Cluster, point: RestorePoint) -> bool:
    """Whether the CIB has this restore point, as this attempt has made it.

    A restore point that another node made for the same order has the same token, and another
    moment.
    """
    return any(
        each._replace(is_deleting=point.is_deleting) == point
        for each in cluster.cib.points_of(point.device)
    )


def plan_point_recorded(
    cluster: Cluster, point: RestorePoint, order: PointOrder
) -> tuple[Change, ...]:
    """Return the change that adds a restore point, for the order that still stands.

    None where the CIB has it: a change that was made may be answered as one that was not.

    Raises:
        CommandError: it does not stand any more: nobody waits for this restore point. Or the device
            is smaller than the restore point now: the CIB was put back to what it was once.
        Refused: what is on the device is not known, as the CIB is older than the data.
    """
    if is_recorded(cluster, point):
        return ()
    device = cluster.cib.device(point.device)
    stands = device is not None and device.uuid == point.uuid and device.point_order == order
    if device is not None and stands:
        refuse_larger(device, point)
        # What a restore keeps was ordered when this was known.
        if not device.is_restoring:
            refuse_while_restoring(cluster, device)
    if (
        device is None
        or device.uuid != point.uuid
        or device.point_order != order
        or device.is_stopping
        or device.is_half_restored
        or not set(point.nodes) <= {node.value for node in device.nodes}
        or any(each.name == point.name for each in cluster.cib.points_of(point.device))
    ):
        raise CommandError(
            Problem("SAN-SNAP-006", f"the order for restore point {point.name} was withdrawn")
        )
    return (SetPoint(point=point),)


def refuse_larger(device: DeviceSpec, point: RestorePoint) -> None:
    """Raise CommandError if a device has a greater size for hosts than the CIB says.

    Its growth was taken back (alteration.py) while the replicas were about to grow.
    """
    if point.size_bytes <= device.size.bytes:
        return
    raise CommandError(
        Problem(
            "SAN-SNAP-006",
            f"restore point {point.name} was not made: hosts see device {device.name} with "
            f"{format_bytes(point.size_bytes)}, and its size in the configuration is "
            f"{device.size}, as a growth was taken back while its replicas grew, or an older CIB "
            "was put back",
            f"'sanctl device resize {device.name} {point.size_bytes}' gives it the size it has",
        )
    )


def plan_order_withdrawal(
    cluster: Cluster, name: DeviceName, order: PointOrder
) -> tuple[Change, ...]:
    """Return the change after which an order makes no restore point; none if it has made one."""
    device = cluster.cib.device(name)
    if device is None or device.point_order != order:
        return ()
    if any(point.token == order.token for point in cluster.cib.points_of(name)):
        return ()
    return (ClearParameter(name=name, parameter="point"),)


def plan_point_deletion(cluster: Cluster, device: DeviceName, name: str) -> tuple[Change, ...]:
    """Return the change by which each node removes its file of a restore point.

    Raises:
        Refused: there is no such restore point, no quorum, the device is going back to it, or one
            is being made from it.
    """
    refuse_without_quorum(cluster)
    point = existing_point(cluster, device, name)
    refuse_deletion_of(cluster, point)
    if point.is_deleting:
        return ()
    needed = needed_by_clones(cluster, (point,))
    if needed:
        raise Refused(*needed)
    changes: tuple[Change, ...] = (SetPoint(point=point._replace(is_deleting=True)),)
    order = existing_device(cluster, device).point_order
    if order is not None and order.token == point.token:
        # Else a node that becomes the active one just now would make it again.
        changes += (ClearParameter(name=device, parameter="point"),)
    return changes


def plan_file_removed(cluster: Cluster, point: RestorePoint, node: str) -> tuple[Change, ...]:
    """Return the change after a node has removed its file of a restore point.

    A node that has left the cluster for good is not waited for.
    """
    present = next((each for each in cluster.cib.points if each.id == point.id), None)
    if present is None or present.token != point.token or not present.is_deleting:
        return ()
    members = {each.name.value for each in cluster.cib.nodes}
    left = tuple(each for each in present.nodes if each != node and each in members)
    if not left:
        return (RemovePoint(point=present),)
    return () if left == present.nodes else (SetPoint(point=present._replace(nodes=left)),)


def plan_pool_emptied(cluster: Cluster, pool: PoolName, node: NodeName) -> tuple[Change, ...]:
    """Return the change after which no restore point counts on files in a pool of a node.

    Made before they go: a node that is named without a file would pass for one that has the point,
    also where the last file is about to go. So only after `only_holder_problems` has found none.
    """
    changes: list[Change] = []
    for point in cluster.cib.points:
        if point.pool != pool.value or node.value not in point.nodes:
            continue
        if point.is_deleting:
            changes += plan_file_removed(cluster, point, node.value)
        elif left := tuple(each for each in point.nodes if each != node.value):
            changes.append(SetPoint(point=point._replace(nodes=left)))
    return tuple(changes)


def refuse_with_points(cluster: Cluster, name: DeviceName) -> None:
    """Raise Refused if a device that is to be deleted has restore points."""
    points = cluster.cib.points_of(name)
    if points:
        raise Refused(
            Problem(
                "SAN-SNAP-013",
                f"device {name} has {len(points)} restore points, which would be deleted with it: "
                + ", ".join(point.name for point in points[:8])
                + (" ..." if len(points) > 8 else ""),
                "delete them first, or say --with-points",
            )
        )


def only_holder_problems(
    cluster: Cluster, device: DeviceSpec, leaving: Collection[NodeName]
) -> tuple[Problem, ...]:
    """Return the restore points that would be lost with the replicas on these nodes."""
    gone = {node.value for node in leaving}
    lost = [
        point
        for point in cluster.cib.points_of(device.name)
        if not point.is_deleting and set(point.nodes) <= gone
    ]
    if not lost:
        return ()
    return (
        Problem(
            "SAN-SNAP-014",
            f"restore points of device {device.name} are on {', '.join(sorted(gone))} alone: "
            + ", ".join(point.name for point in lost),
            "delete them first, or let another replica go",
        ),
    )
