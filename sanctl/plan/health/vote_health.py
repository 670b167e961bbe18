# SPDX-License-Identifier: GPL-2.0-or-later
"""Judges how the nodes count votes: whether all do, and as their strategy says."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.topology import Topology
from sanctl.model.vote_mode import Votes
from sanctl.plan.cluster.strategy import overlap


def vote_findings(cluster: Cluster, topology: Topology) -> Iterator[Finding]:
    """Name what is wrong with the votes of the storage nodes that are there and have told."""
    ballots = {
        str(node.name): cluster.cib.ballots[str(node.name)]
        for node in topology.storage_nodes
        if cluster.is_pool_agent_running(node.name) and str(node.name) in cluster.cib.ballots
    }
    strategies = {name: ballot.strategy for name, ballot in ballots.items()}
    if len(set(strategies.values())) > 1:
        told = ", ".join(f"{name}: {value or '?'}" for name, value in strategies.items())
        yield Finding(
            code="SAN-HLT-082",
            severity=Severity.WARNING,
            subject="strategy",
            what=f"the nodes' cluster.toml do not agree ({told})",
            why="which nodes may go on alone depends on it",
            do=f"sanctl cluster strategy set {topology.strategy}",
        )
    wrong = [
        (name, tally)
        for name, ballot in ballots.items()
        for tally in dict.fromkeys((ballot.file, ballot.live))
        if tally != topology.tally
    ]
    if wrong:
        # A way to count that sanctl does not know has nothing in common with any other.
        known = {tally for ballot in ballots.values() for tally in (ballot.file, ballot.live)}
        is_safe = None not in known and all(
            overlap(one, other) for one in known for other in known if one and other
        )
        seen = ", ".join(f"{name} counts by {tally or 'its own rules'}" for name, tally in wrong)
        yield Finding(
            code="SAN-HLT-080",
            severity=Severity.WARNING if is_safe else Severity.CRITICAL,
            subject="strategy",
            what=f"{topology.strategy} means to count by {topology.tally}, but {seen}",
            why="until all count alike, a lost node can leave the others without quorum"
            if is_safe
            else "two parts of the cluster may both find that they have quorum",
            do=f"sanctl cluster strategy set {topology.strategy}",
        )
    silent = [
        name
        for name, ballot in ballots.items()
        if ballot.live is not None
        and ballot.live.votes is Votes.QDEVICE
        and not ballot.is_device_voting
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
