# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks this node and the cluster: what is wrong, why it matters, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sanctl.drivers.node_facts import HostPort
from sanctl.drivers.stonith import StonithPort
from sanctl.errors import SanctlError
from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity, sorted_findings
from sanctl.model.topology import Role, Topology
from sanctl.ops.fencing import ask_devices, silent
from sanctl.ops.session import Session
from sanctl.plan.health.cluster_health import judge

SECRET_PATH = "/etc/sanctl/drbd.secret"  # noqa: S105 - where it is, not what it is
AGENTS = ("/usr/lib/ocf/resource.d/sanctl/device", "/usr/lib/ocf/resource.d/sanctl/pool")
_MUST_RUN = ("corosync.service", "pacemaker.service")
# Pulls Corosync in, which need not be enabled itself.
_STARTED_AT_BOOT = "pacemaker.service"
# What makes a shutdown of this node one in order: stopped before, and after, Pacemaker.
_ACT_AT_STOP = ("sanctl-drain.service", "sanctl-replicas.service")
# Either would restore a stored target configuration over ours at boot, and clear it at shutdown.
_MUST_NOT_RUN = ("target.service", "rtslib-fb-targetctl.service")
_MODULES = {
    "drbd": "keeps the replicas in step",
    "target_core_mod": "serves devices to hosts",
    "iscsi_target_mod": "serves devices over iSCSI",
    "dm_mod": "holds a target still while the device below it moves",
    "loop": "makes block devices of the pool's files",
}

