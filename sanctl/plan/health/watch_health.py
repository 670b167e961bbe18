# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on agents that only watch, and do not run on a node: of pools, of the iscsi network.

What they published stays when Pacemaker stops them, so nothing else says it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cib_names import POOLS_CLONE, REACH_CLONE
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState, Role
from sanctl.model.findings import Finding, Severity
from sanctl.model.meta_attribute import and_texts, deletions
from sanctl.model.names import NodeName
from sanctl.model.topology import NodeRole, Topology
from sanctl.model.watch_clone import WatchClone
from sanctl.plan.cluster.takeover import leaving_reason

_CODES = {POOLS_CLONE: "SAN-HLT-154", REACH_CLONE: "SAN-HLT-155"}
_WATCHES = {
    POOLS_CLONE: "the pool agent",
    REACH_CLONE: "the watch over the iscsi network",
}
_WHY = {
    POOLS_CLONE: "free space and lost links are not known there, files of deleted devices stay, "
    "and no restore points and copies are made by schedule",
    REACH_CLONE: "devices stay on a node that hosts do not reach any more",
}


def watch_findings(cluster: Cluster, topology: Topology) -> Iterator[Finding]:
    """Return on which storage nodes in service a watching agent does not run, and what stops it.

    In maintenance mode, without quorum or with stop-all-resources Pacemaker starts nothing, which
    other findings say.
    """
    if cluster.is_maintenance or cluster.is_all_stopped or not cluster.mon.has_quorum:
        return
    for clone in cluster.cib.watch_clones:
        for node in topology.nodes:
            if node.role is NodeRole.STORAGE and _is_missing(cluster, clone, node.name):
                cause = _cause(clone, node.name)
                # Where nothing keeps it, and it was not there yet, the node has just joined; where
                # it failed, SAN-HLT-040 says it.
                if cause is None and _has_run(cluster, clone, node.name):
                    cause = ("", f"'crm_resource --cleanup --resource {clone.resource}'")
                if cause is not None:
                    yield _finding(clone, node.name, *cause)


def _finding(clone: WatchClone, node: NodeName, cause: str, do: str) -> Finding:
    """Return that it does not run on a node; alike for all nodes, which the status has together."""
    return Finding(
        code=_CODES[clone.id],
        severity=Severity.WARNING,
        subject=f"node {node}",
        what=f"{_WATCHES[clone.id]} ({clone.resource}) does not run there"
        + (f": {cause}" if cause else ""),
        why=_WHY[clone.id],
        do=do,
    )


def _is_missing(cluster: Cluster, clone: WatchClone, node: NodeName) -> bool:
    """Whether it should run on a node and does not; not while it starts or stops."""
    return (
        cluster.mon.state(node) is NodeState.ONLINE
        # A drained node's agents run on.
        and (node.value in cluster.cib.drained or leaving_reason(cluster, node.value) is None)
        and cluster.mon.role(clone.resource, node) is Role.STOPPED
    )


def _cause(clone: WatchClone, node: NodeName) -> tuple[str, str] | None:
    """Return what keeps it off a node and the command that ends that; None: nothing is known to."""
    if clone.disabled_by:
        return and_texts(clone.disabled_by), deletions(clone.disabled_by)
    if clone.unmanaged_by:
        return (
            f"{and_texts(clone.unmanaged_by)}, so Pacemaker does not start it",
            deletions(clone.unmanaged_by),
        )
    for ban in clone.bans:
        # One whose rule names no node may be about this one.
        if ban.node in {"", node.value}:
            return f"constraint {ban.id} keeps it off", ban.removal
    return None


def _has_run(cluster: Cluster, clone: WatchClone, node: NodeName) -> bool:
    """Whether it has published since the node joined, and is not known to have failed there."""
    if any(each.node == node.value for each in cluster.mon.failures_of(clone.resource)):
        return False
    if clone.id == REACH_CLONE:
        return node.value in cluster.cib.reach
    return any(holder == node.value for _, holder in cluster.cib.pools)
