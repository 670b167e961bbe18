# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks of `sanctl doctor`: of this node (doctor_node.py), of the cluster as this node sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sanctl.drivers.node_facts import NodeFactsPort
from sanctl.drivers.remote_services import RemoteServicesPort
from sanctl.drivers.stonith import StonithPort
from sanctl.errors import SanctlError
from sanctl.model.cluster import Cluster
from sanctl.model.drbd import bitmaps_per_replica
from sanctl.model.findings import Finding, Severity, sorted_findings
from sanctl.model.lost_link import LostLink
from sanctl.model.topology import NodeRole, Topology
from sanctl.ops.doctor_node import this_node_findings
from sanctl.ops.doctor_remote import remote_findings
from sanctl.ops.node_fence import query_fencing_devices, silent_device_findings
from sanctl.ops.path_look import host_path_findings
from sanctl.ops.session import Session
from sanctl.plan.cluster.cib_size import (
    DEFAULT_IPC_BUFFER_BYTES,
    cib_size_problem,
    has_size_limit,
)
from sanctl.plan.health.cluster_health import all_findings
from sanctl.plan.health.doctor_checks import CHECKS, OF_THE_CLUSTER, count
from sanctl.plan.health.link_health import lost_link_findings
from sanctl.plan.health.lost_links import lost_links
from sanctl.plan.health.memory_health import memory_finding
from sanctl.plan.health.own_disk_health import (
    low_disk_finding,
    low_run_finding,
    unwritten_cib_finding,
)
from sanctl.plan.health.own_disk_limits import is_behind, is_low

#: A change of the CIB is on the disk of each node by then, if it is written at all.
_CIB_WRITTEN_WITHIN_S = 10.0
#: Corosync shows the second link of a node that has just come up some moments after the first.
_LINK_IS_UP_WITHIN_S = 3.0

