# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on one device: unserved, diverged, blocked, degraded, frozen, verify differences."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.drbd import uses_quorum
from sanctl.model.findings import Finding, Severity, unsynced_text
from sanctl.model.meta_attribute import deletions
from sanctl.model.names import NodeName
from sanctl.plan.cluster.preconditions import other_part_advice, start_command
from sanctl.plan.health.answered_health import answered_findings
from sanctl.plan.health.cache_health import device_cache_findings
from sanctl.plan.health.connect_wait import connect_wait
from sanctl.plan.health.constraint_health import constraint_findings, tie_findings
from sanctl.plan.health.dropped_disk_health import dropped_disk_findings, retry_advice
from sanctl.plan.health.growth_health import growth_findings
from sanctl.plan.health.hold_health import hold_findings
from sanctl.plan.health.hold_node_health import hold_node_findings
from sanctl.plan.health.hung_io_health import hung_io_findings
from sanctl.plan.health.release_health import needs_findings
from sanctl.plan.health.restore_health import restore_findings
from sanctl.plan.health.verify_health import verify_findings
from sanctl.plan.health.waiting_health import waiting_findings
from sanctl.plan.replicas.diagnosis import NO_DATA, Condition, diagnose, drained_text
from sanctl.plan.replicas.pending_change import replica_count_mismatch

CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING
# The text for what is not known.
_UNSET = "?"


def device_findings(cluster: Cluster, device: DeviceSpec, *, now_s: float) -> Iterator[Finding]:
    """Return what is wrong with one device, from the CIB and Pacemaker's status alone.

    `now_s` is in seconds since 1970. Texts depend on it, codes and severities do not.
    """
    subject = f"device {device.name}"
    active = cluster.mon.active_nodes(device.name)
    if device.is_stopping and not device.is_deleting:
        yield Finding(
            code="SAN-HLT-166",
            severity=CRITICAL,
            subject=subject,
            what="it is stopped, and not by a deletion: Pacemaker is told to serve it nowhere",
            why="somebody has disabled it (target-role=Stopped), or a restart of it broke off",
            do=f"start it again: '{start_command(device.name)}'",
        )
        return
    if device.is_deleting:
        yield Finding(
            code="SAN-HLT-030",
            severity=WARNING,
            subject=subject,
            what="it is stopped: its deletion was begun and not finished",
            do=f"finish it with 'sanctl device delete {device.name}', or undo it with "
            f"'{start_command(device.name)}'",
        )
        return
    if len(active) > 1:
        yield Finding(
            code="SAN-HLT-031",
            severity=CRITICAL,
            subject=subject,
            what=f"Pacemaker shows it active on {' and '.join(active)} at once",
            why="two nodes that write to one device destroy its data",
            do="stop the hosts' writes, save both replicas, then see 'drbdadm status' on each node",
        )
    elif not active and (server := cluster.serving_node(device.name)):
        yield Finding(
            code="SAN-HLT-149",
            severity=WARNING,
            subject=subject,
            what=f"its replica on {server} says that it serves, and Pacemaker shows a standby",
            why="so it is for a moment after a change of the device, in a move, and in maintenance",
            do="look again after some seconds; if it stays: 'crm_mon -1', and on "
            f"{server} 'journalctl SANCTL_DEVICE={device.name}'",
        )
    elif not active:
        yield Finding(
            code="SAN-HLT-032",
            severity=CRITICAL,
            subject=subject,
            what=f"no node serves it ({_replica_summary(cluster, device)})",
            why="hosts that use it wait, then get errors",
            do=_next_for_unserved(cluster, device),
        )
        blocked = diagnose(cluster, device)
        if blocked.condition is Condition.BLOCKED:
            yield Finding(
                code="SAN-HLT-037",
                severity=CRITICAL,
                subject=subject,
                what="no replica may be served: each is behind, marked as outdated, absent, "
                "without a majority, or has never connected to the absent one",
                why="stale data is never served by itself: writes would be lost silently",
                do="wait half a minute: all are in sync, and an agent removes one mark by itself"
                if blocked.unmarks_itself
                else (
                    _next_for_missed_drop(cluster, device)
                    or _next_for_lost_disks(cluster, device)
                    or "bring back the node that served it last"
                )
                + f"; if that is impossible: 'sanctl device heal {device.name}'",
            )
    yield from hung_io_findings(cluster, device)
    yield from answered_findings(cluster, device)
    yield from restore_findings(cluster, device)
    yield from hold_findings(cluster, device)
    yield from hold_node_findings(cluster, device)
    yield from needs_findings(cluster, device)
    yield from waiting_findings(cluster, device)
    yield from dropped_disk_findings(cluster, device, now_s=now_s)
    if not device.is_managed:
        yield Finding(
            code="SAN-HLT-033",
            severity=WARNING,
            subject=subject,
            what=f"it is unmanaged, by {' and '.join(each.text for each in device.unmanaged_by)}",
            why="Pacemaker would not take it over when its node fails",
            do=f"let Pacemaker manage it again: {deletions(device.unmanaged_by)}",
        )
    elif not cluster.is_maintenance:
        yield from _unmanaged_replica_findings(cluster, device)
    yield from constraint_findings(cluster, device)
    yield from tie_findings(cluster, device)
    condition = diagnose(cluster, device).condition
    if condition in {Condition.DIVERGED, Condition.UNRELATED}:
        yield Finding(
            code="SAN-HLT-038",
            severity=WARNING,
            subject=subject,
            what="its replicas have diverged and refuse each other",
            why="each has writes that the other lacks; one of them will have to be given up",
            do=f"'sanctl device heal {device.name}' shows what each has",
        )
        return
    miscount = replica_count_mismatch(device)
    if miscount is not None:
        yield Finding(
            code="SAN-HLT-056",
            severity=WARNING,
            subject=subject,
            what=f"a change of its replicas is not finished: {miscount[0]}",
            do=miscount[1],
        )
    yield from _replica_findings(cluster, device, now_s)
    yield from verify_findings(cluster, device, now_s=now_s)
    yield from _secret_findings(cluster, device)
    yield from growth_findings(cluster, device)
    yield from device_cache_findings(cluster, device)


