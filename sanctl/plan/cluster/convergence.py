# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a change that a command (ops) made and waits for (resize, ...) is done yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sanctl.errors import Problem
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, Failure, NodeState, Role
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.names import DeviceName, NodeName
from sanctl.parse.drbd import ProcState
from sanctl.plan.cluster.standby_reason import node_state_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a change has come: whether it is done, and what was observed last."""

    is_done: bool
    seen: str


def failure_problem(failure: Failure) -> Problem:
    """Return a failed action of Pacemaker as a problem."""
    reason = failure.reason or f"the agent returned {failure.status!r} without a reason"
    return Problem(
        "SAN-DEV-020",
        f"{failure.action} of {failure.resource} on {failure.node} failed: {reason}",
        f"journalctl SANCTL_DEVICE={failure.resource} on {failure.node} has the details; then "
        f"'crm_resource --cleanup --resource {failure.resource}' lets Pacemaker try again",
    )


def failures_since(
    cluster: Cluster, resources: Collection[str], known: Collection[Failure]
) -> tuple[Failure, ...]:
    """Return failures of these resources that were not there before."""
    return tuple(
        failure
        for failure in cluster.mon.failures
        if failure.resource in resources and failure not in known
    )


def creation_progress(cluster: Cluster, names: Sequence[DeviceName]) -> Progress:
    """New devices are done when all replicas are in sync and one node serves each device."""
    missing = not_created(cluster, names)
    if not missing:
        return Progress(is_done=True, seen="all are served and in sync")
    device = cluster.cib.device(missing[0])
    seen = "it is not in the CIB" if device is None else replicas_text(cluster, device)
    if len(names) > 1:
        are = f"{len(names) - len(missing)} of {len(names)} are"
        seen = f"{are}, not yet {_some([name.value for name in missing])}; {missing[0]}: {seen}"
    return Progress(is_done=False, seen=seen)


def not_created(cluster: Cluster, names: Sequence[DeviceName]) -> tuple[DeviceName, ...]:
    """Return which of some new devices are not served, or have replicas that are not in sync."""

    def is_created(name: DeviceName) -> bool:
        device = cluster.cib.device(name)
        active = cluster.mon.active_nodes(name)
        return (
            device is not None
            and len(active) == 1
            and active[0] in {node.value for node in device.nodes}
            and all(cluster.is_in_sync(device, node) for node in device.nodes)
        )

    return tuple(name for name in names if not is_created(name))


def seems_created(device: DeviceSpec, published: Mapping[str, ReplicaState]) -> bool:
    """Whether the replicas of a new device say that one is Primary and all have the data.

    `published` has the replicas' states by node. The cluster has to be observed to know.
    """
    states = [published.get(node.value) for node in device.nodes]
    return all(state is not None and state.is_up_to_date for state in states) and any(
        state is not None and state.role == "Primary" for state in states
    )


def kernel_has_created(state: ProcState) -> bool:
    """Whether a replica of a new device with two sees that one is Primary and both have the data.

    What is published says so later.
    """
    roles, disks = (state.role, state.peer_role), (state.disk, state.peer_disk)
    return "Primary" in roles and disks == ("UpToDate", "UpToDate")


def move_progress(cluster: Cluster, name: DeviceName, node: NodeName) -> Progress:
    """A move is done when that node, and no other, serves the device."""
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=False, seen="the device is gone")
    return Progress(
        is_done=cluster.active_node(name) == node.value, seen=replicas_text(cluster, device)
    )


def primaries_not_shown(cluster: Cluster, device: DeviceSpec) -> tuple[NodeName, ...]:
    """Return the nodes whose replica is Primary and that Pacemaker does not show as promoted.

    Pacemaker records a reload as a start: for a second, until it has promoted the instance once
    more, it shows no node as serving the device.
    """
    return tuple(
        node
        for node in device.nodes
        if cluster.replica(device.name, node).role == "Primary"
        and cluster.mon.role(device.name, node) is Role.UNPROMOTED
    )


def _reloaded(cluster: Cluster, device: DeviceSpec, *, is_applied: bool, seen: str) -> Progress:
    """Return how far a change has come that replicas apply by a reload."""
    unseen = primaries_not_shown(cluster, device)
    if is_applied and unseen:
        nodes = ", ".join(map(str, unseen))
        return Progress(is_done=False, seen=f"{seen}; Pacemaker does not show {nodes} as serving")
    return Progress(is_done=is_applied, seen=seen)


def resize_progress(cluster: Cluster, name: DeviceName) -> Progress:
    """A resize is done when every replica publishes the new size, DRBD's and that of its LUN."""
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=False, seen="the device is gone")
    sizes = {node: cluster.replica(name, node).size_bytes for node in device.nodes}
    return _reloaded(
        cluster,
        device,
        is_applied=all(size == device.size.bytes for size in sizes.values()),
        seen=", ".join(
            f"{node}: {'?' if size is None else f'{size} bytes'}"
            for node, size in sorted(sizes.items())
        ),
    )


