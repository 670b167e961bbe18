# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks of `sanctl doctor` on this node alone: services, kernel, files, pools' markers, clock."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.drivers.node_facts import NodeFactsPort
from sanctl.model.findings import Finding, Severity
from sanctl.model.topology import NodeRole, Topology
from sanctl.plan.health.kernel_health import kernel_findings
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
# Units that are active on each storage node: the finding, their names, what it means where not.
# Of the first two, which act at an orderly shutdown, one stops before Pacemaker, the other after.
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

_APT_FOLDER, _APT_FILE = "/etc/apt/apt.conf.d", "/etc/apt/apt.conf"
_DPKG_STATUS = "/var/lib/dpkg/status"


def this_node_findings(host: NodeFactsPort, topology: Topology | None) -> Iterator[Finding]:
    """Return what this node's own files, services and kernel say, whatever the cluster is like.

    Args:
        host: the facts of this node.
        topology: cluster.toml as this node has it; None: the file cannot be read.
    """
    node = topology.node(host.node_name()) if topology is not None else None
    # A witness has no targets; a machine of unknown role may have some.
    is_witness = node is not None and node.role is NodeRole.WITNESS
    yield from _service_findings(host, () if is_witness else _MUST_NOT_RUN)
    yield from _update_findings(host)
    if node is not None and node.role is NodeRole.STORAGE:
        yield from _inactive_unit_findings(host)
        yield from _own_host_findings(host)
        yield from _kernel_findings(host)
        yield from _newer_kernel_findings(host)
        yield from _file_findings(host)
    if topology is not None:
        yield from _own_pool_findings(host, topology)
        if node is None:
            yield Finding(
                code="SAN-DOC-024",
                severity=Severity.WARNING,
                subject=f"node {host.node_name()}",
                what="this machine is not in its own cluster.toml",
                why="its role is not known, so checks of a storage node are left out",
                do="name the node in the inventory as 'uname -n' prints it, then roll out",
            )
    yield from _clock_findings(host)


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
