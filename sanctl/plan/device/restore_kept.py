# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what is kept of a device before an order to restore it is carried out, and by which point.

Nothing is written before it is (restoring.py).
"""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import ORDERED, RestoreOrder
from sanctl.model.restore_point import RestorePoint
from sanctl.plan.device.notes_of_nodes import is_overtaken, nodes_with_newer_hold

#: The refusal of an order that would keep what is on the device on few nodes; may be accepted.
KEPT_NOT_EVERYWHERE = "SAN-REST-012"


def unkept_problem(cluster: Cluster, device: DeviceSpec, order: RestoreOrder) -> Problem | None:
    """Return why what an order is to keep is not kept as it is to be; None: it is, or may come."""
    # What a device was before it was held is kept since then, and what it is now is at a site.
    if not order.kept_token or order.base is not None:
        return None
    kept = kept_point_of(cluster, device, order)
    if kept is not None:
        return None if order.may_keep_on_few else kept_on_few_problem(device, kept)
    failures = [
        failure
        for (name, _), failure in cluster.cib.point_failures.items()
        if name == device.name.value and failure.token == order.kept_token
    ]
    return Problem(failures[0].code, failures[0].text) if failures else None


def kept_on_few_problem(device: DeviceSpec, kept: RestorePoint) -> Problem | None:
    """Return the problem that a node of the device lacks the restore point that keeps its content.

    None: each node with a replica has it. A node that was in sync when the order was given
    (restore_request.py) may be lost since. Nothing adds a node to a restore point that was made
    without it.
    """
    lacking = [node.value for node in device.nodes if node.value not in kept.nodes]
    if not lacking:
        return None
    return Problem(
        KEPT_NOT_EVERYWHERE,
        f"what is on device {device.name} was kept on {', '.join(kept.nodes)}, and not on "
        f"{', '.join(lacking)}",
        f"wait until its replicas are in sync: 'sanctl device show {device.name}'; then again. "
        f"--accept {KEPT_NOT_EVERYWHERE} goes on all the same",
    )


def kept_point_of(cluster: Cluster, device: DeviceSpec, order: RestoreOrder) -> RestorePoint | None:
    """Return the restore point by which an order keeps what is on the device; None: not yet."""
    points = cluster.cib.points_of(device.name)
    return next((point for point in points if point.token == order.kept_token), None)


def lacks_kept(cluster: Cluster, device: DeviceSpec, order: RestoreOrder, now_s: float) -> bool:
    """Whether what an order is to keep is not kept, and nobody is about to: it cannot begin."""
    if unkept_problem(cluster, device, order) is not None:
        return True
    if not order.kept_token or order.base is not None or kept_point_of(cluster, device, order):
        return False
    made = device.point_order
    return made is None or made.token != order.kept_token or not made.is_open(now_s)


def is_kept_by_nobody(cluster: Cluster, device: DeviceSpec, order: RestoreOrder) -> bool:
    """Whether an order waits for a point that nobody makes (restore_distrust.py)."""
    if not (order.is_unsure and order.state == ORDERED and order.kept_token):
        return False
    made = device.point_order
    is_made = made is not None and made.token == order.kept_token
    return not is_made and kept_point_of(cluster, device, order) is None


def is_unknown(cluster: Cluster, device: DeviceSpec) -> bool:
    """Whether what is on a device now is half of a copy, or a copy: nothing to be kept.

    Each of its nodes says so. One that does not may have let hosts in since, and what they wrote
    has come to the others by a resync, beside which their notes stay as they were.
    """
    noting = nodes_with_newer_hold(cluster, device)
    return all(
        node.value in noting and _may_have_begun(noting[node.value]) for node in device.nodes
    )


def _may_have_begun(noted: RestoreOrder | None) -> bool:
    """Whether an order lets no host in, and it or one before it may have written something."""
    if noted is None:
        return True
    is_first = noted.state == ORDERED and noted.base is None and not noted.is_unsure
    return noted.is_open and not is_first


def kept_before(cluster: Cluster, device: DeviceSpec, *, stands: bool) -> str | None:
    """Return the token of the restore point by which what is to be kept is kept.

    None: what is on the device is to be kept now. It is not where each node has noted that it may
    be half of a copy, and the same point of before the hold, which is there. Nor where an order
    stands that has kept it and has not begun. In doubt it is kept: that costs but room. So it is
    where an order has not begun, and is not carried out: it may have been given while hosts wrote.
    """
    there = {e.token for e in cluster.cib.points_of(device.name) if not e.is_deleting}
    order = device.restore
    if stands and order is not None and order.kept_token in there:
        # Where some nodes lack it, and that was not accepted, it is kept anew.
        return order.kept_token if unkept_problem(cluster, device, order) is None else None
    noting = nodes_with_newer_hold(cluster, device)
    if order is not None and order.state == ORDERED and is_overtaken(order, noting):
        # Hosts were in where it was given. What the node that serves has noted now is what another
        # one has noted (restoring.py, Stuck), and says nothing of what they wrote.
        return None
    if not is_unknown(cluster, device):
        return None
    # Not by the CIB's order: hosts may have written between that and the hold.
    noted = noting.values()
    tokens = {each.kept_token if each is not None else "" for each in noted}
    return tokens.pop() if len(tokens) == 1 and tokens <= there else None


def not_kept_problems(
    cluster: Cluster, device: DeviceSpec, accepted: Collection[str]
) -> tuple[Problem, ...]:
    """Return that what is on the device would not be kept on all of its nodes, if so."""
    active = cluster.active_node(device.name)
    if active is None or KEPT_NOT_EVERYWHERE in accepted:
        return ()  # Without one it is refused anyway.
    others = [node for node in device.nodes if node.value != active]
    out = [node.value for node in others if not cluster.is_in_sync(device, node)]
    if not out and all(cluster.is_in_sync(device, node) for node in device.nodes):
        return ()
    return (
        Problem(
            KEPT_NOT_EVERYWHERE,
            f"what is on device {device.name} would not be kept on all nodes: the replica on "
            f"{', '.join(out or [active])} is not known to be in sync",
            f"wait until it is: 'sanctl device show {device.name}'. What one node alone keeps is "
            f"lost with it; --accept {KEPT_NOT_EVERYWHERE} goes on all the same",
        ),
    )
