# SPDX-License-Identifier: GPL-2.0-or-later
"""Preconditions common to all commands: device and node exist, quorum, no maintenance."""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem, Refused
from sanctl.model.cib import CibNode
from sanctl.model.cib_names import clone_id
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.meta_attribute import deletions
from sanctl.model.names import DeviceName, NodeName, PoolName
from sanctl.model.topology import Topology


def existing_device(cluster: Cluster, name: DeviceName) -> DeviceSpec:
    """Return the device of that name.

    Raises:
        Refused: there is none, or its entry in the CIB cannot be parsed as a device.
    """
    device = cluster.cib.device(name)
    if device is not None:
        return device
    for identifier, reason in cluster.cib.unreadable:
        if identifier == name.value:
            raise Refused(
                Problem(
                    "SAN-DEV-019",
                    f"the CIB's entry for device {name} cannot be read: {reason}",
                    f"compare it with another device: cibadmin --query --xpath "
                    f"\"//clone[@id='sanctl-{name}']\"",
                )
            )
    known = ", ".join(device.name.value for device in cluster.cib.devices[:8])
    more = " ..." if len(cluster.cib.devices) > 8 else ""
    raise Refused(
        Problem(
            "SAN-DEV-002",
            f"there is no device {name}",
            f"devices are: {known}{more}" if known else "there are no devices",
        )
    )


def unreadable_device_problems(cluster: Cluster, risk: str) -> tuple[Problem, ...]:
    """Return which devices cannot be read, where a decision has to look at every device.

    `risk` is what such a device may have to do with the decision. An entry that a later release
    wrote, or that was changed by hand, is a device all the same: its nodes may be any.
    """
    return tuple(
        Problem(
            "SAN-DEV-019",
            f"the CIB's entry for device {identifier} cannot be read ({reason}): it {risk}",
            "upgrade sanctl on this node, or run the command on an upgraded one, if a later "
            "release made the entry; else correct it: cibadmin --query --xpath "
            f"\"//clone[@id='sanctl-{identifier}']\"",
        )
        for identifier, reason in cluster.cib.unreadable
    )


def existing_node(cluster: Cluster, name: NodeName) -> CibNode:
    """Return the node of that name.

    Raises:
        Refused: the cluster has none.
    """
    for node in cluster.cib.nodes:
        if node.name == name:
            return node
    known = ", ".join(str(node.name) for node in cluster.cib.nodes)
    raise Refused(Problem("SAN-NODE-001", f"there is no node {name}", f"the cluster has: {known}"))


def unknown_pool_problem(topology: Topology, name: PoolName) -> Problem:
    """Return that cluster.toml has no pool of that name."""
    names = ", ".join(str(pool.name) for pool in topology.pools)
    return Problem("SAN-POOL-011", f"there is no pool {name}", f"cluster.toml has: {names}")


def no_replica_problem(device: DeviceSpec, node: NodeName) -> Problem:
    """Return that a node has no replica of a device."""
    return Problem(
        "SAN-DEV-015",
        f"node {node} has no replica of device {device.name}",
        f"its replicas are on {', '.join(map(str, device.nodes))}",
    )


def quorum_problems(cluster: Cluster) -> tuple[Problem, ...]:
    """Return that nothing may be changed without quorum; nothing with quorum."""
    if cluster.mon.has_quorum:
        return ()
    return (
        Problem(
            "SAN-CLU-001",
            "the cluster, as this node sees it, has no quorum",
            "run the command on a node of the majority, or bring nodes back first",
        ),
    )


def other_part_advice(nodes: Collection[NodeName]) -> str:
    """Say what to do about absent nodes where there is no quorum: never what would cut one off.

    A part without quorum sees the nodes of the part that serves as unclean or offline.
    """
    names = " or ".join(map(str, nodes))
    return (
        f"run 'sanctl status' on {names} first: the other part may be serving. Switch nothing off, "
        "and confirm nothing, from here"
    )


def refuse_without_quorum(cluster: Cluster) -> None:
    """Check that this partition has quorum.

    Raises:
        Refused: it has none.
    """
    problems = quorum_problems(cluster)
    if problems:
        raise Refused(*problems)


