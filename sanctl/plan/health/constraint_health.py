# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on what keeps Pacemaker from a device, and on nodes for good: constraints of others."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.model.foreign_constraint import ForeignConstraint
from sanctl.plan.device.following import guest_nodes


def constraint_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return which nodes a device is kept off, or always goes back to, by others' constraints."""
    for each in cluster.cib.constraints_of(device.name):
        if each.node and each.node not in {node.value for node in device.nodes}:
            continue
        node = each.node or "the nodes of its rule"
        yield Finding(
            code="SAN-HLT-132",
            severity=Severity.WARNING,
            subject=f"device {device.name}",
            what=f"it is kept off {node} by constraint {each.id}{until_text(each)}"
            if each.is_ban
            else f"Pacemaker prefers {node} for it, by constraint {each.id}{until_text(each)}",
            why="that node does not take it over when the one that serves fails"
            if each.is_ban
            else "it may go back there by itself, and not where 'sanctl device move' sends it",
            do=f"'{each.removal}' removes it; to move a device: 'sanctl device move {device.name} "
            "--to NODE', which leaves none",
        )


def tie_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return what a device depends on by others' constraints, and a guest that it cannot follow."""
    for tie in cluster.cib.ties_of(device.name):
        yield Finding(
            code="SAN-HLT-142",
            severity=Severity.WARNING,
            subject=f"device {device.name}",
            what=f"by constraint {tie.id} it depends on {tie.other or 'the resources of a set'}",
            why="Pacemaker demotes it where that resource stops, or waits with its failover, or "
            "orders a promotion where its replica cannot serve",
            do=f"'{tie.removal}' removes it; 'sanctl device follow {device.name} --resource NAME' "
            "has the device served where a guest runs, and no more than that",
        )
    follow = cluster.cib.follow(device.name)
    nodes = guest_nodes(cluster, follow.resource) if follow is not None else ()
    if follow is not None and nodes and not {node.value for node in device.nodes} & set(nodes):
        yield Finding(
            code="SAN-HLT-143",
            severity=Severity.NOTE,
            subject=f"device {device.name}",
            what=f"it follows {follow.resource}, which runs on {', '.join(nodes)}: it has no "
            "replica there",
            why="its data comes over the network to that guest",
            do="run the guest on a node with a replica, or 'sanctl device replicas' gives that "
            "node one",
        )


def until_text(constraint: ForeignConstraint) -> str:
    """Say when a constraint ends; nothing where it has no end."""
    return f" (until {constraint.until})" if constraint.until else ""
