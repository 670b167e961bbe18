# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on the releases of sanctl that nodes run: several at once, one that lacks something."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.device import DeviceSpec, access_digest
from sanctl.model.findings import Finding, Severity


def needs_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return the nodes that say that their release does not know what a device needs."""
    active = cluster.mon.active_nodes(device.name)
    for node in device.nodes:
        lacks = cluster.replica(device.name, node).lacks
        if not lacks or cluster.mon.state(node) not in MEMBER_STATES:
            continue
        serves = node.value in active
        # As a start there, or a restore before the release was exchanged, has left the list.
        is_closed = serves and cluster.replica(device.name, node).access == access_digest(())
        yield Finding(
            code="SAN-HLT-127",
            severity=Severity.CRITICAL if serves else Severity.WARNING,
            subject=f"device {device.name}",
            what=f"the release of sanctl on {node} does not know what it needs: {', '.join(lacks)}",
            why="that node serves it all the same, as it did before its release was exchanged"
            + (
                "; it lets no host in: its access list was closed, and that release leaves it so"
                if is_closed and device.access
                else ""
            )
            if serves
            else "that node keeps its copy in sync, and does not take it over",
            do=f"update sanctl on {node}: run the playbook of the newest release that any node has",
        )


def release_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return that the nodes' pool agents say different releases.

    A node that publishes pools and no release has one from before that was published. One whose
    pools are all in error, or whose pool agent does not run, says nothing.
    """
    nodes: dict[str, set[str]] = {}
    for release, node in {
        (usage.release or "", node)
        for (_, node), usage in cluster.cib.pools.items()
        # Of one that has stopped, as in standby, what it published last is left.
        if usage.error is None and cluster.is_pool_agent_running(node)
    }:
        nodes.setdefault(release, set()).add(node)
    if len(nodes) < 2:
        return
    # The one that most nodes have comes last.
    groups = sorted(nodes.items(), key=lambda each: (len(each[1]), each[0]))
    said = (
        f"{', '.join(sorted(names))} {'run' if len(names) > 1 else 'runs'} "
        f"{release or 'an older one, which does not say its name'}"
        for release, names in groups
    )
    yield Finding(
        code="SAN-HLT-128",
        severity=Severity.WARNING,
        subject="cluster",
        what=f"the nodes run different releases of sanctl: {'; '.join(said)}",
        why="a node of an older release may serve a device otherwise than the others, or not take "
        "it over",
        do="run the playbook on all nodes; during an update: wait until it has ended, and half a "
        "minute more",
    )
