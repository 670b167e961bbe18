# SPDX-License-Identifier: GPL-2.0-or-later
"""Texts on a replica's cache: mode and its reason, dirty data, read cache, pending write-back."""

from __future__ import annotations

from sanctl.model.cache_policy import CacheMode
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.names import NodeName, format_bytes
from sanctl.plan.cache.allowed_mode import MODE_REASON_TEXTS, ModeReason
from sanctl.plan.cache.read_cache import READ_CACHE_REASON_TEXTS

_REASON_TEXTS = {reason.value: text for reason, text in MODE_REASON_TEXTS.items()} | {
    reason.value: text for reason, text in READ_CACHE_REASON_TEXTS.items()
}
#: What ends each reason; of other reasons no more can be said than REASON_ENDED.
REASON_ENDS = {
    ModeReason.ONE_COPY.value: "two replicas are in sync",
    ModeReason.COMPARING.value: "the replicas have been compared",
    ModeReason.SUSPECT.value: "the replica has been fully resynced",
    ModeReason.UNREADABLE.value: "sanctl has been updated there",
    ModeReason.BLOCKS.value: "its data file has been made anew, on a disk with blocks of 512 bytes",
}
REASON_ENDED = "the reason has passed"


def running_replicas(cluster: Cluster, device: DeviceSpec) -> tuple[NodeName, ...]:
    """Return the nodes on which a replica of the device runs."""
    return tuple(
        node
        for node in device.nodes
        if cluster.mon.role(device.name, node) in {Role.PROMOTED, Role.UNPROMOTED}
    )


def mode_reason(device: DeviceSpec, replica: ReplicaState) -> str | None:
    """Return why a replica is not in the mode that is wanted; None where it is.

    The published reason may be older than the policy: the mode may be the wanted one by now.
    """
    return None if replica.cache == device.cache.mode.value else replica.cache_reason


def pending_write_back_text(cluster: Cluster, device: DeviceSpec) -> str | None:
    """Return what wanted write-back waits for, as text; None where it is in effect."""
    if device.cache.mode is not CacheMode.WRITE_BACK:
        return None
    lone = single_replica_text(device)
    if lone is not None:
        return lone
    running = running_replicas(cluster, device)
    waiting = {
        node: mode_reason(device, cluster.replica(device.name, node))
        for node in running
        if cluster.replica(device.name, node).cache != CacheMode.WRITE_BACK.value
    }
    if running and not waiting:
        return None
    reasons = set(waiting.values())
    until = (
        REASON_ENDS.get(next(iter(reasons)) or "", REASON_ENDED)
        if len(reasons) == 1
        else REASON_ENDED
    )
    if not running:
        until = "its replicas run"
    # Of three replicas two may be in write-back and the third not.
    where = f" on {', '.join(map(str, waiting))}" if len(waiting) < len(running) else ""
    return f"not in effect yet{where}: it is once {until}"


def one_replica_text(name: str, mode: CacheMode) -> str:
    """Return what a device of one replica gives up, for whoever is about to ask for one."""
    text = (
        f"device {name} with one replica: hosts wait while its node is away, and its data is lost "
        "with that node's disks"
    )
    if mode is CacheMode.WRITE_THROUGH:
        return f"{text}."
    return (
        f"{text}. When that node loses power, what hosts have not flushed in the last moments may "
        "be lost; with the cache policy write-through it is not."
    )


def single_replica_text(device: DeviceSpec) -> str | None:
    """Return that write-back is wanted of a device of one replica, where it cannot be."""
    if device.cache.mode is not CacheMode.WRITE_BACK or max(device.replicas, len(device.nodes)) > 1:
        return None
    return (
        "not in effect: write-back needs two replicas, and the device has one; "
        f"'sanctl device replicas {device.name} 2' makes the second"
    )


def replica_cache_text(device: DeviceSpec, replica: ReplicaState) -> str:
    """Return the state of a replica's cache as text."""
    if replica.cache is None:
        return "?"
    text = replica.cache
    if replica.dirty_bytes is not None:
        text += f", {format_bytes(replica.dirty_bytes)} dirty"
        if replica.flush_s is not None:
            text += f", {replica.flush_s} s to flush"
    if replica.dirty_node_limit_bytes is not None:
        text += f", its node allows {format_bytes(replica.dirty_node_limit_bytes)} in all"
    reason = mode_reason(device, replica)
    if reason is not None:
        text += f" ({cache_reason_text(reason)})"
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
        text += f" ({cache_reason_text(replica.read_reason)})"
    return text


def cache_reason_text(reason: str) -> str:
    """Return why a replica is not in the mode that is wanted, or has no read cache, as text."""
    return _REASON_TEXTS.get(reason, reason)
