# SPDX-License-Identifier: GPL-2.0-or-later
"""Collects findings of `sanctl status`; own: quorum, failures, leftovers, pools.

Read from the CIB and Pacemaker's status alone. Every finding says what was observed and what to do
next. What is not known counts as not healthy.
"""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cib import MoveConstraint
from sanctl.model.cib_names import HOST_PREFIX, POOL_RESOURCE, REACH_RESOURCE, clone_id
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, Failure, NodeState, Role
from sanctl.model.device import DeviceSpec, Tombstone
from sanctl.model.findings import Finding, Severity, sorted_findings
from sanctl.model.topology import Topology
from sanctl.plan.cluster.preconditions import end_of_maintenance
from sanctl.plan.health.access_health import access_findings
from sanctl.plan.health.backup_health import backup_findings
from sanctl.plan.health.cache_health import dirty_limit_findings
from sanctl.plan.health.clock_health import clock_findings
from sanctl.plan.health.device_health import device_findings
from sanctl.plan.health.fencing_health import fencing_findings, reach_findings
from sanctl.plan.health.file_health import file_findings
from sanctl.plan.health.flash_health import flash_findings
from sanctl.plan.health.group_health import group_findings
from sanctl.plan.health.link_health import link_findings
from sanctl.plan.health.memory_health import memory_findings
from sanctl.plan.health.node_health import node_findings
from sanctl.plan.health.own_disk_health import own_disk_findings
from sanctl.plan.health.point_health import extent_findings, lost_point_findings
from sanctl.plan.health.release_health import release_findings
from sanctl.plan.health.schedule_health import hook_findings, schedule_findings
from sanctl.plan.health.site_health import site_findings
from sanctl.plan.health.space_health import space_findings
from sanctl.plan.health.vote_health import vote_findings
from sanctl.plan.health.watch_health import watch_findings

CRITICAL, WARNING, NOTE = Severity.CRITICAL, Severity.WARNING, Severity.NOTE


def all_findings(
    cluster: Cluster, topology: Topology | None, *, now_s: float
) -> tuple[Finding, ...]:
    """Return all findings, the worst first."""
    findings: list[Finding] = []
    findings.extend(_cluster_findings(cluster))
    findings.extend(fencing_findings(cluster))
    findings.extend(node_findings(cluster))
    findings.extend(release_findings(cluster))
    findings.extend(own_disk_findings(cluster))
    findings.extend(link_findings(cluster))
    findings.extend(clock_findings(cluster))
    findings.extend(file_findings(cluster))
    findings.extend(memory_findings(cluster))
    findings.extend(reach_findings(cluster))
    for device in cluster.cib.devices:
        findings.extend(device_findings(cluster, device, now_s=now_s))
    findings.extend(access_findings(cluster))
    findings.extend(group_findings(cluster))
    findings.extend(schedule_findings(cluster, now_s=now_s))
    findings.extend(hook_findings(cluster))
    findings.extend(lost_point_findings(cluster))
    findings.extend(extent_findings(cluster))
    findings.extend(backup_findings(cluster, now_s=now_s))
    findings.extend(site_findings(cluster, now_s=now_s))
    findings.extend(dirty_limit_findings(cluster))
    findings.extend(_failure_findings(cluster))
    findings.extend(_leftover_findings(cluster, now_s))
    if topology is not None:
        findings.extend(_pool_findings(cluster, topology, now_s))
        findings.extend(_topology_findings(cluster, topology))
        findings.extend(watch_findings(cluster, topology))
        findings.extend(vote_findings(cluster, topology))
    return sorted_findings(findings)


