# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on hosts that are logged in to a device through fewer nodes than serve paths to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState, Role
from sanctl.model.device import DeviceSpec, access_digest
from sanctl.model.findings import Finding, Severity
from sanctl.model.host_session import HostSession
from sanctl.model.names import NodeName
from sanctl.plan.cluster.takeover import leaving_reason

#: A host's initiator logs in again within a minute or two of a node's return.
_LOGGED_IN_WITHIN_S = 300.0
_NAMED = 4


class LackedPath(NamedTuple):
    """A node through which a host is not logged in to a device, while it is through others."""

    host: str
    device: str
    node: str
    through: tuple[str, ...]


def lacked_paths(
    cluster: Cluster, sessions: Mapping[str, tuple[HostSession, ...]]
) -> tuple[LackedPath, ...]:
    """Return the paths that hosts lack to devices which they are logged in to.

    `sessions` is what the nodes say; a node that says nothing is not in it, and nothing is said of
    it. Nor of a device that no node serves, or that is being moved.
    """
    known = {
        node: frozenset((each.device, each.iqn) for each in found)
        for node, found in sessions.items()
    }
    lacked: list[LackedPath] = []
    for device in cluster.cib.devices:
        if device.is_stopping or cluster.active_node(device.name) is None:
            continue
        nodes = [node for node in device.nodes if _lets_in(cluster, device, node)]
        for host, iqns in _hosts(device):
            through = tuple(
                node.value
                for node in nodes
                if any((device.name.value, iqn) in known.get(node.value, ()) for iqn in iqns)
            )
            lacking = [node for node in nodes if node.value in known and node.value not in through]
            if through and lacking:
                # Last, as it takes its time: where the list of now is not in force yet.
                wanted = access_digest(device.access)
                lacked += [
                    LackedPath(host, device.name.value, node.value, through)
                    for node in lacking
                    if cluster.replica(device.name, node).access == wanted
                ]
    return tuple(lacked)


def path_findings(
    lacked: tuple[LackedPath, ...], changed_s: Mapping[tuple[str, str], int], *, now_s: float
) -> Iterator[Finding]:
    """Return SAN-HLT-146 for each host and node that it lacks.

    Only where the replica there was started, moved or changed long enough ago for the host to have
    logged in again; `changed_s` says when, by device and node, and where it does not nothing is
    said. How long the host has lacked the path nobody knows.
    """
    devices: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for path in lacked:
        since_s = changed_s.get((path.device, path.node))
        if since_s is not None and now_s - since_s >= _LOGGED_IN_WITHIN_S:
            devices.setdefault((path.host, path.node, path.through), []).append(path.device)
    for (host, node, through), names in sorted(devices.items()):
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield Finding(
            code="SAN-HLT-146",
            severity=Severity.NOTE,
            subject=f"host {host}",
            what=f"it is logged in to {', '.join(names[:_NAMED])}{more} through "
            f"{', '.join(through)}, and not through {node}",
            why=f"should {node} serve, or {', '.join(through)} be lost, the host has no way to it",
            do=f"on the host: log in to the portals of {node}, too, and rescan: "
            "docs/howto/hosts-linux.md ('iscsiadm -m session' shows what is there), hosts-esxi.md, "
            "hosts-windows.md",
        )


def _lets_in(cluster: Cluster, device: DeviceSpec, node: NodeName) -> bool:
    """Whether hosts can log in on a node: it is in service, and its replica runs."""
    return (
        cluster.mon.state(node) is NodeState.ONLINE
        and leaving_reason(cluster, node.value) is None
        and cluster.mon.role(device.name, node) in {Role.PROMOTED, Role.UNPROMOTED}
    )


def _hosts(device: DeviceSpec) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return who may use a device, each with its initiators; of one by IQN alone, that."""
    for host in device.hosts:
        yield host.name.value, tuple(iqn.value for iqn in host.iqns)
    for iqn in device.initiators:
        yield iqn.value, (iqn.value,)
