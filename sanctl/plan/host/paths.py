# SPDX-License-Identifier: GPL-2.0-or-later
"""The paths that a host has to its devices, and those that it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sanctl.model.cluster import Cluster
from sanctl.model.host import Host
from sanctl.model.host_session import HostSession
from sanctl.model.names import DeviceName, Iqn, NodeName
from sanctl.plan.host.definition import devices_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPath:
    """A path of a host: one of its initiators, a device, a node with a replica.

    Attributes:
        device: the device.
        node: the node.
        iqn: the initiator.
        addresses: the host's addresses in the session; empty: no session; None: the node, or that
            it has one, is not known.
        state: `active`: the node serves the device; `standby`; `unknown`: which one serves is not
            known.
    """

    device: DeviceName
    node: NodeName
    iqn: Iqn
    addresses: tuple[str, ...] | None
    state: str


def host_paths(
    cluster: Cluster, host: Host, sessions: Mapping[str, tuple[HostSession, ...]]
) -> tuple[HostPath, ...]:
    """Return the paths that a host should have, by device, node and initiator.

    `sessions` is what the nodes say; a node that says nothing is not in it.
    """
    found = []
    for device in devices_of(cluster, host.name):
        active = cluster.active_node(device.name)
        for node in device.nodes:
            known = sessions.get(node.value)
            for iqn in host.iqns:
                addresses = None if known is None else _addresses(known, device.name, iqn)
                state = "unknown" if active is None else "standby"
                found.append(
                    HostPath(
                        device=device.name,
                        node=node,
                        iqn=iqn,
                        addresses=addresses,
                        state="active" if active == node.value else state,
                    )
                )
    return tuple(found)


def _addresses(sessions: tuple[HostSession, ...], device: DeviceName, iqn: Iqn) -> tuple[str, ...]:
    return next(
        (
            # Between two connections of a session the kernel shows none.
            session.addresses or ("?",)
            for session in sessions
            if (session.device, session.iqn) == (device.value, iqn.value)
        ),
        (),
    )
