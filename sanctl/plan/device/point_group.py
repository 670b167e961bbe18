# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: restore points of several devices at one moment: who may be of a group, all or none.

While the gates of all devices are held, no write of any is in flight, and none is begun: whichever
moment of that one takes, each copy is what its device held then. An application that writes to one
device only after another has answered finds no later write without the earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sanctl.errors import Problem, Refused, UsageError
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName
from sanctl.model.point_hook import PointHook
from sanctl.model.restore_point import MAX_ALL_POINTS, MAX_GROUP, PointOrder, RestorePoint
from sanctl.plan.device.restore_points import plan_point_order, plan_point_recorded

#: In the text of a failure that is another device's.
HEARD = ", of the same group: "


def group_names(devices: Sequence[DeviceName]) -> list[str]:
    """Return the names of a group's devices, sorted.

    Raises:
        UsageError: it is one device, too many, or one of them twice.
    """
    names = sorted(device.value for device in devices)
    if len(set(names)) < len(names) or not 2 <= len(names) <= MAX_GROUP:
        raise UsageError(
            Problem(
                "SAN-SNAP-016",
                f"--group takes 2 to {MAX_GROUP} devices, each once: {' '.join(names)}",
            )
        )
    return names


def group_orders(
    devices: Sequence[DeviceName],
    name: str,
    token: str,
    given_s: int,
    hook: PointHook | None = None,
) -> dict[DeviceName, PointOrder]:
    """Return the orders for restore points of these devices at one moment.

    Args:
        devices: the devices, in any order.
        name: the name of each restore point.
        token: 16 hex digits that no other order has.
        given_s: the moment of the order, in seconds since 1970.
        hook: the hook that is run once for all of them; None: none.

    Raises:
        UsageError: it is one device, too many, or one of them twice.
    """
    names = group_names(devices)
    first = PointOrder(name, token, given_s, hook, tuple(names))
    return {device: first.of_member(device.value) for device in devices}


def plan_group_order(
    cluster: Cluster, orders: dict[DeviceName, PointOrder], now_s: float
) -> tuple[Change, ...]:
    """Return the change that orders a restore point of each device, all or none.

    Raises:
        Refused: one of them cannot be ordered (`plan_point_order`), there is no room for all, or
            the devices are served by more than one node.
    """
    changes: list[Change] = []
    problems: list[Problem] = []
    for device, order in orders.items():
        try:
            changes += plan_point_order(cluster, device, order, now_s)
        except Refused as error:
            problems += error.problems
    everywhere = sum(not point.is_deleting for point in cluster.cib.points)
    if not problems and everywhere + len(orders) > MAX_ALL_POINTS:
        problems.append(
            Problem(
                "SAN-SNAP-011",
                f"all devices have {everywhere} restore points, at most "
                f"{MAX_ALL_POINTS}, and these would be {len(orders)} more",
                "delete some: 'sanctl snapshot list' shows what each holds",
            )
        )
    # Each order is a change of its device, which hides the role there until the next monitor.
    where = {device.value: cluster.serving_node(device) for device in orders}
    if not problems and (len(set(where.values())) > 1 or None in where.values()):
        served = ", ".join(f"{name} by {node or 'no node'}" for name, node in where.items())
        problems.append(
            Problem(
                "SAN-SNAP-017",
                f"one node has to serve all devices of the group: {served}",
                "'sanctl device move DEVICE --to NODE' brings them together",
            )
        )
    if problems:
        raise Refused(*problems)
    return tuple(changes)


def plan_group_recorded(
    cluster: Cluster, points: Sequence[RestorePoint], order: PointOrder
) -> tuple[Change, ...]:
    """Return the change that adds the restore points of a group, all or none.

    `order` is that of any device of the group.

    Raises:
        CommandError: the order of one of them does not stand any more.
    """
    return tuple(
        change
        for point in points
        for change in plan_point_recorded(cluster, point, order.of_member(point.device))
    )
