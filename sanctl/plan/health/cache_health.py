# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on a device's cache: not in the wanted mode, long flush, dirty limit, lost writes."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cache_policy import CacheMode
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import NodeName, format_bytes
from sanctl.plan.cache.allowed_mode import ModeReason
from sanctl.plan.cache.cache_status import (
    REASON_ENDED,
    REASON_ENDS,
    cache_reason_text,
    mode_reason,
    single_replica_text,
)

#: Dirty data that takes longer than this to flush is a pause that hosts notice.
_LONG_FLUSH_S = 10


def device_cache_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return what is wrong with the caches of a device's replicas, or less than wanted."""
    for node in device.nodes:
        if cluster.mon.state(node) not in MEMBER_STATES:
            continue
        replica = cluster.replica(device.name, node)
        if replica.is_suspect:
            yield _suspect(device, node, replica)
        elif replica.cache is not None and mode_reason(device, replica) is not None:
            yield _not_as_wanted(device, node, replica)
        if replica.read_reason is not None:
            yield Finding(
                code="SAN-HLT-058",
                severity=Severity.NOTE,
                subject=f"device {device.name}",
                what=f"{node} does not cache reads in RAM as the policy wants: "
                + cache_reason_text(replica.read_reason),
                why="nothing is at risk; reads come from the disk",
                do=f"wait, or 'sanctl device cache {device.name} --read-cache SIZE' with less, "
                "or none",
            )
        if replica.flush_s is not None and replica.flush_s > _LONG_FLUSH_S:
            yield Finding(
                code="SAN-HLT-055",
                severity=Severity.WARNING,
                subject=f"device {device.name}",
                what=f"the dirty data on {node} takes about {replica.flush_s} s to flush",
                why="hosts wait that long when redundancy is lost",
                do=f"'sanctl device cache {device.name} --dirty-limit SIZE' with less",
            )


def _not_as_wanted(device: DeviceSpec, node: NodeName, replica: ReplicaState) -> Finding:
    reason = mode_reason(device, replica) or ""
    what = cache_reason_text(reason)
    until = REASON_ENDS.get(reason, REASON_ENDED)
    do = f"the replica goes to {device.cache.mode.value} by itself once {until}"
    if reason == ModeReason.BLOCKS.value:
        do = (
            f"nothing, or 'sanctl device cache {device.name} write-through', which is what it does"
            " there"
        )
    if reason == ModeReason.ONE_COPY.value and single_replica_text(device) is not None:
        what = "write-back needs two replicas, and the device has one"
        do = (
            f"'sanctl device replicas {device.name} 2' for a second replica, or "
            f"'sanctl device cache {device.name} {replica.cache}'"
        )
    return Finding(
        code="SAN-HLT-054",
        severity=Severity.NOTE,
        subject=f"device {device.name}",
        what=f"{node} is in {replica.cache} instead of {device.cache.mode.value}: {what}",
        why="until then writes may be in RAM alone"
        if replica.cache == CacheMode.WRITE_BACK.value
        else "nothing is at risk; writes are slower",
        do=do,
    )


def dirty_limit_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return which nodes allow less dirty data than the policies of their devices add up to."""
    for node in sorted(each.name for each in cluster.cib.nodes):
        published = [
            replica
            for device in cluster.cib.devices
            if (replica := cluster.replica(device.name, node)).dirty_limit_bytes is not None
        ]
        limits = [
            r.dirty_node_limit_bytes for r in published if r.dirty_node_limit_bytes is not None
        ]
        if limits:
            wanted = sum(replica.dirty_limit_bytes or 0 for replica in published)
            yield Finding(
                code="SAN-HLT-059",
                severity=Severity.NOTE,
                subject=f"node {node}",
                what=f"it allows only {format_bytes(min(limits))} of dirty data, a fifth of its "
                f"RAM; its devices in write-back may have {format_bytes(wanted)} by their policies",
                why="nothing is at risk; writes wait for the disk sooner than the policies say",
                do="'sanctl device cache NAME --dirty-limit SIZE' with less, or more RAM",
            )


def _suspect(device: DeviceSpec, node: NodeName, replica: ReplicaState) -> Finding:
    lacks = ["writes that it had acknowledged"] if replica.is_unflushed_cache else []
    if replica.is_unflushed_resync:
        lacks.append("what a resync had written there, which was not on its disk yet")
    return Finding(
        code="SAN-HLT-057",
        severity=Severity.WARNING,
        subject=f"device {device.name}",
        what=f"the replica on {node} may lack {', and '.join(lacks)}",
        why="it is kept from serving; it is fully resynced once another replica serves",
        do=f"wait for that; if none may serve: 'sanctl device heal {device.name}'",
    )
