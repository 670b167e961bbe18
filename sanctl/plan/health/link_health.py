# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on Corosync's links: one that is lost while another to the same node still works."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.lost_link import LostLink
from sanctl.model.topology import LINK_NAMES


def link_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return what the pool agents say of their nodes' links.

    A node whose pools are all in error says nothing; a witness never does, but the others say it of
    their links to it.
    """
    lost: dict[str, set[LostLink]] = {}
    for (_, node), usage in cluster.cib.pools.items():
        if usage.error is None and cluster.is_pool_agent_running(node):
            lost.setdefault(node, set()).update(usage.lost_links)
    for name, links in sorted(lost.items()):
        yield from lost_link_findings(cluster, name, links)


def lost_link_findings(
    cluster: Cluster, node: str, links: Collection[LostLink]
) -> Iterator[Finding]:
    """Return SAN-HLT-145 of a node, for each number of a link."""
    names = {each.id: each.name.value for each in cluster.cib.nodes}
    for number in sorted({number for number, _ in links}):
        peers = sorted(
            names.get(str(peer), f"node {peer}") for other, peer in links if other == number
        )
        yield Finding(
            code="SAN-HLT-145",
            severity=Severity.WARNING,
            subject=f"node {node}",
            what=f"Corosync's link {number} ({LINK_NAMES.get(number, '?')}) from {node} to "
            f"{', '.join(peers)} is down; another link works",
            why="the nodes see each other by that one alone: should it go as well, a node is "
            "fenced, or loses quorum",
            do=f"see to cable, port, switch and firewall of that network; "
            f"'corosync-cfgtool -s' on {node} shows its links",
        )
