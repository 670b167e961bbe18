# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: the CIB change for `device cache`, and whether the replicas have applied it yet."""

from __future__ import annotations

from sanctl.errors import Refused
from sanctl.model.cache_policy import CacheMode
from sanctl.model.cib_change import Change, SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.names import DeviceName, NodeName, format_bytes
from sanctl.plan.cache.allowed_mode import ModeReason
from sanctl.plan.cache.cache_status import replica_cache_text, running_replicas
from sanctl.plan.cache.policy_request import CachePolicyChange, cache_policy_problems
from sanctl.plan.cache.read_cache import ReadCacheReason
from sanctl.plan.cluster.convergence import Progress, primaries_not_shown
from sanctl.plan.cluster.preconditions import existing_device, refuse_unless_changeable


def plan_cache_policy(
    cluster: Cluster, name: DeviceName, change: CachePolicyChange
) -> tuple[Change, ...]:
    """Return the change that gives a device its new cache policy; nothing when it has it.

    Raises:
        Refused: there is no such device, the change makes no sense for it, or Pacemaker would not
            carry it out.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    problems = tuple(cache_policy_problems(device, change))
    if problems:
        raise Refused(*problems)
    policy = change.applied_to(device.cache)
    if device.cache == policy:
        return ()
    return (SetParameter(name=name, parameter="cache", value=str(policy)),)


def cache_policy_progress(cluster: Cluster, name: DeviceName) -> Progress:
    """A policy is applied when every running replica is in its mode, or publishes why it is not.

    And Pacemaker shows the Primary as promoted again.
    """
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=False, seen="the device is gone")
    running = running_replicas(cluster, device)
    left = {node: _not_applied(cluster, device, node) for node in running}
    return Progress(
        is_done=not any(left.values()),
        seen=", ".join(
            f"{node}: {replica_cache_text(device, cluster.replica(name, node))}{left[node]}"
            for node in running
        ),
    )


def _not_applied(cluster: Cluster, device: DeviceSpec, node: NodeName) -> str:
    """Return what a replica has not applied yet, to be put behind its `replica_cache_text`."""
    replica = cluster.replica(device.name, node)
    if not _has_mode(device, replica):
        return f", not yet {device.cache.mode.value}"
    if not _has_limit(device, replica):
        return f", not yet at most {format_bytes(device.cache.dirty_bytes)} dirty"
    if not _has_read_cache(device, replica):
        return f", not yet {format_bytes(device.cache.read_bytes)} for reads"
    if node in primaries_not_shown(cluster, device):
        return ", not yet shown by Pacemaker as serving"
    return ""


def _has_limit(device: DeviceSpec, replica: ReplicaState) -> bool:
    return (
        replica.cache != CacheMode.WRITE_BACK.value
        or device.cache.mode is not CacheMode.WRITE_BACK
        or replica.dirty_limit_bytes == device.cache.dirty_bytes
    )


def _has_read_cache(device: DeviceSpec, replica: ReplicaState) -> bool:
    wanted = device.cache.read_bytes
    if replica.role != "Primary" or replica.read_reason not in {None, ReadCacheReason.WAITS.value}:
        return True
    if not wanted:
        return not replica.read_bytes
    size = wanted if replica.size_bytes is None else min(wanted, replica.size_bytes)
    return replica.read_bytes == size


def _has_mode(device: DeviceSpec, replica: ReplicaState) -> bool:
    if replica.cache == device.cache.mode.value:
        return True
    # Write-through where another mode is wanted is safe, and its reason lasts.
    return (
        replica.cache == CacheMode.WRITE_THROUGH.value
        and replica.cache_reason not in {None, ModeReason.CHANGING.value}
        and (
            device.cache.mode is CacheMode.WRITE_BACK
            or replica.cache_reason == ModeReason.BLOCKS.value
        )
    )
