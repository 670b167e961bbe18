"""Changing a device's cache policy, and what its replicas say of it."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cache import Mode, Policy
from sanctl.model.change import Change, SetParameter
from sanctl.model.cluster import PRESENT, Cluster, Role
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.health import Finding, Severity
from sanctl.model.names import DeviceName, NodeName, format_bytes
from sanctl.plan.caching import READ_SENTENCES, SENTENCES, ReadReason, Reason
from sanctl.plan.existing import existing_device, refuse_unless_changeable
from sanctl.plan.goal import Progress

_SENTENCES = {reason.value: words for reason, words in SENTENCES.items()} | {
    reason.value: words for reason, words in READ_SENTENCES.items()
}
#: Dirty data that takes longer than this to flush is a pause that hosts notice.
_LONG_FLUSH_S = 10


def plan_cache(
    cluster: Cluster, name: DeviceName, policy: Policy, *, keeps_read_cache: bool = False
) -> tuple[Change, ...]:
    """Return the change that gives a device a cache policy; nothing when it has it.

    With `keeps_read_cache` the device's read cache stays as large as it is.

    Raises:
        Refused: there is no such device, or Pacemaker would not carry it out.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    if keeps_read_cache:
        policy = policy._replace(read_bytes=device.cache.read_bytes)
    if device.cache == policy:
        return ()
    return (SetParameter(name=name, parameter="cache", value=str(policy)),)


def cache_applied(cluster: Cluster, name: DeviceName) -> Progress:
    """A policy is applied when every running replica is in its mode, or says why it is not."""
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=False, seen="the device is gone")
    running = [
        node
        for node in device.nodes
        if cluster.mon.role(name, node) in {Role.PROMOTED, Role.UNPROMOTED}
    ]
    return Progress(
        is_done=all(_has_settled(device, cluster.replica(name, node)) for node in running),
        seen=", ".join(f"{node}: {cache_words(cluster.replica(name, node))}" for node in running),
    )


def _has_settled(device: DeviceSpec, replica: ReplicaState) -> bool:
    return _has_mode(device, replica) and _has_read_cache(device, replica)


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


def cache_words(replica: ReplicaState) -> str:
    """Say what a replica's cache is in, in a few words."""
    if replica.cache is None:
        return "?"
    text = replica.cache
    if replica.dirty_bytes is not None:
        text += f", {format_bytes(replica.dirty_bytes)} dirty"
        if replica.flush_s is not None:
            text += f", {replica.flush_s} s to flush"
    if replica.cache_reason is not None:
        text += f" ({reason_words(replica.cache_reason)})"
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
        elif replica.cache is not None and replica.cache_reason is not None:
            yield Finding(
                code="SAN-HLT-054",
                severity=Severity.NOTE,
                subject=f"device {device.name}",
                what=f"{node} is in {replica.cache} instead of {device.cache.mode.value}: "
                + reason_words(replica.cache_reason),
                why="nothing is at risk; writes are slower",
                do="it goes back by itself when the reason has passed",
            )
        if replica.read_reason is not None:
            yield Finding(
                code="SAN-HLT-058",
                severity=Severity.NOTE,
                subject=f"device {device.name}",
                what=f"{node} does not cache reads in RAM as is wanted: "
                + reason_words(replica.read_reason),
                why="nothing is at risk; reads come from the disk",
                do=f"wait, or 'sanctl device cache {device.name} {device.cache.mode.value} "
                "--read-cache SIZE' with less, or none",
            )
        if replica.flush_s is not None and replica.flush_s > _LONG_FLUSH_S:
            yield Finding(
                code="SAN-HLT-055",
                severity=Severity.WARNING,
                subject=f"device {device.name}",
                what=f"what is dirty on {node} takes about {replica.flush_s} s to flush",
                why="hosts wait that long when redundancy is lost",
                do=f"'sanctl device cache {device.name} write-back --dirty-limit SIZE' with less",
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
