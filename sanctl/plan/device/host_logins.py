# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which hosts are logged in to a device, and on which nodes that is not known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.host_session import HostSession
from sanctl.model.names import DeviceName, Iqn, NodeName
from sanctl.plan.host.access_loss import let_in


class HostLogins(NamedTuple):
    """Who is logged in to a device.

    Attributes:
        hosts: the initiators with a session, sorted.
        silent: the nodes that have to say who has one there, and do not.
    """

    hosts: tuple[str, ...]
    silent: tuple[str, ...]


def host_logins(
    cluster: Cluster, device: DeviceSpec, sessions: Mapping[str, Collection[HostSession]]
) -> HostLogins:
    """Return who is logged in to a device.

    Args:
        cluster: as observed.
        device: the device.
        sessions: of hosts, by node; a node that does not say is left out.
    """
    there = [n.value for n in device.nodes if not _has_no_sessions(cluster, device, n)]
    hosts = {
        session.iqn
        for node in there
        for session in sessions.get(node, ())
        if session.device == device.name.value
    }
    return HostLogins(
        hosts=tuple(sorted(hosts)),
        silent=tuple(node for node in there if node not in sessions),
    )


def logins_of(
    cluster: Cluster,
    name: DeviceName,
    iqns: Collection[Iqn],
    sessions: Mapping[str, Collection[HostSession]],
) -> HostLogins:
    """Return who of some initiators is logged in to a device; none where it lets none of them in.

    Args:
        cluster: as observed.
        name: the device.
        iqns: the initiators.
        sessions: of hosts, by node; a node that does not say is left out.
    """
    device = cluster.cib.device(name)
    if device is None or let_in(device).isdisjoint(iqns):
        return HostLogins((), ())
    found, wanted = host_logins(cluster, device, sessions), {iqn.value for iqn in iqns}
    return found._replace(hosts=tuple(host for host in found.hosts if host in wanted))


def _has_no_sessions(cluster: Cluster, device: DeviceSpec, node: NodeName) -> bool:
    """Whether it is certain that no host has a session there: any other node has to say.

    A node that has left, or was fenced. Or one in standby that has stopped the device: its pool
    agent is stopped, too, and what it said last may be of before.
    """
    state = cluster.mon.state(node)
    if state is NodeState.STANDBY:
        return all(each.node != node.value for each in cluster.mon.instances_of(device.name))
    return state is NodeState.OFFLINE
