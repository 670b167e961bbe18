# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on quorum votes: nodes that disagree or differ from the strategy, a silent qdevice."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.topology import Topology
from sanctl.model.vote_mode import Votes
from sanctl.plan.cluster.strategy import quorums_intersect


def vote_findings(cluster: Cluster, topology: Topology) -> Iterator[Finding]:
    """Return what is wrong with the votes of the present storage nodes that have published them."""
    node_votes = {
        str(node.name): cluster.cib.node_votes[str(node.name)]
        for node in topology.storage_nodes
        if cluster.is_pool_agent_running(node.name) and str(node.name) in cluster.cib.node_votes
    }
    strategies = {name: votes.strategy for name, votes in node_votes.items()}
    if len(set(strategies.values())) > 1:
        listed = ", ".join(f"{name}: {value or '?'}" for name, value in strategies.items())
        yield Finding(
            code="SAN-HLT-082",
            severity=Severity.WARNING,
            subject="strategy",
            what=f"the nodes' cluster.toml do not agree ({listed})",
            why="which nodes may go on alone depends on it",
            do=f"sanctl cluster strategy set {topology.strategy}",
        )
    wrong = [
        (name, mode)
        for name, votes in node_votes.items()
        for mode in dict.fromkeys((votes.file, votes.live))
        if mode != topology.vote_mode
    ]
    if wrong:
        # The quorums of a vote mode that sanctl does not know may intersect with no others.
        known = {mode for votes in node_votes.values() for mode in (votes.file, votes.live)}
        is_safe = None not in known and all(
            quorums_intersect(one, other) for one in known for other in known if one and other
        )
        seen = ", ".join(f"{name} counts by {mode or 'its own rules'}" for name, mode in wrong)
        yield Finding(
            code="SAN-HLT-080",
            severity=Severity.WARNING if is_safe else Severity.CRITICAL,
            subject="strategy",
            what=f"{topology.strategy} means to count by {topology.vote_mode}, but {seen}",
            why="until all count alike, a lost node can leave the others without quorum"
            if is_safe
            else "two parts of the cluster may both find that they have quorum",
            do=f"sanctl cluster strategy set {topology.strategy}",
        )
    silent = [
        name
        for name, votes in node_votes.items()
        if votes.live is not None
        and votes.live.votes is Votes.QDEVICE
        and not votes.is_device_voting
    ]
    if silent:
        yield Finding(
            code="SAN-HLT-081",
            severity=Severity.WARNING,
            subject="quorum device",
            what=f"it does not vote for {', '.join(silent)}",
            why="if a node is lost now, no part has a majority and nothing is served",
            do=f"is {topology.qdevice} up, and corosync-qnetd on it? "
            "'corosync-qdevice-tool -s' on the node",
        )
