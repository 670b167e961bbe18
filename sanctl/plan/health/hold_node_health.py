# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on nodes that cannot do what a device that awaits its second sites asks of them."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.plan.cluster.hold_nodes import nodes_that_let_in


def hold_node_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return the nodes that would let hosts in too early to a device that awaits sites, or never.

    A node that publishes nothing now says neither, and one that is no member serves nobody.
    """
    if not device.awaits:
        return
    older = nodes_that_let_in(cluster)
    here = sorted(node.value for node in device.nodes if node.value in older)
    elsewhere = sorted(older - set(here))
    if here:
        yield _finding(
            device,
            f"the release of sanctl on {', '.join(here)} lets hosts in without asking its site",
            "after a loss of all power hosts of both sites may write, and have two versions",
            "run the playbook on all nodes",
        )
    if elsewhere:
        yield _finding(
            device,
            f"the release of sanctl on {', '.join(elsewhere)} takes a takeover that the site has "
            "lost for ended",
            "hosts may be let in although the device goes on elsewhere",
            "run the playbook on all nodes",
        )
    nameless = [
        node.value
        for node in device.nodes
        if cluster.is_pool_agent_running(node)
        and (usage := cluster.pool(device.pool, node))
        and usage.holds_run == ""
    ]
    if nameless:
        yield _finding(
            device,
            f"{', '.join(nameless)} cannot tell one start of Pacemaker from another, and lets no "
            "host in after the next one, nor after a failover",
            "what was decided holds for one start of Pacemaker",
            "run Pacemaker as the unit pacemaker.service in system.slice, with cgroup v2; until "
            f"then 'sanctl replicate release {device.name}' lets hosts in and ends the setting",
        )


def _finding(device: DeviceSpec, what: str, why: str, do: str) -> Finding:
    return Finding(
        code="SAN-HLT-121",
        severity=Severity.CRITICAL,
        subject=f"device {device.name}",
        what=what,
        why=why,
        do=do,
    )