_CHECKS = (
    ("services", ("SAN-DOC-00",)),
    ("kernel", ("SAN-DOC-01",)),
    ("files", ("SAN-DOC-02",)),
    ("clock", ("SAN-DOC-03",)),
    ("cluster", ("SAN-HLT-00", "SAN-CLU-", "SAN-CIB-")),
    ("votes", ("SAN-HLT-08",)),
    ("fencing", ("SAN-HLT-01", "SAN-FEN-")),
    ("nodes", ("SAN-HLT-02",)),
    ("pools", ("SAN-HLT-06", "SAN-DOC-04")),
    ("devices", ("SAN-HLT-03", "SAN-HLT-04")),
    ("leftovers", ("SAN-HLT-05",)),
    ("cluster.toml", ("SAN-HLT-07", "SAN-CONF-")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All findings, and for each check by name how many of them are its own."""

    findings: tuple[Finding, ...]
    checks: tuple[tuple[str, int | None], ...]
    """None: the check could not be made."""


def examine(
    session: Session,
    host: HostPort,
    stonith: StonithPort,
    topology: Topology | None,
    config_error: SanctlError | None,
) -> Examination:
    """Make all checks; one that cannot be made is itself a finding.

    Every fencing device that this node may use is asked for its status, now and from here: that
    the cluster has not complained since it last asked, from some other node, is not enough.
    """
    findings: list[Finding] = []
    if config_error is not None:
        findings.extend(_as_findings(config_error, "cluster.toml"))
    node = topology.node(host.node_name()) if topology is not None else None
    is_storage = node is not None and node.role is Role.STORAGE
    is_witness = node is not None and node.role is Role.WITNESS
    # A witness has no targets; of a machine of unknown role the worst is assumed.
    findings.extend(_service_findings(host, () if is_witness else _MUST_NOT_RUN))
    if is_storage:
        findings.extend(_stop_findings(host))
        findings.extend(_kernel_findings(host))
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
                    why="its role, and so what it must have, is not known",
                    do="the names in cluster.toml are what 'uname -n' prints on each node",
                )
            )
    findings.extend(_clock_findings(host))
    unmade = set() if topology is not None else {"votes", "pools", "kernel", "files"}
    cluster: Cluster | None = None
    try:
        cluster = session.observe()
    except SanctlError as error:
        findings.extend(_as_findings(error, "cluster"))
        unmade |= {"votes", "fencing", "nodes", "devices", "leftovers", "pools"}
    if cluster is not None:
        findings.extend(judge(cluster, topology, now_s=session.clock.wall_s()))
        try:
            findings.extend(silent(ask_devices(stonith, cluster)))
        except SanctlError as error:
            findings.extend(_as_findings(error, "fencing"))
            unmade.add("fencing")
    return Examination(
        findings=sorted_findings(findings),
        checks=tuple(
            (name, None if name in unmade else _count(findings, prefixes))
            for name, prefixes in _CHECKS
        ),
    )


def _count(findings: list[Finding], prefixes: tuple[str, ...]) -> int:
    return sum(
        1
        for finding in findings
        if finding.code.startswith(prefixes) and finding.severity is not Severity.NOTE
    )


def _as_findings(error: SanctlError, subject: str) -> Iterator[Finding]:
    for problem in error.problems:
        yield Finding(
            code=problem.code,
            severity=Severity.CRITICAL,
            subject=subject,
            what=problem.text,
            do=problem.hint,
        )


def _service_findings(host: HostPort, must_not_run: tuple[str, ...]) -> Iterator[Finding]:
    units = host.units((*_MUST_RUN, *must_not_run))
    if units is None:
        yield Finding(
            code="SAN-DOC-004",
            severity=Severity.WARNING,
            subject="services",
            what="systemd does not say which services run",
            do="'systemctl status' on this node",
        )
        return
    for name in _MUST_RUN:
        unit = units.get(name)
        if unit is None or unit.active != "active":
            yield Finding(
                code="SAN-DOC-001",
                severity=Severity.CRITICAL,
                subject=name,
                what=f"it is {unit.active if unit else '?'} on this node",
                why="without it the node is no part of the cluster",
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
                severity=Severity.NOTE,
                subject=name,
                what=f"it is {unit.enabled}: it will not start at boot",
                why="the node stays away from the cluster after a restart",
                do=f"systemctl enable {name}, unless that is meant",
            )
    for name in must_not_run:
        unit = units.get(name)
        if unit is not None and unit.load not in {"masked", "not-found"}:
            yield Finding(
                code="SAN-DOC-003",
                severity=Severity.CRITICAL,
                subject=name,
                what="it is not masked on this node",
                why="at boot it restores old targets over ours, at shutdown it removes live ones",
                do=f"systemctl mask {name}",
            )


def _stop_findings(host: HostPort) -> Iterator[Finding]:
    units = host.units(_ACT_AT_STOP) or {}
    for name, unit in units.items():
        if unit.active != "active":
            yield Finding(
                code="SAN-DOC-005",
                severity=Severity.WARNING,
                subject=name,
                what=f"it is {unit.active} on this node",
                why="it acts when the node stops: a reboot would be a longer pause, or a crash",
                do=f"systemctl start {name}; if there is no such unit, run the rollout again",
            )


def _kernel_findings(host: HostPort) -> Iterator[Finding]:
    for module, purpose in _MODULES.items():
        if not host.has_module(module):
            yield Finding(
                code="SAN-DOC-010",
                severity=Severity.CRITICAL,
                subject=f"kernel module {module}",
                what="it is not loaded on this node",
                why=f"it {purpose}",
                do=f"modprobe {module}; the rollout has it loaded at boot",
            )


def _file_findings(host: HostPort) -> Iterator[Finding]:
    mode = host.mode(SECRET_PATH)
    if mode is None:
        yield Finding(
            code="SAN-DOC-020",
            severity=Severity.CRITICAL,
            subject=SECRET_PATH,
            what="it is missing on this node",
            why="replicas cannot prove to each other who they are, and do not connect",
            do="run the rollout again",
        )
    elif mode & 0o077 or host.owner(SECRET_PATH) != 0:
        yield Finding(
            code="SAN-DOC-021",
            severity=Severity.CRITICAL,
            subject=SECRET_PATH,
            what=f"others than root can read it (mode {mode:04o})",
            why="whoever has it can pose as a replica",
            do=f"chown root:root {SECRET_PATH} && chmod 0600 {SECRET_PATH}",
        )
    for path in AGENTS:
        agent_mode = host.mode(path)
        if agent_mode is None or not agent_mode & 0o100:
            yield Finding(
                code="SAN-DOC-022",
                severity=Severity.CRITICAL,
                subject=path,
                what="the resource agent is missing, or may not be executed",
                why="Pacemaker can start nothing here without it",
                do="run the rollout again",
            )


def _own_pool_findings(host: HostPort, topology: Topology) -> Iterator[Finding]:
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
                why="the pool's file system is not mounted: an empty folder is not a pool",
                do=f"mount {pool.path}; 'findmnt {pool.path}' shows what is there",
            )
        elif text.strip() != pool.uuid:
            yield Finding(
                code="SAN-DOC-041",
                severity=Severity.CRITICAL,
                subject=f"pool {pool.name}",
                what=f"{marker} on this node names another pool",
                why="another file system is mounted there; nothing is to be written to it",
                do=f"mount the right one at {pool.path}",
            )


def _clock_findings(host: HostPort) -> Iterator[Finding]:
    if host.is_clock_synchronised() is False:
        yield Finding(
            code="SAN-DOC-030",
            severity=Severity.NOTE,
            subject="clock",
            what="no time service keeps this node's clock",
            why="logs of several nodes do not line up, and a move's expiry is read off the clock",
            do="install chrony or enable systemd-timesyncd on every node",
        )