def _unmanaged_replica_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Yield where Pacemaker itself says so, and no attribute or maintenance that is known."""
    for each in cluster.mon.instances_of(device.name):
        state = cluster.mon.state(each.node)
        if each.is_managed or state not in MEMBER_STATES or state is NodeState.MAINTENANCE:
            continue
        yield Finding(
            code="SAN-HLT-150",
            severity=WARNING,
            subject=f"device {device.name}",
            what=f"Pacemaker does not manage its replica on {each.node}",
            why="it neither starts nor stops it there, and does not take the device over",
            do=f"after a failed action: 'crm_resource --cleanup --resource {device.name}'; else "
            "see 'cibadmin --query --scope rsc_defaults' for a rule, and 'crm_mon -1'",
        )


def _secret_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    for node in device.nodes:
        for host in cluster.replica(device.name, node).hosts_without_secret:
            yield Finding(
                code="SAN-HLT-094",
                severity=WARNING,
                subject=f"device {device.name}",
                what=f"host {host} cannot log in on {node}: its CHAP secret cannot be used there",
                why="it has one path less, and none when the device moves there; without the "
                "secret it is not let in",
                do=f"put it into sanctl_host_secrets and run the playbook; journalctl "
                f"SANCTL_DEVICE={device.name} SANCTL_ACTION=access-list on {node} says what is "
                f"wrong with /etc/sanctl/hosts/{host}",
            )
    # Where a change of the hosts is on its way, nodes have other hosts for a moment, too.
    by_access: dict[str | None, dict[str, list[NodeName]]] = {}
    for node in device.nodes:
        replica = cluster.replica(device.name, node)
        if replica.secrets_digest and cluster.mon.state(node) in MEMBER_STATES:
            alike = by_access.setdefault(replica.access, {})
            alike.setdefault(replica.secrets_digest, []).append(node)
    for alike in by_access.values():
        if len(alike) > 1:
            groups = sorted(" and ".join(map(str, nodes)) for nodes in alike.values())
            yield Finding(
                code="SAN-HLT-129",
                severity=WARNING,
                subject=f"device {device.name}",
                what=f"the CHAP secrets of its hosts differ: {', another on '.join(groups)}",
                why="a node that missed a change lets hosts in by the old secret, and refuses the "
                "new one: hosts lose that path, and all when the device moves there",
                do="run the playbook for these nodes, before the device moves to the one that was "
                "away",
            )


def _replica_findings(cluster: Cluster, device: DeviceSpec, now_s: float) -> Iterator[Finding]:
    for node in device.nodes:
        subject = f"device {device.name}"
        state = cluster.mon.state(node)
        if state not in MEMBER_STATES:
            yield Finding(
                code="SAN-HLT-034",
                severity=WARNING,
                subject=subject,
                what=f"replica on {node}: unknown, the node is {state.value}",
                why="one replica less protects the data",
                do=f"bring {node} back; it resyncs by itself"
                if cluster.mon.has_quorum
                else other_part_advice([node]),
            )
            continue
        replica = cluster.replica(device.name, node)
        if replica.is_frozen:
            yield Finding(
                code="SAN-HLT-036",
                severity=CRITICAL,
                subject=subject,
                what=f"its I/O on {node} is frozen ({replica.suspended})",
                why="it is not certain yet that no other node may serve it; no write is answered",
                do=f"journalctl SANCTL_DEVICE={device.name} SANCTL_ACTION=fence-peer on {node} "
                "says what it waits for: most often for a node to be fenced",
            )
        if replica.is_up_to_date and (replica.is_connected or len(device.nodes) == 1):
            continue
        if state is NodeState.STANDBY:
            continue  # a finding of the node, not of each of its replicas
        there = [o for o in device.nodes if o != node and cluster.mon.state(o) in MEMBER_STATES]
        has_all = replica.peers and replica.is_connected_with(there)
        if replica.is_up_to_date and (has_all or not there):
            continue  # connected to every present peer; absent peers have their own finding
        unsynced_bytes = (replica.out_of_sync_kib or 0) * 1024
        if replica.disk is None:
            what, do = (
                f"replica on {node}: unknown, its agent has published nothing",
                f"journalctl SANCTL_DEVICE={device.name} on {node}",
            )
        elif not replica.is_connected:
            wait = connect_wait(cluster, device, now_s=now_s)
            what, do = (
                f"replica on {node} is {replica.disk} and not connected ({replica.link or _UNSET})",
                "check the sync network and the other node; it reconnects by itself",
            )
            if wait is not None:
                what, do = f"{what}: {wait.what}", wait.do
        elif replica.disk == "Diskless":
            unsynced_bytes = 0
            what, do = (
                f"replica on {node} has no disk: DRBD dropped it at an error",
                f"check the disk (journalctl -k on {node}); {retry_advice(node)}; the device is "
                "served meanwhile",
            )
        else:
            what, do = (
                f"replica on {node} is {replica.disk} ({replica.link})",
                "wait for the resync to end; the device is served meanwhile",
            )
        yield Finding(
            code="SAN-HLT-035",
            severity=WARNING,
            subject=subject,
            what=what + unsynced_text(unsynced_bytes),
            unsynced_bytes=unsynced_bytes,
            why="one replica less protects the data",
            do=do,
        )


def _replica_summary(cluster: Cluster, device: DeviceSpec) -> str:
    return ", ".join(
        f"{node} {cluster.replica(device.name, node).disk or _UNSET}"
        + (", marked as outdated" if cluster.is_marked(device, node) else "")
        if cluster.mon.state(node) in MEMBER_STATES
        else f"{node} {cluster.mon.state(node).value}"
        for node in device.nodes
    )


def _next_for_unserved(cluster: Cluster, device: DeviceSpec) -> str:
    away = [n for n in device.nodes if cluster.mon.state(n) not in MEMBER_STATES]
    if not cluster.mon.has_quorum:
        # Fencing and heal are for the part that has quorum, which this one does not see.
        return other_part_advice(away) if away else "there is no quorum: SAN-HLT-002 comes first"
    unclean = [n for n in device.nodes if cluster.mon.state(n) is NodeState.UNCLEAN]
    if unclean:
        return (
            f"fencing of {unclean[0]} must succeed first: 'stonith_admin --history {unclean[0]}'; "
            f"if it cannot, switch it off, then 'sanctl node confirm-off {unclean[0]}'"
        )
    if device.unpromoted_by:
        return (
            f"it is told not to serve, by {' and '.join(e.text for e in device.unpromoted_by)}: "
            f"{deletions(device.unpromoted_by)} ends that"
        )
    missed = _next_for_missed_drop(cluster, device)
    if missed:
        return f"{missed}; if that is impossible: 'sanctl device heal {device.name}'"
    good = [
        node
        for node in device.nodes
        if cluster.mon.state(node) in MEMBER_STATES
        and cluster.replica(device.name, node).is_up_to_date
    ]
    without_disk = [
        node
        for node in device.nodes
        if good
        and cluster.mon.state(node) in MEMBER_STATES
        and cluster.replica(device.name, node).disk == "Diskless"
    ]
    if without_disk:
        return (
            f"the disk on {without_disk[0]} may have newer data than {good[0]}: journalctl "
            f"SANCTL_DEVICE={device.name} on {without_disk[0]} says why it is not attached; see "
            "docs/howto/night-page.md, 'Both disks were lost'"
        )
    may_serve = [
        node
        for node in good
        if not cluster.is_marked(device, node) and not cluster.replica(device.name, node).is_suspect
    ]
    lacking = [node for node in may_serve if cluster.replica(device.name, node).lacks]
    if lacking and lacking == may_serve:
        return f"update sanctl on {lacking[0]}: its release does not know what the device needs"
    if may_serve and cluster.cib.drained.issuperset(node.value for node in may_serve):
        return drained_text(may_serve[0])
    suspect = [node for node in good if cluster.replica(device.name, node).is_suspect]
    if suspect and not may_serve:
        absent = [n for n in device.nodes if cluster.mon.state(n) not in MEMBER_STATES]
        first = f"bring {' and '.join(map(str, absent))} back; else: " if absent else ""
        return (
            f"{first}the replica on {suspect[0]} is suspect, and not promoted by itself: 'sanctl "
            f"device heal {device.name}' says what it may lack"
        )
    if good:
        return (
            f"{(may_serve or good)[0]} has the data: journalctl SANCTL_DEVICE={device.name} there "
            "says why it is not promoted"
        )
    return (
        _next_for_lost_disks(cluster, device)
        or _next_without_data(cluster, device)
        or "bring back the node that served it last: only that replica is known to be up to date"
    )


def _next_for_missed_drop(cluster: Cluster, device: DeviceSpec) -> str:
    """Return what to do where the replica that is left has not carried out a drop; empty: not so.

    DRBD 9 asks for a majority of three and four replicas. The node that served had carried out the
    change to two or one before it was lost; the other one still counts the dropped replica, and
    follows no change while it sees no majority and no Primary.
    """
    if uses_quorum(len(device.nodes)):
        return ""
    there = [node for node in device.nodes if cluster.mon.state(node) in MEMBER_STATES]
    absent = [node for node in device.nodes if node not in there]
    stuck = [n for n in there if "quorum" in (cluster.replica(device.name, n).suspended or "")]
    if not stuck or not absent:
        return ""
    return (
        f"bring {absent[0]} back: it was lost before the replica on {stuck[0]} had learned of the "
        "one that was dropped, which that one still counts, so it sees no majority of them"
    )


def _next_for_lost_disks(cluster: Cluster, device: DeviceSpec) -> str:
    """Return what to do where every node is there and a disk is missing; empty: not so."""
    lost = [n for n in device.nodes if cluster.replica(device.name, n).disk == "Diskless"]
    if not lost or any(cluster.mon.state(node) not in MEMBER_STATES for node in device.nodes):
        return ""
    disks = " and ".join(str(node) for node in lost)
    return (
        f"check its disk on {disks} (journalctl -k there; a full pool needs room): DRBD dropped it "
        "at an error, and once it answers it is attached again by itself"
    )


def _next_without_data(cluster: Cluster, device: DeviceSpec) -> str:
    """Return what to do where every node is there and no replica is whole; empty: not so.

    As after the disks of all of them were replaced.
    """
    is_empty = not device.is_new and all(
        cluster.mon.state(node) in MEMBER_STATES
        and cluster.replica(device.name, node).disk == "Inconsistent"
        for node in device.nodes
    )
    return f"{NO_DATA}; docs/howto/night-page.md, 'Both disks were lost'" if is_empty else ""
