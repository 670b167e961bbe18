# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on files that are to be the same on all nodes, and are not: cluster.toml, the secret.

Of storage nodes whose pool agent runs, by the digests that it publishes; a witness says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.name_list import in_words


def file_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return which of the two files differ, and where."""
    topologies: dict[str, str] = {}
    secrets: dict[str, str] = {}
    for (_, node), usage in cluster.cib.pools.items():
        # Of one that has stopped, as in standby, what it published last is left.
        if usage.error is None and cluster.is_pool_agent_running(node):
            topologies[node] = usage.topology_digest
            secrets[node] = usage.secret_digest
    yield from _differing(
        topologies,
        "SAN-HLT-163",
        "/etc/sanctl/cluster.toml",
        why="a node that missed a change goes by other nodes, addresses or pools than the rest",
        do="run the playbook without --limit; while it runs the files differ for a moment",
    )
    yield from _differing(
        secrets,
        "SAN-HLT-164",
        "/etc/sanctl/drbd.secret",
        why="replicas stay connected as they are, and refuse each other at the next connection; "
        "restore points and changes of reservations fail between these nodes, and SAN-HLT-129 "
        "beside this may come from it",
        do="find the file that is in use as docs/howto/night-page.md says, 'Which secret is in "
        "use', and copy it to the other nodes, owner root, mode 0600, before a node restarts",
    )


def _differing(
    digests: Mapping[str, str], code: str, path: str, *, why: str, do: str
) -> Iterator[Finding]:
    groups = _groups(digests)
    if len(groups) > 1:
        yield Finding(
            code=code,
            severity=Severity.WARNING,
            subject="cluster",
            what=f"{path} differs: one on {', another on '.join(groups)}",
            why=why,
            do=do,
        )


def _groups(digests: Mapping[str, str]) -> list[str]:
    """Return the nodes that have the same, in words; a node that does not say is in none."""
    alike: dict[str, list[str]] = {}
    for node, digest in sorted(digests.items()):
        if digest:
            alike.setdefault(digest, []).append(node)
    return sorted(in_words(nodes) for nodes in alike.values())
