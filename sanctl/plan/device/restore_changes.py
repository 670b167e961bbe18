# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: the changes of the CIB by which an order to restore a device begins, ends, is withdrawn.

Each holds of the order that stands alone, and of none that a node has noted as ended.
"""

from __future__ import annotations

from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cib_change import Change, ClearParameter, SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import COPYING, DONE, HELD, RestoreOrder
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.release_needs import HELD_COPIES
from sanctl.plan.cluster.preconditions import (
    existing_device,
    quorum_problems,
    refuse_unless_changeable,
)
from sanctl.plan.device.notes_of_nodes import is_overtaken, nodes_with_newer_hold
from sanctl.plan.device.release_needs import needed
from sanctl.plan.device.restore_refusals import (
    held_problem,
    not_said_of_hold_problems,
    older_cib_problem,
    unsure_problem,
)


def order_changes(device: DeviceSpec, order: RestoreOrder) -> tuple[Change, ...]:
    """Return the changes that give a device this order, and say what a release has to know."""
    return (
        *needed(device, HELD_COPIES, is_on=order.is_of_holds),
        SetParameter(name=device.name, parameter="restore", value=str(order)),
    )


def is_unsure(cluster: Cluster, device: DeviceSpec, order: RestoreOrder) -> bool:
    """Whether what is on a device before an order begins may be half of a copy.

    Such an order is not given up and not withdrawn: hosts would see that. It begins once all is
    ready, what is to be kept as well, or another one takes its place.
    """
    return order.is_unsure or bool(nodes_with_newer_hold(cluster, device))


def plan_begun(cluster: Cluster, name: str, order: RestoreOrder) -> tuple[Change, ...]:
    """Return the change after which the device may hold parts of two states.

    Raises:
        CommandError: the order does not stand any more, also by what a node has noted that is back
            since; or what one has noted is not known.
    """
    device = _said(cluster, name, order)
    noting = nodes_with_newer_hold(cluster, device)
    if is_overtaken(order, noting):
        raise CommandError(older_cib_problem(cluster, device, noting))
    return order_changes(device, order.in_state(COPYING))


def plan_done(cluster: Cluster, name: str, order: RestoreOrder, here: str) -> tuple[Change, ...]:
    """Return the change that says that the device is what was ordered.

    By it hosts are let in again, or the device is held.

    Args:
        cluster: as observed.
        name: the device's name.
        order: the order.
        here: the node that has filled its replica. Pacemaker may not show its role, as after the
            reload by which the order came.

    Raises:
        CommandError: the order does not stand any more; or the replica that was filled is marked as
            outdated, or another node serves: so another one than that is to be the device.
    """
    device, active = _standing(cluster, name, order), cluster.active_node(DeviceName.parse(name))
    if cluster.is_marked(device, NodeName.parse(here)):
        raise CommandError(
            Problem("SAN-REST-008", f"the replica of {name} on {here} is marked as outdated")
        )
    if active not in {None, here}:
        raise CommandError(Problem("SAN-REST-008", f"{active} serves {name}, and not {here}"))
    return order_changes(device, order.in_state(HELD if order.holds else DONE))


def plan_given_up(cluster: Cluster, name: str, order: RestoreOrder) -> tuple[Change, ...]:
    """Return the change by which hosts are let in again: nothing was written.

    A device that was held before is held again. None of an order that is unsure.

    Raises:
        CommandError: the order does not stand any more, or the copy has begun; or what a node has
            noted is not known.
    """
    device = _said(cluster, name, order)
    assert order.state != COPYING
    return () if is_unsure(cluster, device, order) else order_changes(device, order.withdrawn)


def plan_cancelled(cluster: Cluster, name: DeviceName) -> tuple[Change, ...]:
    """Return the change by which an operator withdraws an order, and hosts are let in again.

    A device that was held before is held again, as the copy that it was and is. No change if no
    order is open. The node that serves notes the begin of its copy by a change of the same order
    (`plan_begun`), and writes nothing before: only one of both changes is made.

    Raises:
        Refused: there is no such device, it cannot be changed now, the copy has begun, or it has
            ended and the device is held; or what is on the device, or what a node has noted of it,
            is not known.
    """
    device = existing_device(cluster, name)
    if not device.is_restoring:
        return ()
    refuse_unless_changeable(cluster, device)
    order = device.restore
    if order is None:
        raise Refused(unreadable_problem(device))
    if order.state == COPYING:
        raise Refused(
            Problem(
                "SAN-REST-013",
                f"device {name} is being overwritten from {order.source}, and may hold parts of "
                "two states: that is not withdrawn any more",
                f"wait until it is whole: 'sanctl device show {name}' shows how far it is; then "
                "'sanctl device restore' goes back to what was kept",
            )
        )
    if order.state == HELD:
        raise Refused(held_problem(device, order))
    if silent := not_said_of_hold_problems(cluster, device):
        raise Refused(*silent)
    noting = nodes_with_newer_hold(cluster, device)
    if is_overtaken(order, noting):
        raise Refused(older_cib_problem(cluster, device, noting))
    if is_unsure(cluster, device, order):
        raise Refused(unsure_problem(device, order))
    changes = order_changes(device, order.withdrawn)
    kept = device.point_order
    if kept is not None and kept.token == order.kept_token:
        # What is on the device stays there, so nobody needs the restore point of it.
        return (*changes, ClearParameter(name=name, parameter="point"))
    return changes


def _said(cluster: Cluster, name: str, order: RestoreOrder) -> DeviceSpec:
    """Return the device, if its order stands and what nodes have noted of a hold is known."""
    device = _standing(cluster, name, order)
    if silent := not_said_of_hold_problems(cluster, device):
        raise CommandError(*silent)
    return device


def _standing(cluster: Cluster, name: str, order: RestoreOrder) -> DeviceSpec:
    device = cluster.cib.device(name)
    problems = quorum_problems(cluster)
    if problems:
        raise CommandError(*problems)
    if device is None or device.restore != order:
        raise CommandError(Problem("SAN-REST-006", f"the order to restore {name} was replaced"))
    return device


def unreadable_problem(device: DeviceSpec) -> Problem:
    """Return the problem of an order that another release has written."""
    return Problem(
        "SAN-REST-010",
        f"what the CIB says of the restore of device {device.name} cannot be read here",
        "nodes have different releases: run the playbook on all of them",
    )
