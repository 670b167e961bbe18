# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on what keeps Pacemaker from a device, and on nodes for good: constraints of others."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.model.foreign_constraint import ForeignConstraint


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


def until_text(constraint: ForeignConstraint) -> str:
    """Say when a constraint ends; nothing where it has no end."""
    return f" (until {constraint.until})" if constraint.until else ""
