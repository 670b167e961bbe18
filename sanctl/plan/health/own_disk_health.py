# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on a node's own disk: the CIB that is not written to it, little room on it or on /run.

Pacemaker gives up writing the CIB after one write that failed, or one process that could not be
started, and tries none again until it restarts or is told to (Pacemaker, daemons/based/based_io.c;
SIGPIPE tells it, in 2.1.5, 2.1.8 and 3.0, and not after a process that could not be started: that
removes the trigger of writes). Marks are part of the CIB.
"""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import format_bytes

#: Where the node's notes, Pacemaker's CIB and most logs lie.
FOLDER = "/var/lib"
#: In memory: the notes of agents and handlers, sockets, locks.
RUN_FOLDER = "/run"
CIB_FILE = "/var/lib/pacemaker/cib/cib.xml"


def own_disk_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return what the pool agents say of their nodes' own disks.

    A node whose pools are all in error says nothing; a witness never does (`sanctl doctor` there).
    """
    unwritten, low, low_run = set(), {}, {}
    for (_, node), usage in cluster.cib.pools.items():
        # Of one that has stopped, as in standby, what it published last is left.
        if usage.error is not None or not cluster.is_pool_agent_running(node):
            continue
        if usage.is_cib_unwritten:
            unwritten.add(str(node))
        if usage.own_disk_free_bytes is not None:
            low[str(node)] = usage.own_disk_free_bytes
        if usage.run_free_bytes is not None:
            low_run[str(node)] = usage.run_free_bytes
    for name in sorted(unwritten):
        yield unwritten_cib_finding(name)
    for name, free_bytes in sorted(low.items()):
        yield low_disk_finding(name, free_bytes)
    for name, free_bytes in sorted(low_run.items()):
        yield low_run_finding(name, free_bytes)


def unwritten_cib_finding(node: str) -> Finding:
    """Return SAN-HLT-140 of a node."""
    return Finding(
        code="SAN-HLT-140",
        severity=Severity.CRITICAL,
        subject=f"node {node}",
        what=f"the CIB is not written to disk on {node}: {CIB_FILE} is older than the one in use, "
        "is missing, or cannot be read",
        why="what has changed since, marks of replicas that are behind among it, is in memory "
        "alone there, and a loss of power takes it",
        do=f"on {node}: make room on {FOLDER} ('df {FOLDER}', 'journalctl -t pacemaker-based'); on "
        "a storage node with quorum, in neither standby nor maintenance, sanctl has Pacemaker "
        "write it again then, within minutes. Elsewhere, or where it stays: "
        "docs/howto/night-page.md, SAN-HLT-140",
    )


def low_disk_finding(node: str, free_bytes: int) -> Finding:
    """Return SAN-HLT-141 of a node."""
    return Finding(
        code="SAN-HLT-141",
        severity=Severity.WARNING,
        subject=f"node {node}",
        what=f"the filesystem of {FOLDER} on {node} has {format_bytes(free_bytes)} left",
        why="on a full one Pacemaker stops writing the CIB, and notes on pools and replicas cannot "
        "be written",
        do=f"on {node}: see 'du -xh --max-depth=2 /var' and 'journalctl --disk-usage', and make "
        "room",
    )


def low_run_finding(node: str, free_bytes: int) -> Finding:
    """Return SAN-HLT-162 of a node."""
    return Finding(
        code="SAN-HLT-162",
        severity=Severity.WARNING,
        subject=f"node {node}",
        what=f"the filesystem of {RUN_FOLDER} on {node} has {format_bytes(free_bytes)} left",
        why="on a full one no replica starts there, and DRBD's handlers fail when a peer is lost",
        do=f"on {node}: 'du -xh --max-depth=2 {RUN_FOLDER} | sort -h' says what fills it; where "
        "that is the journal, 'journalctl --vacuum-size=50M'",
    )
