# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what becomes of an order to restore a device once an operator has chosen a replica.

The replica that is kept may lack what the order says of the device, or what was written of it.
"""

from __future__ import annotations

from sanctl.errors import Refused
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import COPYING, ORDERED, RestoreOrder
from sanctl.plan.device.notes_of_nodes import is_overtaken, newer_s, nodes_with_newer_hold
from sanctl.plan.device.restore_changes import order_changes
from sanctl.plan.device.restore_refusals import not_said_of_hold_problems


def plan_distrusted(cluster: Cluster, device: DeviceSpec) -> tuple[Change, ...]:
    """Return the change that goes with an operator's choice of a replica; often none.

    The next process reads all of the device, and one that runs does not end the order.

    Where nodes have noted more than the CIB's order, which is not carried out, neither is the one
    that takes its place: it is newer than what they have noted, and what is there may be what hosts
    have written since that ended.

    Raises:
        Refused: an order is open, a hold is known, and what a node has noted of it is not: by the
            order's new token the end of the same one would be carried out again.
    """
    order = device.restore
    if order is None:
        return ()
    if order.is_open and (silent := not_said_of_hold_problems(cluster, device)):
        raise Refused(*silent)
    if order.is_open and is_overtaken(order, nodes_with_newer_hold(cluster, device)):
        return order_changes(device, _waiting(cluster, device, order))
    if not (order.is_of_holds or order.state == COPYING):
        return ()
    return order_changes(device, order.distrusted)


def _waiting(cluster: Cluster, device: DeviceSpec, order: RestoreOrder) -> RestoreOrder:
    """Return an order that waits, with hosts out, until another one takes its place.

    It is to keep what is on the device by a restore point that nobody makes.
    """
    other = order.distrusted
    return other._replace(
        kept_token=other.token,
        given_s=newer_s(cluster, device),
        state=ORDERED,
        may_keep_on_few=False,
        base=None,
        turn=order.turn_towards(order.copy) if order.holds else "",
        is_unsure=True,
    )
