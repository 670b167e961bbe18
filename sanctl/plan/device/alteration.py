# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a resize, move or sync policy is refused; else its CIB change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import AddMove, Change, ClearParameter, RemoveMove, SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState, Role
from sanctl.model.device import DeviceSpec
from sanctl.model.names import ByteSize, DeviceName, NodeName, format_bytes
from sanctl.plan.cluster.preconditions import (
    existing_device,
    existing_node,
    no_replica_problem,
    refuse_unless_changeable,
)
from sanctl.plan.device.bitmap_memory import memory_problem
from sanctl.plan.device.following import way_back_problem
from sanctl.plan.device.node_eligibility import file_problem
from sanctl.plan.device.placement import metadata_bytes, room_bytes
from sanctl.plan.device.restore_refusals import refuse_while_restoring
from sanctl.plan.drbd.version_limits import full_resync_problem

MOVE_EXPIRES_AFTER_S = 600


def plan_resize(cluster: Cluster, name: DeviceName, size: ByteSize) -> tuple[Change, ...]:
    """Return the change that grows a device; nothing when it has that size already.

    Or the change that takes a growth back which no replica has begun: no filesystem may have a file
    of that size, say. Then nothing is cut off.

    Raises:
        Refused: the device would shrink, or may; or a replica is absent, not connected or not up to
            date: growing a device with one replica missing leaves two replicas of two sizes. Or a
            node lacks room or memory for it, or has no file so large, or the device is going back
            to a restore point.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    if size == device.size:
        return ()
    refuse_while_restoring(cluster, device)
    change = SetParameter(name=name, parameter="size", value=str(size.bytes))
    if size < device.size:
        has_begun = [node for node in device.nodes if not _has(cluster, device, node, size)]
        if not has_begun:
            return (change,)
        raise Refused(
            Problem(
                "SAN-DEV-012",
                f"device {name} has {device.size}; {size} would cut off its end",
                "a device can only grow; create a smaller one and copy its data. A growth is taken "
                "back only where each replica says that its file has not grown: "
                f"{', '.join(map(str, has_begun))} does not say that it has {size}",
            )
        )
    problems = list(unready_replicas(cluster, device))
    growth = size.bytes - device.size.bytes
    more = growth + metadata_bytes(size.bytes) - metadata_bytes(device.size.bytes)
    for node in device.nodes:
        room = room_bytes(cluster, device.pool, node)
        if room is None:
            problems.append(
                Problem(
                    "SAN-POOL-013",
                    f"room in pool {device.pool} on {node} is not known",
                    f"'sanctl doctor' on {node} checks the pool",
                )
            )
        elif more > room:
            problems.append(
                Problem(
                    "SAN-POOL-012",
                    f"pool {device.pool} on {node} has room for {format_bytes(room)}, "
                    f"{format_bytes(more)} more are needed",
                    "room is free space less what other devices may still write, and a reserve",
                )
            )
        lacking = (
            memory_problem(cluster, device.pool, node, growth),
            file_problem(cluster, device.pool, node, size.bytes),
        )
        problems += [each for each in lacking if each is not None]
    if problems:
        raise Refused(*problems)
    return (change,)


def _has(cluster: Cluster, device: DeviceSpec, node: NodeName, size: ByteSize) -> bool:
    """Whether a replica is known to have just this size, and its data file no more.

    A longer file would grow the device again as soon as its peer's has grown, too.
    """
    replica = cluster.replica(device.name, node)
    return (
        cluster.mon.state(node) is NodeState.ONLINE
        and replica.size_bytes == size.bytes
        and replica.file_bytes is not None
        and replica.file_bytes <= size.bytes
    )


def unready_replicas(cluster: Cluster, device: DeviceSpec) -> tuple[Problem, ...]:
    """Return which replicas are not known to be present, connected and up to date."""
    problems = []
    for node in device.nodes:
        state = cluster.mon.state(node)
        replica = cluster.replica(device.name, node)
        if state is not NodeState.ONLINE:
            problems.append(
                Problem(
                    "SAN-DEV-013",
                    f"device {device.name}: node {node} is {state.value}",
                    "all replicas must be present: bring the node back first",
                )
            )
        elif not cluster.is_in_sync(device, node):
            problems.append(
                Problem(
                    "SAN-DEV-013",
                    f"device {device.name}: replica on {node} is {replica.brief()}",
                    "wait until the replica is UpToDate and connected: see 'sanctl device show "
                    f"{device.name}'",
                )
            )
    return tuple(problems)


def plan_sync_policy(
    cluster: Cluster, name: DeviceName, values: Mapping[str, str], *, drbd_version: str | None
) -> tuple[Change, ...]:
    """Return the change that gives a device another sync policy; nothing when it has that.

    Args:
        cluster: as observed.
        name: the device.
        values: the settings that are to change, by their names.
        drbd_version: of the loaded DRBD, None where none is.

    Raises:
        UsageError: a value is malformed.
        Refused: DRBD cannot do it, or Pacemaker would not carry the change out.
    """
    device = existing_device(cluster, name)
    policy = device.sync.changed(values)
    asked = policy.full_above_percent if "full-above" in values else None
    lacking = full_resync_problem(asked, drbd_version)
    if lacking is not None:
        raise Refused(lacking)
    refuse_unless_changeable(cluster, device)
    if policy == device.sync:
        return ()
    if not str(policy):
        return (ClearParameter(name=name, parameter="sync"),)
    return (SetParameter(name=name, parameter="sync", value=str(policy)),)


def plan_move(
    cluster: Cluster, name: DeviceName, node: NodeName, *, now_s: float
) -> tuple[Change, ...]:
    """Return the change that moves the active role to a node.

    Nothing when the node serves the device already, but for what an interrupted move left.

    Raises:
        Refused: the node cannot serve the device without losing writes, or not now.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    leftover: tuple[Change, ...] = (
        (RemoveMove(name=name),) if cluster.cib.move(name) is not None else ()
    )
    if cluster.active_node(name) == node.value:
        return leftover
    problems = tuple(_move_problems(cluster, device, node))
    if problems:
        raise Refused(*problems)
    until = datetime.fromtimestamp(now_s + MOVE_EXPIRES_AFTER_S, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return (*leftover, AddMove(name=name, node=node, until=until))


def _move_problems(cluster: Cluster, device: DeviceSpec, node: NodeName) -> list[Problem]:
    if node not in device.nodes:
        existing_node(cluster, node)
        return [no_replica_problem(device, node)]
    state = cluster.mon.state(node)
    if state is not NodeState.ONLINE:
        return [
            Problem(
                "SAN-DEV-016",
                f"node {node} is {state.value}: it cannot serve device {device.name}",
                f"bring the node back first: 'sanctl node online {node}' ends a standby",
            )
        ]
    problems = []
    if node.value in cluster.cib.drained:
        problems.append(
            Problem(
                "SAN-DEV-016",
                f"node {node} is drained: it serves nothing",
                f"it is about to be shut down; 'sanctl node undrain {node}' undoes that",
            )
        )
    problems.extend(
        Problem(
            "SAN-DEV-016",
            f"constraint {each.id} keeps device {device.name} off {node}",
            f"'{each.removal}' removes it",
        )
        for each in cluster.cib.constraints_of(device.name)
        if each.is_ban and each.node == node.value
    )
    way_back = way_back_problem(cluster, device, node)
    if way_back is not None:
        problems.append(way_back)
    if cluster.mon.role(device.name, node) not in {Role.UNPROMOTED, Role.PROMOTED}:
        problems.append(
            Problem(
                "SAN-DEV-016",
                f"device {device.name} does not run on {node}",
                f"see 'sanctl device show {device.name}' and 'sanctl status'",
            )
        )
    marked = cluster.is_marked(device, node)
    replica = cluster.replica(device.name, node)
    if not replica.is_up_to_date or marked:
        what = "marked as outdated" if replica.is_up_to_date else replica.brief()
        problems.append(
            Problem(
                "SAN-DEV-017",
                f"the replica of device {device.name} on {node} is {what}",
                "the replica must be UpToDate to serve: wait for the resync to end",
            )
        )
    if replica.lacks:
        problems.append(
            Problem(
                "SAN-DEV-016",
                f"the release of sanctl on {node} does not know what device {device.name} needs: "
                f"{', '.join(replica.lacks)}",
                f"update sanctl on {node}: run the playbook",
            )
        )
    return problems


def plan_move_end(cluster: Cluster, move: AddMove) -> tuple[Change, ...]:
    """Return the change that ends a move, if it is still there and no later one in its place.

    The device stays: the Primary's promotion score is higher than any preference for another node.
    """
    found = cluster.cib.move(move.name)
    is_this = found is not None and (found.node, found.until) == (move.node.value, move.until)
    return (RemoveMove(name=move.name),) if is_this else ()
