# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on nodes: absent, unclean, in standby, in maintenance, joining, drained."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState
from sanctl.model.findings import Finding, Severity
from sanctl.plan.cluster.preconditions import end_of_node_maintenance, other_part_advice
from sanctl.plan.cluster.standby_reason import StandbyReason, node_state_text, standby_reason

CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING
_NODE_ADVICE = {
    NodeState.OFFLINE: (
        WARNING,
        "its replicas fall behind; another failure may stop devices",
        "start the node; it joins the cluster and resyncs by itself",
    ),
    NodeState.UNCLEAN: (
        CRITICAL,
        "what it does is not known; no node takes over what it served until it is fenced",
        "see 'stonith_admin --history NODE'; if fencing fails, switch the node off, make sure it "
        "is off, then 'sanctl node confirm-off NODE'",
    ),
    NodeState.STANDBY: (
        WARNING,
        "it serves nothing and its replicas fall behind",
        "'sanctl node online NODE' when the work on it is done",
    ),
    NodeState.MAINTENANCE: (
        WARNING,
        "Pacemaker starts, stops and moves nothing on it, may forget which replica serves there, "
        "and promote another one in vain",
        end_of_node_maintenance("NODE"),
    ),
    NodeState.PENDING: (
        WARNING,
        "it is joining the cluster and not ready yet",
        "wait a few seconds; if it stays: 'journalctl -u pacemaker' on it",
    ),
    NodeState.UNKNOWN: (
        WARNING,
        "Pacemaker reports nothing of it",
        "see 'crm_mon -1' and 'sanctl doctor'",
    ),
}
_STANDBY_ADVICE = {
    StandbyReason.SHUTDOWN: (
        "it serves nothing, and leaves the cluster when what runs on it has stopped",
        "once it is started it is in service again by itself; if it does not end: 'journalctl -u "
        "pacemaker' on it",
    ),
    StandbyReason.UNTIL_REBOOT: (
        "it serves nothing and its replicas fall behind; a transient attribute says so",
        "'sanctl node online NODE' ends it now, its reboot by itself",
    ),
    StandbyReason.FAILURE: (
        "it serves nothing and its replicas fall behind; 'sanctl node online' does not end it",
        "see SAN-HLT-040; then 'crm_resource --cleanup --node NODE'",
    ),
}


def node_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return which nodes are not in full service, and what to do about each."""
    for node in cluster.cib.nodes:
        state = cluster.mon.state(node.name)
        if state in _NODE_ADVICE:
            severity, why, do = _NODE_ADVICE[state]
            reason = standby_reason(cluster, node.name)
            if reason in _STANDBY_ADVICE:
                why, do = _STANDBY_ADVICE[reason]
            if state not in MEMBER_STATES and not cluster.mon.has_quorum:
                why, do = (
                    "it may be serving: there is no quorum here",
                    other_part_advice([node.name]),
                )
            yield Finding(
                code="SAN-HLT-020",
                severity=severity,
                subject=f"node {node.name}",
                what=f"it is {node_state_text(cluster, node.name)}",
                why=why,
                do=do.replace("NODE", node.name.value),
            )
    yield from _drained_findings(cluster)


def _drained_findings(cluster: Cluster) -> Iterator[Finding]:
    for node in cluster.cib.nodes:
        if node.name.value in cluster.cib.drained:
            yield Finding(
                code="SAN-HLT-022",
                severity=WARNING,
                subject=f"node {node.name}",
                what="it is drained: it is about to be shut down, and serves nothing",
                why="its replicas are kept in sync, but it takes no device over",
                do=f"'sanctl node undrain {node.name}' if it is to stay",
            )
