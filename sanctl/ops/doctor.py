# SPDX-License-Identifier: GPL-2.0-or-later
"""The checks of `sanctl doctor`: services, kernel modules, files, clock, fencing devices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sanctl.drivers.node_facts import NodeFactsPort
from sanctl.drivers.stonith import StonithPort
from sanctl.errors import SanctlError
from sanctl.model.cluster import Cluster
from sanctl.model.drbd import bitmaps_per_replica
from sanctl.model.findings import Finding, Severity, sorted_findings
from sanctl.model.lost_link import LostLink
from sanctl.model.topology import NodeRole, Topology
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
from sanctl.plan.health.kernel_health import kernel_findings
from sanctl.plan.health.link_health import lost_link_findings
from sanctl.plan.health.lost_links import lost_links
from sanctl.plan.health.memory_health import memory_finding
from sanctl.plan.health.own_disk_health import (
    low_disk_finding,
    low_run_finding,
    unwritten_cib_finding,
)
from sanctl.plan.health.own_disk_limits import is_behind, is_low
from sanctl.plan.health.own_host_health import swap_findings
from sanctl.plan.health.update_health import unattended_update_finding

SECRET_PATH = "/etc/sanctl/drbd.secret"  # noqa: S105 - where it is, not what it is
AGENTS = (
    "/usr/lib/ocf/resource.d/sanctl/device",
    "/usr/lib/ocf/resource.d/sanctl/pool",
    "/usr/lib/ocf/resource.d/sanctl/reach",
    "/usr/lib/sanctl/program",
)
_MUST_RUN = ("corosync.service", "pacemaker.service")
# Pulls Corosync in, which need not be enabled itself.
_STARTED_AT_BOOT = "pacemaker.service"
# Units that act at an orderly shutdown: the first stops before Pacemaker, the second after.
# Units that are active on each storage node: the finding, their names, what it means where not.
_ACTIVE_UNITS = (
    (
        "SAN-DOC-005",
        ("sanctl-drain.service", "sanctl-replicas.service"),
        "it acts when the node stops: without it a reboot is a long pause, or a crash",
    ),
    (
        "SAN-DOC-006",
        ("sanctl-actions.service",),
        "each action starts an interpreter of its own: right, but several times slower",
    ),
)
# Of a storage node that is a host itself (docs/adr/0086).
_OWN_HOST_UNITS = ("sanctl-logins.service", "sanctl-paths.service")
# Either unit restores a stored target configuration over sanctl's at boot, and clears it at
# shutdown.
_MUST_NOT_RUN = ("target.service", "rtslib-fb-targetctl.service")
_MODULES = {
    "drbd": "keeps the replicas in step",
    "target_core_mod": "serves devices to hosts",
    "iscsi_target_mod": "serves devices over iSCSI",
    "dm_mod": "holds a target still while the device below it moves",
    "loop": "makes block devices of the pool's files",
}

#: A change of the CIB is on the disk of each node by then, if it is written at all.
_CIB_WRITTEN_WITHIN_S = 10.0
#: Corosync shows the second link of a node that has just come up some moments after the first.
_LINK_IS_UP_WITHIN_S = 3.0

_APT_FOLDER, _APT_FILE = "/etc/apt/apt.conf.d", "/etc/apt/apt.conf"
_DPKG_STATUS = "/var/lib/dpkg/status"

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
    topology: Topology | None,
    config_error: SanctlError | None,
) -> Examination:
    """Make all checks; one that cannot be made is itself a finding.

    Every fencing device that this node may use is asked for its status, now and from this node: a
    monitor that succeeded some time ago on another node is not enough.
    """
    findings: list[Finding] = []
    if config_error is not None:
        findings.extend(_as_findings(config_error, "cluster.toml"))
    node = topology.node(host.node_name()) if topology is not None else None
    is_storage = node is not None and node.role is NodeRole.STORAGE
    is_witness = node is not None and node.role is NodeRole.WITNESS
    # A witness has no targets; a machine of unknown role may have some.
    findings.extend(_service_findings(host, () if is_witness else _MUST_NOT_RUN))
    findings.extend(_update_findings(host))
    if is_storage:
        findings.extend(_inactive_unit_findings(host))
        findings.extend(_own_host_findings(host))
        findings.extend(_kernel_findings(host))
        findings.extend(_newer_kernel_findings(host))
        findings.extend(_file_findings(host))
    if topology is not None:
        findings.extend(_own_pool_findings(host, topology))
        if node is None:
            findings.append(
                Finding(
                    code="SAN-DOC-024",
                    severity=Severity.WARNING,
                    subject=f"node {host.node_name()}",
                    what="this machine is not in its own cluster.toml",
                    why="its role is not known, so checks of a storage node are left out",
                    do="name the node in the inventory as 'uname -n' prints it, then roll out",
                )
            )
    findings.extend(_clock_findings(host))
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


def _service_findings(host: NodeFactsPort, must_not_run: tuple[str, ...]) -> Iterator[Finding]:
    units = host.units((*_MUST_RUN, *must_not_run))
    if units is None:
        yield Finding(
            code="SAN-DOC-004",
            severity=Severity.WARNING,
            subject="services",
            what="systemd does not report which services run",
            do="see whether 'systemctl status' answers on this node",
        )
        return
    for name in _MUST_RUN:
        unit = units.get(name)
        if unit is None or unit.active != "active":
            yield Finding(
                code="SAN-DOC-001",
                severity=Severity.CRITICAL,
                subject=name,
                what=f"the service is {unit.active if unit else '?'} on this node",
                why="without this service the node is not part of the cluster",
                do=f"systemctl start {name}; 'journalctl -u {name}' if it fails",
            )
        elif name == _STARTED_AT_BOOT and unit.enabled not in {
            "enabled",
            "enabled-runtime",
            "?",
            "",
        }:
            yield Finding(
                code="SAN-DOC-002",
                severity=Severity.WARNING,
                subject=name,
                what=f"the service is {unit.enabled}: it will not start at boot",
                why="the node stays away from the cluster after a restart",
                do=f"systemctl enable {name}, unless the node is to stay out after a boot",
            )
    for name in must_not_run:
        unit = units.get(name)
        if unit is not None and unit.load not in {"masked", "not-found"}:
            yield Finding(
                code="SAN-DOC-003",
                severity=Severity.CRITICAL,
                subject=name,
                what="the service is not masked on this node",
                why="at boot it restores old iSCSI targets, at shutdown it removes live ones",
                do=f"systemctl mask {name}",
            )


def _update_findings(host: NodeFactsPort) -> Iterator[Finding]:
    found = unattended_update_finding(
        host.folder_texts(_APT_FOLDER), host.text(_APT_FILE) or "", host.text(_DPKG_STATUS) or ""
    )
    if found is not None:
        yield found


def _inactive_unit_findings(host: NodeFactsPort) -> Iterator[Finding]:
    for code, names, why in _ACTIVE_UNITS:
        for name, unit in (host.units(names) or {}).items():
            if unit.active != "active":
                yield Finding(
                    code=code,
                    severity=Severity.WARNING,
                    subject=name,
                    what=f"the unit is {unit.active} on this node",
                    why=why,
                    do=f"systemctl start {name}; if there is no such unit, run the rollout again",
                )


def _own_host_findings(host: NodeFactsPort) -> Iterator[Finding]:
    """Look at a storage node that is a host itself, by the units that the rollout gives it."""
    for name, unit in (host.units(_OWN_HOST_UNITS) or {}).items():
        # Started, it waits a minute at most for its disks. One that fails is started again.
        waits = unit.active == "activating" and unit.sub != "auto-restart"
        if unit.load == "loaded" and unit.active != "active" and not waits:
            yield Finding(
                code="SAN-DOC-008",
                severity=Severity.WARNING,
                subject=name,
                what=f"the unit is {unit.active} on this node, which is a host itself",
                why="nothing logs in after a boot, or sessions end in no order when the node stops",
                do=f"systemctl start {name}",
            )
    yield from swap_findings(
        host.text("/proc/swaps") or "",
        host.text("/proc/self/mounts") or "",
        lambda name: host.text(f"/sys/class/block/{name}/dm/uuid"),
    )


def _kernel_findings(host: NodeFactsPort) -> Iterator[Finding]:
    for module, purpose in _MODULES.items():
        if not host.has_module(module):
            yield Finding(
                code="SAN-DOC-010",
                severity=Severity.CRITICAL,
                subject=f"kernel module {module}",
                what="the module is not loaded on this node",
                why=f"the module {purpose}",
                do=f"modprobe {module}; after a rollout it is loaded at boot",
            )


def _newer_kernel_findings(host: NodeFactsPort) -> Iterator[Finding]:
    version = host.text("/sys/module/drbd/version")
    running = (host.text("/proc/sys/kernel/osrelease") or "").strip()
    # Of a node whose running kernel has none that is said, and which one it needs is not known.
    if version is not None and running:
        yield from kernel_findings(
            running, host.kernel_modules(), is_drbd_9=version.startswith("9")
        )


def _file_findings(host: NodeFactsPort) -> Iterator[Finding]:
    mode = host.mode(SECRET_PATH)
    if mode is None:
        yield Finding(
            code="SAN-DOC-020",
            severity=Severity.CRITICAL,
            subject=SECRET_PATH,
            what="the file is missing on this node",
            why="replicas cannot authenticate to each other, and do not connect",
            do="run the rollout again",
        )
    elif mode & 0o077 or host.owner(SECRET_PATH) != 0:
        yield Finding(
            code="SAN-DOC-021",
            severity=Severity.CRITICAL,
            subject=SECRET_PATH,
            what=f"users other than root can read the file (mode {mode:04o})",
            why="with this secret any machine can pose as a replica",
            do=f"chown root:root {SECRET_PATH} && chmod 0600 {SECRET_PATH}",
        )
    for path in AGENTS:
        agent_mode = host.mode(path)
        if agent_mode is None or not agent_mode & 0o100:
            yield Finding(
                code="SAN-DOC-022",
                severity=Severity.CRITICAL,
                subject=path,
                what="the resource agent is missing on this node, or not executable",
                why="Pacemaker cannot start devices on this node without the agent",
                do="run the rollout again",
            )


def _own_pool_findings(host: NodeFactsPort, topology: Topology) -> Iterator[Finding]:
    for pool in topology.pools:
        if host.node_name() not in {node.value for node in pool.nodes}:
            continue
        marker = f"{pool.path}/.sanctl-pool"
        text = host.text(marker)
        if text is None:
            yield Finding(
                code="SAN-DOC-040",
                severity=Severity.CRITICAL,
                subject=f"pool {pool.name}",
                what=f"{marker} is missing on this node",
                why="the pool's filesystem is not mounted: an empty directory is not a pool",
                do=f"mount {pool.path}; 'findmnt {pool.path}' shows which filesystem is there",
            )
        elif text.strip() != pool.uuid:
            yield Finding(
                code="SAN-DOC-041",
                severity=Severity.CRITICAL,
                subject=f"pool {pool.name}",
                what=f"{marker} on this node names another pool",
                why="another filesystem is mounted there; sanctl writes nothing to it",
                do=f"mount the pool's own filesystem at {pool.path}",
            )


def _clock_findings(host: NodeFactsPort) -> Iterator[Finding]:
    if host.is_clock_synchronised() is False:
        yield Finding(
            code="SAN-DOC-030",
            severity=Severity.NOTE,
            subject="clock",
            what="no time service synchronizes this node's clock",
            why="logs of several nodes do not line up; a move's constraint expires by the clock",
            do="install chrony or enable systemd-timesyncd on every node",
        )