def access_progress(
    cluster: Cluster, name: DeviceName, expected: str, *, but_on: Collection[NodeName] = ()
) -> Progress:
    """An access list is applied when no running replica publishes another one, but on some nodes.

    A replica that awaits its second site lets nobody in, and has the list once it does.
    """
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=False, seen="the device is gone")
    others = nodes_with_other_access(cluster, device, expected)
    behind = sorted(str(node) for node in others if node not in but_on)
    seen = f"not yet applied on {', '.join(behind)}" if behind else "applied"
    return _reloaded(cluster, device, is_applied=not behind, seen=seen)


def nodes_with_other_access(
    cluster: Cluster, device: DeviceSpec, expected: str
) -> tuple[NodeName, ...]:
    """Return the nodes whose running replica does not publish this access list."""
    return tuple(
        node
        for node in device.nodes
        if cluster.mon.role(device.name, node) in {Role.PROMOTED, Role.UNPROMOTED}
        and cluster.replica(device.name, node).held_run is None
        and cluster.replica(device.name, node).access != expected
    )


def sync_policy_progress(cluster: Cluster, name: DeviceName) -> Progress:
    """A sync policy is applied when every running replica has it in force."""
    device = cluster.cib.device(name)
    if device is None:
        return Progress(is_done=False, seen="the device is gone")
    behind = sorted(
        str(node)
        for node in device.nodes
        if cluster.mon.role(name, node) in {Role.PROMOTED, Role.UNPROMOTED}
        and cluster.replica(name, node).policy != str(device.sync)
    )
    seen = f"not yet in force on {', '.join(behind)}" if behind else "applied"
    return _reloaded(cluster, device, is_applied=not behind, seen=seen)


def standby_progress(
    cluster: Cluster, name: NodeName, served_before: Collection[DeviceName]
) -> Progress:
    """A standby is done when no device runs on the node and another node serves what it served."""
    state = cluster.mon.state(name)
    names = {device.name.value for device in cluster.cib.devices}
    names |= {identifier for identifier, _ in cluster.cib.unreadable}
    running = sorted(
        instance.resource
        for instance in cluster.mon.instances
        if instance.node == name.value and instance.resource in names
    )
    unserved = sorted(
        device.value
        for device in served_before
        if device.value in names and cluster.active_node(device) is None
    )
    left = state in {NodeState.STANDBY, NodeState.OFFLINE}
    words = [f"{name} is {state.value}"]
    if running:
        words.append(f"still running there: {_some(running)}")
    if unserved:
        words.append(f"served by no node yet: {_some(unserved)}")
    return Progress(is_done=left and not running and not unserved, seen="; ".join(words))


def online_progress(cluster: Cluster, name: NodeName) -> Progress:
    """A node is back when its replicas run there, are up to date, and were flushed since.

    The next step may be the standby of the node that has filled them. Where a flush has failed the
    replica is filled again (docs/adr/0082).
    """
    state = cluster.mon.state(name)
    behind = []
    for device in cluster.cib.devices:
        if name in device.nodes and not device.is_stopping:
            replica = cluster.replica(device.name, name)
            # Every present node has to publish that its connections are in sync.
            there = [n for n in device.nodes if cluster.mon.state(n) is NodeState.ONLINE]
            linked = all(
                cluster.replica(device.name, node).is_in_sync_with(set(there) - {node})
                for node in there
            )
            alone = not set(there) - {name}
            if not (
                cluster.mon.role(device.name, name) in {Role.PROMOTED, Role.UNPROMOTED}
                and replica.is_up_to_date
                and (linked or alone)
            ):
                behind.append(f"{device.name} {replica.brief()}")
            elif replica.is_settling and not alone:
                behind.append(f"{device.name} {replica.brief()}, not flushed after its resync yet")
    words = [f"{name} is {node_state_text(cluster, name)}"]
    if behind:
        words.append(f"not yet up to date there: {_some(behind)}")
    return Progress(is_done=state is NodeState.ONLINE and not behind, seen="; ".join(words))


def replicas_text(cluster: Cluster, device: DeviceSpec) -> str:
    """Return in one line what each node does for a device."""
    words = []
    for node in device.nodes:
        state = cluster.mon.state(node)
        if state not in MEMBER_STATES:
            words.append(f"{node}: {state.value}")
            continue
        role = cluster.mon.role(device.name, node)
        words.append(f"{node}: {role.value}, {cluster.replica_brief(device, node)}")
    return "; ".join(words)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
