# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what nodes say that they have noted of a hold, beside the order that the CIB has.

What a node makes of its own note is in noted_hold.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, Role
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import RestoreOrder
from sanctl.plan.device.noted_hold import is_older

#: With these a replica runs, and each monitor publishes its state.
_RUNS = frozenset({Role.PROMOTED, Role.UNPROMOTED, Role.STARTED, Role.PROMOTING, Role.DEMOTING})


def nodes_with_newer_hold(cluster: Cluster, device: DeviceSpec) -> dict[str, RestoreOrder | None]:
    """Return the nodes that have noted a newer order than the CIB has.

    Each with that order; None: it cannot be read. Unless it has ended they keep hosts out.
    """
    states = ((node.value, cluster.replica(device.name, node)) for node in device.nodes)
    return {
        node: state.noted_hold
        for node, state in states
        if state.is_cib_older and _is_behind(device.restore, state.noted_hold)
    }


def silent_nodes(cluster: Cluster, device: DeviceSpec) -> tuple[str, ...]:
    """Return the nodes on which a replica runs, and which do not say what they have noted of it.

    As after a restart of their attrd, until the next monitor. Any of them may have noted that an
    order has ended, or a newer one. One that starts counts where a hold is known: a start may take
    minutes.
    """
    roles = _RUNS | ({Role.STARTING} if knows_hold(cluster, device) else set())
    return tuple(
        node.value
        for node in device.nodes
        if cluster.mon.state(node) in MEMBER_STATES
        and cluster.mon.role(device.name, node) in roles
        and (device.name.value, node.value) not in cluster.cib.replicas
    )


def knows_hold(cluster: Cluster, device: DeviceSpec) -> bool:
    """Whether the CIB's order is one of a hold, or nodes have noted a newer one of one."""
    order = device.restore
    is_of_holds = order is not None and order.is_of_holds
    return is_of_holds or bool(nodes_with_newer_hold(cluster, device))


def newer_s(cluster: Cluster, device: DeviceSpec, now_s: float = 0.0) -> int:
    """Return when an order is given: after each other one of the device, whatever the clocks say.

    By that a node tells an older CIB from a newer one (noted_hold.py).
    """
    known = (device.restore, *(cluster.replica(device.name, n).noted_hold for n in device.nodes))
    return max(int(now_s), *(order.given_s + 1 for order in known if order is not None), 0)


def _is_behind(order: RestoreOrder | None, noted: RestoreOrder | None) -> bool:
    """Whether an order in the CIB does not know of one that was noted.

    What was published last may be of before the order came. What does not fit to a newer order says
    nothing but what its own node serves (noted_hold.py, may_be_base).
    """
    if order is None or noted is None:
        return True
    return is_older(str(order), str(noted))


def is_overtaken(order: RestoreOrder | None, noting: Mapping[str, RestoreOrder | None]) -> bool:
    """Whether nodes have noted more than a later state of the CIB's own order.

    Its end, that is, or another order. Then nothing of what the CIB says is carried out: it neither
    goes on nor ends, until a node with the newer CIB is back, or an operator gives an order.
    """
    return any(not _is_of(order, noted) for noted in noting.values())


def is_open_note(noted: RestoreOrder | None) -> bool:
    """Whether no host is let in by an order that was noted; also one that cannot be read."""
    return noted is None or noted.is_open


def _is_of(order: RestoreOrder | None, noted: RestoreOrder | None) -> bool:
    """Whether what was noted is a later state of the same order, which is open in both."""
    if order is None or noted is None or not (order.is_open and noted.is_open):
        return False
    same = noted.token == order.token and noted.given_s == order.given_s
    return same and noted.point == order.point