def refuse_unless_changeable(
    cluster: Cluster, device: DeviceSpec, *, on: Collection[NodeName] | None = None
) -> None:
    """Check that Pacemaker would carry out a change of this device.

    Args:
        cluster: as observed.
        device: the device.
        on: the nodes whose agents Pacemaker has to tell of it; None: all of the device.

    Raises:
        Refused: no quorum, the device is unmanaged, a node of it is in maintenance, it is stopped,
            or its deletion has begun.
    """
    problems = [
        *quorum_problems(cluster),
        *unmanaged_problems(cluster, device),
        *kept_node_problems(cluster, device, device.nodes if on is None else on),
    ]
    if device.is_deleting:
        problems.append(
            Problem(
                "SAN-DEV-014",
                f"device {device.name} is stopped: its deletion has begun",
                f"finish it with 'sanctl device delete {device.name}', or undo it with "
                f"'{start_command(device.name)}'",
            )
        )
    elif device.is_stopping:
        problems.append(
            Problem(
                "SAN-DEV-014",
                f"device {device.name} is stopped: somebody has disabled it (target-role=Stopped)",
                f"start it again: '{start_command(device.name)}'",
            )
        )
    if problems:
        raise Refused(*problems)


def refuse_unless_deniable(cluster: Cluster, device: DeviceSpec) -> None:
    """Check that hosts may be kept from a device: also while a node of it is in maintenance.

    The other nodes keep them out at once, that one when its maintenance ends.

    Raises:
        Refused: as `refuse_unless_changeable`, but for a node in maintenance.
    """
    refuse_unless_changeable(cluster, device, on=())


def start_command(name: DeviceName) -> str:
    """Return the command after which Pacemaker may start a device again."""
    return f"crm_resource --resource {clone_id(name)} --meta --delete-parameter target-role"


def end_of_maintenance(cluster: Cluster) -> str:
    """Say how the cluster's maintenance mode is ended, or which nodes have to be online before.

    A node whose Pacemaker is not there may serve: in maintenance mode it stops without stopping
    anything. When the mode ends the scheduler takes what is recorded there for active on a lost
    node, and fences it.
    """
    away = [
        f"{node.name} ({node.state})"
        for node in cluster.mon.nodes
        if node.state not in MEMBER_STATES
    ]
    command = "crm_attribute --name maintenance-mode --delete"
    if not away:
        return f"end it: {command}"
    names = ", ".join(away)
    return (
        f"not before {names} is online: Pacemaker would fence it, also while it serves. Start "
        "Pacemaker there ('systemctl start pacemaker'), wait until crm_mon shows it as online, "
        f"then end the mode: {command}. A node that is off may be fenced"
    )


def maintenance_problems(cluster: Cluster) -> tuple[Problem, ...]:
    """Return why Pacemaker would not act on anything."""
    if not cluster.is_maintenance:
        return ()
    return (
        Problem(
            "SAN-DEV-018",
            "the cluster is in maintenance mode: Pacemaker starts, stops and moves nothing",
            end_of_maintenance(cluster),
        ),
    )


def unmanaged_problems(cluster: Cluster, device: DeviceSpec) -> tuple[Problem, ...]:
    """Return why Pacemaker would not act on this device."""
    if cluster.is_maintenance:
        return maintenance_problems(cluster)
    if not device.is_managed:
        return (
            Problem(
                "SAN-DEV-018",
                f"device {device.name} is unmanaged, by "
                f"{' and '.join(each.text for each in device.unmanaged_by)}: Pacemaker does not "
                "start, stop or move it",
                f"let Pacemaker manage it again: {deletions(device.unmanaged_by)}",
            ),
        )
    return ()


def kept_node_problems(
    cluster: Cluster, device: DeviceSpec, nodes: Collection[NodeName]
) -> tuple[Problem, ...]:
    """Return which of these nodes with a replica of this device Pacemaker leaves alone.

    No replica there is started, stopped, promoted or demoted, nor is it told of a change. Pacemaker
    may forget that such a node serves the device, and promote another one in vain (docs/adr/0087).
    """
    return tuple(kept_node_problem(node) for node in kept_nodes(cluster, device) if node in nodes)


def kept_nodes(cluster: Cluster, device: DeviceSpec) -> tuple[NodeName, ...]:
    """Return the nodes with a replica of a device that are in maintenance."""
    return tuple(node for node in device.nodes if cluster.mon.state(node) is NodeState.MAINTENANCE)


def kept_node_problem(node: NodeName) -> Problem:
    """Return that Pacemaker leaves a node alone, and how that ends."""
    return Problem(
        "SAN-DEV-018",
        f"node {node} is in maintenance: Pacemaker starts, stops and moves nothing there",
        end_of_node_maintenance(node),
    )


def end_of_node_maintenance(node: NodeName | str) -> str:
    """Say how the maintenance of one node is ended, and what to have instead of it."""
    return (
        f"end it: 'crm_attribute --node {node} --name maintenance --delete'. Where Pacemaker is to "
        "leave everything alone, put the whole cluster into maintenance mode: "
        "'crm_attribute --name maintenance-mode --update true'"
    )