def _cluster_findings(cluster: Cluster) -> Iterator[Finding]:
    if not cluster.mon.has_dc:
        yield Finding(
            code="SAN-HLT-001",
            severity=CRITICAL,
            subject="cluster",
            what="no node coordinates the cluster",
            why="nothing is started, moved or fenced until the nodes have elected one",
            do="wait a few seconds; if it stays: 'journalctl -u corosync -u pacemaker'",
        )
    elif not cluster.mon.has_quorum:
        yield Finding(
            code="SAN-HLT-002",
            severity=CRITICAL,
            subject="cluster",
            what="this part of the cluster has no quorum",
            why="it serves nothing and changes nothing, so that another part can go on",
            do="bring nodes or their heartbeat links back; see 'corosync-quorumtool -s'. Switch no "
            "node off and confirm none: the other part may be serving",
        )
    if cluster.is_maintenance:
        yield Finding(
            code="SAN-HLT-003",
            severity=WARNING,
            subject="cluster",
            what="the cluster is in maintenance mode",
            why="Pacemaker neither moves devices nor repairs them, and looks at none: what is "
            "shown of them may be from before",
            do=end_of_maintenance(cluster),
        )
    if cluster.is_all_stopped:
        yield Finding(
            code="SAN-HLT-133",
            severity=CRITICAL,
            subject="cluster",
            what="Pacemaker is told to stop everything: stop-all-resources is set",
            why="no device is served or taken over, and no pool is watched",
            do="crm_attribute --name stop-all-resources --delete",
        )
    for identifier, reason in cluster.cib.unreadable:
        yield Finding(
            code="SAN-HLT-004",
            severity=CRITICAL,
            subject=f"device {identifier}",
            what=f"its entry in the CIB cannot be read: {reason}",
            why="sanctl cannot check a device whose entry it cannot read",
            do=f"cibadmin --query --xpath \"//primitive[@id='{identifier}']\"",
        )
    for name in cluster.cib.unreadable_hosts:
        yield Finding(
            code="SAN-HLT-095",
            severity=WARNING,
            subject=f"host {name}",
            what="its entry in the CIB cannot be read",
            why="its IQNs are not known: until they are no host can be changed, and no IQN given "
            "to a device (SAN-HOST-012)",
            do="upgrade sanctl on this node if a later release made it; else correct it: "
            f"cibadmin --query --xpath \"//nvpair[@name='{HOST_PREFIX}{name}']\"",
        )


#: Agents that only watch: the rollout gives them a failure-timeout.
_TRIED_AGAIN = frozenset({POOL_RESOURCE, REACH_RESOURCE})
#: By resource: the fields SANCTL_DEVICE and SANCTL_ACTION of what its agent logs.
_LOGGED_AS = {POOL_RESOURCE: ("pool", "pool"), REACH_RESOURCE: (REACH_RESOURCE, "reach")}
_POOL_REASONS = {
    "SAN-CMD-001": "drbdsetup is not installed (SAN-CMD-001)",
    "SAN-POOL-003": "its filesystem cannot be read, or is damaged (SAN-POOL-003)",
    "SAN-POOL-023": "its filesystem has shut itself down after an error of its disk (SAN-POOL-023)",
    "SAN-POOL-033": "another filesystem of the pool is mounted there, not the one in which it "
    "began (SAN-POOL-033)",
    "SAN-POOL-036": "its filesystem is mounted read-only (SAN-POOL-036)",
}
_POOL_ADVICE = {
    "SAN-CMD-001": "install the DRBD utilities there, or run the rollout again; what the node "
    "serves goes on, and cannot be moved or stopped until then",
    "SAN-POOL-003": "'journalctl SANCTL_ACTION=pool' there names the file and the error: "
    "docs/howto/night-page.md, SAN-POOL-003",
    "SAN-POOL-023": "the pool agent mounts it again once the disk answers and no device here is "
    "without another good replica: docs/howto/night-page.md, SAN-POOL-023",
    "SAN-POOL-033": "mount the right one: docs/howto/night-page.md, SAN-POOL-033",
    "SAN-POOL-036": "'journalctl -k' there says why; then remount it read-write: "
    "docs/howto/night-page.md, SAN-POOL-036",
}


#: Actions whose failure is over once the replica was promoted since: a promotion that DRBD refused,
#: a demotion that waited for frozen I/O while no node had quorum.
_OF_A_ROLE = frozenset({"promote", "demote"})


