# SPDX-License-Identifier: GPL-2.0-or-later
"""What to say of a replica that is not connected yet: it waits for its turn, or for its standby.

A start of many replicas leaves connections to the monitors, which make few at a time
(plan/drbd/reconnect_pace.py). One that crashed as Primary lets its standby be promoted first
(plan/failover/standby_first.py). No monitor connects while Pacemaker runs none, in maintenance.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.names import NodeName
from sanctl.plan.drbd import reconnect_pace
from sanctl.plan.failover.standby_first import LONGEST_S


class ConnectWait(NamedTuple):
    """The text for a device of which a replica waits: for both ends of the connection."""

    what: str
    do: str


def connect_wait(cluster: Cluster, device: DeviceSpec, *, now_s: float) -> ConnectWait | None:
    """Return the text where a replica of the device waits for its turn, as its node has published.

    None, too, where that replica lost writes: it connects when it is filled again, not in its turn.

    Args:
        cluster: what is known.
        device: one with a replica that is not connected.
        now_s: in seconds since 1970.
    """
    for node in device.nodes:
        replica = cluster.replica(device.name, node)
        if replica.waits_for_standby:
            what = (
                f"the one on {node} crashed as Primary and waits for the one on "
                f"{replica.waits_for_standby}, which has every write, to be promoted"
            )
            return ConnectWait(what, _advice_of_crashed(cluster, device, node))
        since_s = replica.waits_to_connect_since_s
        if since_s is not None and not replica.is_suspect:
            what = f"the one on {node} waits for its turn to connect"
            return ConnectWait(what, _advice(cluster, device, node, now_s - since_s))
    return None


def _advice_of_crashed(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str:
    maintained = _maintained(cluster, device, node)
    when = f"within {_minutes(LONGEST_S)}"
    if maintained:
        when = f"at the latest when the maintenance of {maintained} ends"
    return (
        f"wait: it connects by itself {when}; connected before, it would be the source of the "
        "resync, without what hosts had not flushed"
    )


def _advice(cluster: Cluster, device: DeviceSpec, node: NodeName, waited_s: float) -> str:
    maintained = _maintained(cluster, device, node)
    if maintained:
        return (
            f"it connects at the latest when the maintenance of {maintained} ends; now by "
            f"'drbdadm adjust {device.name}' on {node}"
        )
    replicas = cluster.cib.replica_count(node)
    longest_s = reconnect_pace.longest_wait_s(replicas)
    if waited_s > longest_s:
        return (
            f"it has waited {_minutes(waited_s)}, longer than {replicas} turns take: check the "
            f"sync network and the other node; journalctl SANCTL_DEVICE={device.name} on {node} "
            "says what holds it up"
        )
    waiting = cluster.cib.waiting_count(node)
    return (
        f"wait: few connect at a time, {waiting} on {node} wait; it connects by itself within "
        f"{_minutes(longest_s)}"
    )


def _maintained(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str:
    """Return what is in maintenance, so that Pacemaker may run no monitor; empty: nothing is."""
    if cluster.is_maintenance:
        return "the cluster"
    if cluster.mon.state(node) is NodeState.MAINTENANCE:
        return node.value
    return "" if device.is_managed else "the device"


def _minutes(seconds: float) -> str:
    return f"{math.ceil(seconds / 60)} min"
