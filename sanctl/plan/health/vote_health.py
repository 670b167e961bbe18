# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on votes and Corosync's lists: nodes that disagree, a silent qdevice, open removals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.findings import Finding, Severity
from sanctl.model.topology import Topology
from sanctl.model.vote_mode import DROPPED_MEMBER_ATTRIBUTE, NodeVotes, Votes
from sanctl.plan.cluster.strategy import quorums_intersect


def vote_findings(cluster: Cluster, topology: Topology) -> Iterator[Finding]:
    """Return what is wrong with the votes of the present storage nodes that have published them."""
    node_votes = {
        str(node.name): cluster.cib.node_votes[str(node.name)]
        for node in topology.storage_nodes
        if cluster.is_pool_agent_running(node.name) and str(node.name) in cluster.cib.node_votes
    }
    yield from _list_findings(cluster, node_votes)
    yield from _order_findings(cluster)
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
    crowded = [name for name, votes in node_votes.items() if _is_crowded(votes)]
    if crowded:
        yield Finding(
            code="SAN-HLT-080",
            severity=Severity.CRITICAL,
            subject="strategy",
            what=f"{', '.join(crowded)} counts by two-node, the rule for two nodes, and lists more",
            why="any two nodes have quorum: two parts of the cluster may serve the same device",
            do=f"sanctl cluster strategy set {topology.strategy}",
        )
    elif wrong:
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


def _is_crowded(votes: NodeVotes) -> bool:
    """Whether a node counts by the rule of two nodes, and has more in its list."""
    return any(
        mode is not None and mode.votes is Votes.TWO_NODE and len(members) > 2
        for mode, members in ((votes.file, votes.written), (votes.live, votes.loaded))
    )


def _list_findings(cluster: Cluster, node_votes: Mapping[str, NodeVotes]) -> Iterator[Finding]:
    """Return on which nodes corosync.conf and the running Corosync have other members."""
    for name, votes in node_votes.items():
        for member in votes.unwritten:
            runs = cluster.mon.state(member) in MEMBER_STATES
            yield Finding(
                code="SAN-HLT-083",
                severity=Severity.CRITICAL if runs else Severity.WARNING,
                subject=f"node {name}",
                what=f"its corosync.conf lacks {member}, which its running Corosync has",
                why=(
                    f"at the next reload of Corosync {member} looks lost and is fenced; "
                    if runs
                    else ""
                )
                + f"when {name} starts again it does not know {member}, which others may",
                do=f"run site.yml with {member} in the inventory, on all nodes: it writes "
                f"{member} back; or, to take it out for good, stop it and 'sanctl node remove "
                f"{member}'",
            )
        if votes.unloaded:
            new = ", ".join(votes.unloaded)
            yield Finding(
                code="SAN-HLT-083",
                severity=Severity.WARNING,
                subject=f"node {name}",
                what=f"its corosync.conf has {new}, which its running Corosync does not know",
                why="Corosync was not reloaded after the change, or refused it: "
                f"{new} cannot join, and {name} counts otherwise than the others once it starts "
                "again",
                do="run site.yml on all nodes; if this stays, 'corosync-cfgtool -R' on one node "
                "has all load their files, and says what is refused",
            )
    lists = {name: votes.written for name, votes in node_votes.items() if votes.written}
    if len(set(lists.values())) > 1 and not any(
        votes.unwritten or votes.unloaded for votes in node_votes.values()
    ):
        listed = "; ".join(f"{name}: {', '.join(members)}" for name, members in lists.items())
        yield Finding(
            code="SAN-HLT-083",
            severity=Severity.CRITICAL,
            subject="corosync",
            what=f"the nodes do not have the same list of nodes ({listed})",
            why="they count votes against different lists, and may not find each other",
            do="run site.yml on all nodes: it writes the same list everywhere",
        )


def _order_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return which nodes are told to take a member out of their corosync.conf and have not yet."""
    for node in cluster.cib.nodes:
        member = node.attributes.get(DROPPED_MEMBER_ATTRIBUTE)
        if member:
            yield Finding(
                code="SAN-HLT-084",
                severity=Severity.WARNING,
                subject=f"node {node.name}",
                what=f"it is told to take {member} out of its corosync.conf and has not done so",
                why=f"'sanctl node remove {member}' is under way, or was killed; {node.name} "
                "follows once its pool agent runs",
                do=f"if no such command runs: 'sanctl node remove {member}' again; or, if {member} "
                f"is to stay, crm_attribute --node {node.name} --name {DROPPED_MEMBER_ATTRIBUTE} "
                "--delete",
            )