_MEMORY_KIB = re.compile(r"^MemTotal:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All findings, and for each check by name how many findings belong to it."""

    findings: tuple[Finding, ...]
    checks: tuple[tuple[str, int | None], ...]
    """None: the check could not be made."""


def examine(
    session: Session,
    host: NodeFactsPort,
    stonith: StonithPort,
    *,
    remote: RemoteServicesPort,
    topology: Topology | None,
    config_error: SanctlError | None,
) -> Examination:
    """Make all checks; one that cannot be made is itself a finding.

    Every fencing device that this node may use is asked for its status, now and from this node: a
    monitor that succeeded some time ago on another node is not enough. So are, from a storage node,
    the other nodes' services, second sites and repositories.
    """
    findings: list[Finding] = []
    if config_error is not None:
        findings.extend(_as_findings(config_error, "cluster.toml"))
    node = topology.node(host.node_name()) if topology is not None else None
    is_storage = node is not None and node.role is NodeRole.STORAGE
    findings.extend(this_node_findings(host, topology))
    not_made = set() if topology is not None else {"votes", "pools", "kernel", "files"}
    cluster: Cluster | None = None
    try:
        cluster = session.observe()
    except SanctlError as error:
        findings.extend(_as_findings(error, "cluster"))
        not_made |= OF_THE_CLUSTER
    if cluster is not None:
        findings.extend(_cib_size_findings(session, host, cluster))
        if is_storage:
            findings.extend(_memory_findings(host, cluster))
        findings.extend(host_path_findings(session, cluster))
        own, looked_at = _own_look(session, host, cluster)
        findings.extend(own)
        findings.extend(
            finding
            for finding in all_findings(cluster, topology, now_s=session.clock.wall_s())
            # What this node has published may be a minute old.
            if finding.subject != f"node {host.node_name()}" or finding.code not in looked_at
        )
        try:
            findings.extend(silent_device_findings(query_fencing_devices(stonith, cluster)))
        except SanctlError as error:
            findings.extend(_as_findings(error, "fencing"))
            not_made.add("fencing")
        # Last: others may take their time, and what the cluster was like then says less by then.
        if topology is not None and node is not None and is_storage:
            session.reporter.update("asking other nodes, second sites and repositories")
            findings.extend(remote_findings(remote, cluster, topology, node))
    return Examination(
        findings=sorted_findings(findings),
        checks=tuple(
            (name, None if name in not_made else count(findings, name)) for name, _ in CHECKS
        ),
    )


def _cib_size_findings(
    session: Session, host: NodeFactsPort, cluster: Cluster
) -> Iterator[Finding]:
    if not has_size_limit(cluster.cib.properties.get("dc-version", "")):
        return
    problem = cib_size_problem(
        compressed_bytes=session.compressed_cib_bytes(),
        # Said before a `device create` is refused.
        new_devices=max(1, len(cluster.cib.devices) // 10),
        nodes=len(cluster.cib.nodes),
        ipc_buffer_bytes=host.ipc_buffer_bytes() or DEFAULT_IPC_BUFFER_BYTES,
    )
    if problem is not None:
        yield Finding(
            code=problem.code,
            severity=Severity.WARNING,
            subject="CIB",
            what=f"with a tenth more devices {problem.text}",
            why="past that Pacemaker's daemons get no CIB, and nothing fails over",
            do=problem.hint,
        )


def _own_look(
    session: Session, host: NodeFactsPort, cluster: Cluster
) -> tuple[list[Finding], frozenset[str]]:
    """Look at this node's own disk, /run and links; return the codes as well that this answers.

    Storage nodes' pool agents publish them of their nodes.
    """
    # Of this node's memory SAN-DOC-011 says it.
    here, found, looked_at = host.node_name(), [], {"SAN-HLT-165"}
    is_unwritten = _is_cib_unwritten(session, host)
    if is_unwritten is not None:
        looked_at.add("SAN-HLT-140")
        if is_unwritten:
            found.append(unwritten_cib_finding(here))
    space = host.own_disk_bytes()
    if space is not None:
        looked_at.add("SAN-HLT-141")
        if is_low(*space):
            found.append(low_disk_finding(here, space[1]))
    space = host.run_bytes()
    if space is not None:
        looked_at.add("SAN-HLT-162")
        if is_low(*space):
            found.append(low_run_finding(here, space[1]))
    lost = _lost_links(session, host)
    if lost is not None:
        looked_at.add("SAN-HLT-145")
        found.extend(lost_link_findings(cluster, here, lost))
    return found, frozenset(looked_at)


def _lost_links(session: Session, host: NodeFactsPort) -> frozenset[LostLink] | None:
    """Return the links that are down at two looks: one may have just come up. None: not known."""
    links = host.links()
    lost = lost_links(links or ())
    if lost:
        session.clock.sleep(_LINK_IS_UP_WITHIN_S)
        links = host.links()
        lost &= lost_links(links or ())
    return None if links is None else lost


def _is_cib_unwritten(session: Session, host: NodeFactsPort) -> bool | None:
    """Whether the file of the CIB is older than the CIB that was read, and does not become newer.

    A write takes a moment. None: not known.
    """
    live, first = session.cib_version(), host.written_cib_version()
    if live is None or first is None:
        return None
    if not is_behind(first, live):
        return False
    until_s = session.clock.monotonic_s() + _CIB_WRITTEN_WITHIN_S
    while session.clock.monotonic_s() < until_s:
        session.clock.sleep(1.0)
        if host.written_cib_version() != first:
            return False
    return True


def _memory_findings(host: NodeFactsPort, cluster: Cluster) -> Iterator[Finding]:
    total = _MEMORY_KIB.search(host.text("/proc/meminfo") or "")
    if total is None:
        return
    is_drbd_9 = (host.text("/sys/module/drbd/version") or "").startswith("9")
    finding = memory_finding(
        cluster,
        host.node_name(),
        total_bytes=int(total[1]) * 1024,
        bitmaps=bitmaps_per_replica(9 if is_drbd_9 else 8),
    )
    if finding is not None:
        yield finding


def _as_findings(error: SanctlError, subject: str) -> Iterator[Finding]:
    for problem in error.problems:
        yield Finding(
            code=problem.code,
            severity=Severity.CRITICAL,
            subject=subject,
            what=problem.text,
            do=problem.hint,
        )