def _failure_findings(cluster: Cluster) -> Iterator[Finding]:
    promoted = {
        (instance.resource, instance.node)
        for instance in cluster.mon.instances
        if instance.role is Role.PROMOTED and not instance.is_failed
    }
    for failure in cluster.mon.failures:
        subject, look = _failed_resource(cluster, failure)
        cleanup = f"'crm_resource --cleanup --resource {failure.resource}'"
        what = f"{failure.action} failed on {failure.node}: {failure.reason or failure.status}"
        if failure.action in _OF_A_ROLE and (failure.resource, failure.node) in promoted:
            # Pacemaker would forget that the replica is Promoted, and probe it (docs/adr/0084).
            yield Finding(
                code="SAN-HLT-040",
                severity=NOTE,
                subject=subject,
                what=what,
                why=f"the replica on {failure.node} was promoted since, and serves",
                do=f"nothing while {failure.node} serves it; once another node does, {cleanup} "
                "clears the failure where it is not cleared by itself",
            )
            continue
        yield Finding(
            code="SAN-HLT-040",
            severity=WARNING,
            subject=subject,
            what=what,
            why="until Pacemaker starts it again, about two minutes after its last failure, nothing"
            " watches that node"
            if failure.resource in _TRIED_AGAIN
            else "Pacemaker may keep it from that node until the failure is cleared",
            do=f"{look}; then {cleanup}",
        )
    seen: set[tuple[str, str]] = set()
    for instance in cluster.mon.instances:
        if instance.is_orphaned and (instance.resource, instance.node) not in seen:
            seen.add((instance.resource, instance.node))
            yield Finding(
                code="SAN-HLT-041",
                severity=WARNING,
                subject=f"resource {instance.resource}",
                what=f"it still runs on {instance.node} and is in no configuration",
                why="it was removed while it ran; Pacemaker cannot stop it with its parameters",
                do=f"crm_resource --cleanup --resource {instance.resource} --node {instance.node}",
            )


def _failed_resource(cluster: Cluster, failure: Failure) -> tuple[str, str]:
    """Return what a resource is whose action failed, and where to see why."""
    name, node = failure.resource, failure.node
    if cluster.cib.device(name) is not None or name in dict(cluster.cib.unreadable):
        return f"device {name}", f"journalctl SANCTL_DEVICE={name} on {node}"
    fence = next((each for each in cluster.cib.fencing if each.id == name), None)
    if fence is not None:
        tests = "".join(f"; 'sanctl node fence {target} --test'" for target in fence.targets)
        return (
            f"fencing {name}",
            f"stonith_admin --history '*'; journalctl -t pacemaker-fenced on {node}{tests}",
        )
    if name in _LOGGED_AS:
        # '+' is an OR: what it does each monitor says the action alone.
        device, action = _LOGGED_AS[name]
        return (
            f"resource {name}",
            f"journalctl SANCTL_DEVICE={device} + SANCTL_ACTION={action} on {node}",
        )
    return f"resource {name}", f"journalctl -u pacemaker on {node}"


def _leftover_findings(cluster: Cluster, now_s: float) -> Iterator[Finding]:
    for move in cluster.cib.moves:
        running = not move.is_over(now_s)
        if not running:
            yield _expired_move(cluster, move)
            continue
        yield Finding(
            code="SAN-HLT-050",
            severity=NOTE,
            subject=f"device {move.device}",
            what=f"a move to {move.node or '?'} is under way, or was interrupted (until "
            f"{move.until})",
            why="while it holds, the device prefers that node over its replicas' condition",
            do="wait until its time is over, or for the command that makes it; the next 'sanctl "
            f"device move {move.device} --to NODE' removes what is left of it",
        )
    for stone in cluster.cib.tombstones:
        here = cluster.is_pool_agent_running(stone.node)
        yield Finding(
            code="SAN-HLT-051",
            severity=WARNING if here else NOTE,
            subject=f"device {stone.device}",
            what=f"{_gone(cluster, stone)}; its data on {stone.node} is still to be removed",
            why="" if here else "the node is absent and removes it when it is back",
            do=f"journalctl SYSLOG_IDENTIFIER=sanctl on {stone.node}" if here else "",
        )
    unread = {identifier for identifier, _ in cluster.cib.unreadable}
    for mark in cluster.cib.outdated:
        device = cluster.cib.device(mark.device)
        if mark.device in unread:
            # Perhaps of this device, which would be promoted there without it.
            continue
        if device is None or device.uuid != mark.uuid:
            yield Finding(
                code="SAN-HLT-053",
                severity=NOTE,
                subject=f"node {mark.node}",
                what=f"an outdated mark of a device {mark.device} that does not exist any more",
                do=f"cibadmin --delete --xpath \"//rsc_location[@id='{mark.constraint}']\""
                if mark.constraint
                else f"crm_attribute --node {mark.node} --delete "
                f"--name sanctl-outdated-{mark.device}",
            )
        elif cluster.mon.state(mark.node) in MEMBER_STATES:
            yield Finding(
                code="SAN-HLT-052",
                severity=WARNING,
                subject=f"device {mark.device}",
                what=f"the replica on {mark.node} is marked as outdated and may not serve",
                why="it missed writes while it was not connected, or is new and not filled yet",
                do="the mark is cleared when the resync has ended; if it stays: "
                f"journalctl SANCTL_DEVICE={mark.device} on {mark.node}",
            )


