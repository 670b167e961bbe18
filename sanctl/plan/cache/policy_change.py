# SPDX-License-Identifier: GPL-2.0-or-later
"""Changing a device's cache policy, and what its replicas say of it."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.errors import Refused
from sanctl.model.cache_policy import Mode
from sanctl.model.cib_change import Change, SetParameter
from sanctl.model.cluster import PRESENT, Cluster, Role
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import DeviceName, NodeName, format_bytes
from sanctl.plan.cache.allowed_mode import READ_SENTENCES, SENTENCES, ReadReason, Reason
from sanctl.plan.cache.policy_request import PolicyChange, objections
from sanctl.plan.cluster.convergence import Progress, not_shown
from sanctl.plan.cluster.preconditions import existing_device, refuse_unless_changeable

_SENTENCES = {reason.value: words for reason, words in SENTENCES.items()} | {
    reason.value: words for reason, words in READ_SENTENCES.items()
}
#: When a replica goes to the mode that is wanted; of other reasons more cannot be said.
_UNTIL = {
    Reason.ONE_COPY.value: "two copies are in sync",
    Reason.COMPARING.value: "the copies have been compared",
    Reason.SUSPECT.value: "it has been filled anew",
}
_PASSED = "the reason has passed"
#: Dirty data that takes longer than this to flush is a pause that hosts notice.
_LONG_FLUSH_S = 10


def plan_cache(cluster: Cluster, name: DeviceName, change: PolicyChange) -> tuple[Change, ...]:
    """Return the change that gives a device its new cache policy; nothing when it has it.

    Raises:
        Refused: there is no such device, the change makes no sense for it, or Pacemaker would not
            carry it out.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    problems = tuple(objections(device, change))
    if problems:
        raise Refused(*problems)
    policy = change.applied_to(device.cache)
    if device.cache == policy:
        return ()
    return (SetParameter(name=name, parameter="cache", value=str(policy)),)


def cache_applied(cluster: Cluster, name: DeviceName) -> Progress:
    """A policy is applied when every running replica is in its mode, or says why it is not.

    And Pacemaker shows again who serves.
    """
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=False, seen="the device is gone")
    running = _running(cluster, device)
    left = {node: _what_is_left(cluster, device, node) for node in running}
    return Progress(
        is_done=not any(left.values()),
        seen=", ".join(
            f"{node}: {cache_words(device, cluster.replica(name, node))}{left[node]}"
            for node in running
        ),
    )


def _running(cluster: Cluster, device: DeviceSpec) -> tuple[NodeName, ...]:
    return tuple(
        node
        for node in device.nodes
        if cluster.mon.role(device.name, node) in {Role.PROMOTED, Role.UNPROMOTED}
    )


