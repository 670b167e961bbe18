# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on the releases of sanctl that nodes run: one that does not know what a device needs."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity


def needs_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return the nodes that say that their release does not know what a device needs."""
    active = cluster.mon.active_nodes(device.name)
    for node in device.nodes:
        lacks = cluster.replica(device.name, node).lacks
        if not lacks or cluster.mon.state(node) not in MEMBER_STATES:
            continue
        serves = node.value in active
        yield Finding(
            code="SAN-HLT-127",
            severity=Severity.CRITICAL if serves else Severity.WARNING,
            subject=f"device {device.name}",
            what=f"the release of sanctl on {node} does not know what it needs: {', '.join(lacks)}",
            why="that node serves it all the same, as it did before its release was exchanged"
            if serves
            else "that node keeps its copy in sync, and does not take it over",
            do=f"update sanctl on {node}: run the playbook of the newest release that any node has",
        )