def _expired_move(cluster: Cluster, move: MoveConstraint) -> Finding:
    """Return SAN-HLT-050 of a constraint that has ended: it stays until it is removed."""
    device = cluster.cib.device(move.device)
    server = cluster.active_node(device.name) if device is not None else None
    return Finding(
        code="SAN-HLT-050",
        severity=NOTE,
        subject=f"device {move.device}",
        what=f"a move to {move.node or '?'} was interrupted; its constraint expired at "
        f"{move.until}, and is there still",
        why="it has no effect any more",
        do=f"'sanctl device move {move.device} --to {server}' removes it, and moves nothing"
        if server is not None
        else f"cibadmin --delete --xpath \"//rsc_location[@id='{clone_id(move.device)}-move']\"",
    )


def _gone(cluster: Cluster, stone: Tombstone) -> str:
    """Return what a tombstone is of: a deleted device, or a dropped replica of one."""
    device = cluster.cib.device(stone.device)
    if device is None or device.uuid != stone.value.partition(" ")[0]:
        return "deleted"
    if cluster.active_node(device.name) is None:
        return "a replica was dropped, and stays until another node serves"
    return "a replica was dropped"


def _pool_findings(cluster: Cluster, topology: Topology, now_s: float) -> Iterator[Finding]:
    if not cluster.cib.has_pools_clone:
        yield Finding(
            code="SAN-HLT-060",
            severity=CRITICAL,
            subject="pools",
            what="the CIB has no resource for the pool agents",
            why="free space is not known and deleted data is not removed",
            do="run the rollout again: it adds the clone sanctl-pools",
        )
    for pool in topology.pools:
        for node in pool.nodes:
            # In standby its agent is stopped on purpose.
            if cluster.mon.state(node) is not NodeState.ONLINE:
                yield from flash_findings(cluster, pool, node)
                continue
            subject = f"pool {pool.name} on {node}"
            usage = cluster.pool(pool.name, node)
            if usage is None or usage.error is not None:
                reason = (usage.error if usage else None) or "nothing has been published"
                yield Finding(
                    code="SAN-HLT-061",
                    severity=CRITICAL,
                    subject=subject,
                    what=f"it cannot be used: {_POOL_REASONS.get(reason, reason)}",
                    why="the replicas in it cannot be started",
                    do=_POOL_ADVICE.get(
                        reason, f"'sanctl doctor' on {node}; is {pool.path} mounted?"
                    ),
                )
                continue
            yield from flash_findings(cluster, pool, node)
            yield from space_findings(cluster, pool.name, node, usage, now_s=now_s)


def _topology_findings(cluster: Cluster, topology: Topology) -> Iterator[Finding]:
    members = {node.name for node in cluster.cib.nodes}
    stated = {node.name for node in topology.nodes}
    for name in sorted(members ^ stated):
        where, where_not = (
            ("the CIB", "cluster.toml")
            if name in members
            else (
                "cluster.toml",
                "the CIB",
            )
        )
        yield Finding(
            code="SAN-HLT-070",
            severity=WARNING,
            subject=f"node {name}",
            what=f"it is in {where} and not in {where_not}",
            why="sanctl and Pacemaker do not see the same cluster",
            do="run the rollout again, so that every node has the same cluster.toml",
        )
    for device in cluster.cib.devices:
        yield from _device_topology_findings(device, topology)


def _device_topology_findings(device: DeviceSpec, topology: Topology) -> Iterator[Finding]:
    pool = topology.pool(device.pool)
    if pool is None:
        yield Finding(
            code="SAN-HLT-071",
            severity=CRITICAL,
            subject=f"device {device.name}",
            what=f"its pool {device.pool} is not in cluster.toml",
            why="no node can start it",
            do="put the pool back into cluster.toml on every node",
        )
        return
    for node in device.nodes:
        if node not in pool.nodes:
            yield Finding(
                code="SAN-HLT-072",
                severity=CRITICAL,
                subject=f"device {device.name}",
                what=f"its replica's node {node} has no pool {device.pool} in cluster.toml",
                why="the replica cannot be started there",
                do="put the node back into the pool's nodes on every node",
            )