def _what_is_left(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str:
    """Say what a replica has not got to yet, to be put behind its `cache_words`."""
    replica = cluster.replica(device.name, node)
    if not _has_mode(device, replica):
        return f", not yet {device.cache.mode.value}"
    if not _has_limit(device, replica):
        return f", not yet at most {format_bytes(device.cache.dirty_bytes)} dirty"
    if not _has_read_cache(device, replica):
        return f", not yet {format_bytes(device.cache.read_bytes)} for reads"
    if node in not_shown(cluster, device):
        return ", not yet shown by Pacemaker as serving"
    return ""


def _has_limit(device: DeviceSpec, replica: ReplicaState) -> bool:
    return (
        replica.cache != Mode.WRITE_BACK.value
        or device.cache.mode is not Mode.WRITE_BACK
        or replica.dirty_limit_bytes == device.cache.dirty_bytes
    )


def _has_read_cache(device: DeviceSpec, replica: ReplicaState) -> bool:
    wanted = device.cache.read_bytes
    if replica.role != "Primary" or replica.read_reason not in {None, ReadReason.WAITS.value}:
        return True
    if not wanted:
        return not replica.read_bytes
    size = wanted if replica.size_bytes is None else min(wanted, replica.size_bytes)
    return replica.read_bytes == size


def _has_mode(device: DeviceSpec, replica: ReplicaState) -> bool:
    if replica.cache == device.cache.mode.value:
        return True
    # Less than wanted, and safer, for a reason that does not pass in a moment.
    return (
        device.cache.mode is Mode.WRITE_BACK
        and replica.cache == Mode.WRITE_THROUGH.value
        and replica.cache_reason not in {None, Reason.CHANGING.value}
    )


def reason_of(device: DeviceSpec, replica: ReplicaState) -> str | None:
    """Return why a replica is not in the mode that is wanted; None where it is.

    What it says may be of the time before a change: of a mode that is the wanted one by now.
    """
    return None if replica.cache == device.cache.mode.value else replica.cache_reason


def pending_words(cluster: Cluster, device: DeviceSpec) -> str | None:
    """Say what write-back waits for that is wanted and not in effect; None where it is."""
    if device.cache.mode is not Mode.WRITE_BACK:
        return None
    lone = lone_words(device)
    if lone is not None:
        return lone
    running = _running(cluster, device)
    waiting = {
        node: reason_of(device, cluster.replica(device.name, node))
        for node in running
        if cluster.replica(device.name, node).cache != Mode.WRITE_BACK.value
    }
    if running and not waiting:
        return None
    reasons = set(waiting.values())
    until = _UNTIL.get(next(iter(reasons)) or "", _PASSED) if len(reasons) == 1 else _PASSED
    if not running:
        until = "its replicas run"
    # Of three copies two may be in it and the third not.
    where = f" on {', '.join(map(str, waiting))}" if len(waiting) < len(running) else ""
    return f"not in effect yet{where}: it is once {until}"


def lone_words(device: DeviceSpec) -> str | None:
    """Say that write-back is wanted of a device of one copy, where it cannot be."""
    if device.cache.mode is not Mode.WRITE_BACK or max(device.replicas, len(device.nodes)) > 1:
        return None
    return (
        "not in effect: write-back needs two copies, and it has one; "
        f"'sanctl device replicas {device.name} 2' makes the second"
    )


def cache_words(device: DeviceSpec, replica: ReplicaState) -> str:
    """Say what a replica's cache is in, in a few words."""
    if replica.cache is None:
        return "?"
    text = replica.cache
    if replica.dirty_bytes is not None:
        text += f", {format_bytes(replica.dirty_bytes)} dirty"
        if replica.flush_s is not None:
            text += f", {replica.flush_s} s to flush"
    if replica.dirty_node_limit_bytes is not None:
        text += f", its node allows {format_bytes(replica.dirty_node_limit_bytes)} in all"
    reason = reason_of(device, replica)
    if reason is not None:
        text += f" ({reason_words(reason)})"
    return text + _read_words(replica)


def _read_words(replica: ReplicaState) -> str:
    if replica.read_bytes is None and replica.read_reason is None:
        return ""
    text = f"; reads: {format_bytes(replica.read_bytes or 0)} of RAM"
    if replica.read_held_bytes is not None:
        text += f", {format_bytes(replica.read_held_bytes)} in use"
    if replica.read_hit_percent is not None:
        text += f", {replica.read_hit_percent} % found there"
    if replica.read_reason is not None:
        text += f" ({reason_words(replica.read_reason)})"
    return text


def reason_words(reason: str) -> str:
    """Say why a replica is not in the mode that is wanted, or has no read cache."""
    return _SENTENCES.get(reason, reason)


def cache_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return what is to be known of a device's cache."""
    for node in device.nodes:
        if cluster.mon.state(node) not in PRESENT:
            continue
        replica = cluster.replica(device.name, node)
        if replica.is_suspect:
            yield _suspect(device, node)
        elif replica.cache is not None and reason_of(device, replica) is not None:
            yield _not_as_wanted(device, node, replica)
        if replica.read_reason is not None:
            yield Finding(
                code="SAN-HLT-058",
                severity=Severity.NOTE,
                subject=f"device {device.name}",
                what=f"{node} does not cache reads in RAM as is wanted: "
                + reason_words(replica.read_reason),
                why="nothing is at risk; reads come from the disk",
                do=f"wait, or 'sanctl device cache {device.name} --read-cache SIZE' with less, "
                "or none",
            )
        if replica.flush_s is not None and replica.flush_s > _LONG_FLUSH_S:
            yield Finding(
                code="SAN-HLT-055",
                severity=Severity.WARNING,
                subject=f"device {device.name}",
                what=f"what is dirty on {node} takes about {replica.flush_s} s to flush",
                why="hosts wait that long when redundancy is lost",
                do=f"'sanctl device cache {device.name} --dirty-limit SIZE' with less",
            )


def _not_as_wanted(device: DeviceSpec, node: NodeName, replica: ReplicaState) -> Finding:
    reason = reason_of(device, replica) or ""
    what = reason_words(reason)
    do = f"it goes to {device.cache.mode.value} by itself once {_UNTIL.get(reason, _PASSED)}"
    if reason == Reason.ONE_COPY.value and lone_words(device) is not None:
        what = "write-back needs two copies, and the device has one"
        do = (
            f"'sanctl device replicas {device.name} 2' for a second copy, or 'sanctl device cache "
            f"{device.name} {replica.cache}'"
        )
    return Finding(
        code="SAN-HLT-054",
        severity=Severity.NOTE,
        subject=f"device {device.name}",
        what=f"{node} is in {replica.cache} instead of {device.cache.mode.value}: {what}",
        why="until then writes may be in RAM alone"
        if replica.cache == Mode.WRITE_BACK.value
        else "nothing is at risk; writes are slower",
        do=do,
    )


def node_limit_findings(cluster: Cluster) -> Iterator[Finding]:
    """Return which nodes let less be dirty than the policies of their devices add up to."""
    for node in sorted(each.name for each in cluster.cib.nodes):
        told = [
            replica
            for device in cluster.cib.devices
            if (replica := cluster.replica(device.name, node)).dirty_limit_bytes is not None
        ]
        limits = [r.dirty_node_limit_bytes for r in told if r.dirty_node_limit_bytes is not None]
        if limits:
            wanted = sum(replica.dirty_limit_bytes or 0 for replica in told)
            yield Finding(
                code="SAN-HLT-059",
                severity=Severity.NOTE,
                subject=f"node {node}",
                what=f"it lets only {format_bytes(min(limits))} be dirty in all, a fifth of its "
                f"RAM; its devices in write-back may have {format_bytes(wanted)} by their policies",
                why="nothing is at risk; writes wait for the disk sooner than the policies say",
                do="'sanctl device cache NAME --dirty-limit SIZE' with less, or more RAM",
            )


def _suspect(device: DeviceSpec, node: NodeName) -> Finding:
    return Finding(
        code="SAN-HLT-057",
        severity=Severity.WARNING,
        subject=f"device {device.name}",
        what=f"the replica on {node} lost writes that it had acknowledged",
        why="it is kept from serving; it is filled anew once another one serves",
        do=f"wait for that; if none may serve: 'sanctl device heal {device.name}'",
    )
