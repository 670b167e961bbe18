# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on what waits for a node without an end: a change of replicas, hosts' reservations."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity

_SERVICE = "sanctl-reservations"


def waiting_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return for which nodes a change of a device's replicas, or of its reservations, waits."""
    for node in device.nodes:
        peer = cluster.replica(device.name, node).change_waits_for
        if peer:
            yield Finding(
                code="SAN-HLT-147",
                severity=Severity.WARNING,
                subject=f"device {device.name}",
                what=f"its change to two replicas waits on {node} for {peer}, which is to keep one "
                "and is lost",
                why=f"it is not certain yet that {peer} serves nothing; until then the replicas "
                "that were dropped count towards the majority, and their nodes are needed",
                do=f"bring {peer} back, or see that it is fenced ('sanctl status' says what keeps "
                "fencing from succeeding); the change goes on by itself (SAN-AGENT-021)",
            )
    if not device.reservations:
        return
    for node in device.nodes:
        # Without an instance there, as in standby, the node is no replica that is asked.
        if any(
            each.node == node.value for each in cluster.mon.instances_of(device.name)
        ) and _has_dead_service(cluster, node.value):
            yield Finding(
                code="SAN-HLT-148",
                severity=Severity.WARNING,
                subject=f"device {device.name}",
                what=f"{_SERVICE}.service does not listen on {node}",
                why="a host that reserves or releases waits until it does, for as long as that "
                "takes, and so does the device's next promotion",
                do=f"on {node}: 'systemctl status {_SERVICE}' and 'journalctl -u "
                f"{_SERVICE}' say why; 'systemctl start {_SERVICE}', and run the playbook "
                "again if the unit is missing or masked",
            )


def _has_dead_service(cluster: Cluster, node: str) -> bool:
    return cluster.is_pool_agent_running(node) and any(
        usage.is_reservations_service_down
        for (_, name), usage in cluster.cib.pools.items()
        if name == node
    )
