# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: the CIB change for node standby and online, and which devices would then stop."""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import Change, RemoveNodeAttribute, SetNodeAttribute
from sanctl.model.cib_names import STANDBY_ATTRIBUTE
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState
from sanctl.model.meta_attribute import deletions
from sanctl.model.names import DeviceName, NodeName
from sanctl.plan.cluster.preconditions import (
    existing_node,
    kept_node_problem,
    refuse_without_quorum,
)
from sanctl.plan.cluster.standby_reason import StandbyReason, node_state_text, standby_reason
from sanctl.plan.cluster.takeover import has_lasting_server, lost_without

ACCEPT_STOP = "SAN-NODE-004"


def stranded_devices(
    cluster: Cluster, name: NodeName, *, waits_until_s: float | None = None
) -> tuple[tuple[DeviceName, str], ...]:
    """Return the devices that would have no node to serve them without this one, and why.

    With `waits_until_s` without those that only a constraint keeps which may end before.
    """
    return tuple(
        (device.name, reason)
        for device in cluster.cib.devices
        if (reason := lost_without(cluster, device, name, waits_until_s=waits_until_s)) is not None
    )


def stop_problems(cluster: Cluster, name: NodeName) -> tuple[Problem, ...]:
    """Return which devices would stop, or may, if a node served nothing any more.

    Of a device that cannot be read nothing says where its other replicas are.
    """
    return (
        *(
            Problem(
                ACCEPT_STOP,
                f"device {device} would stop: no other node could take it over ({reason})",
                "wait until another node can, or put right what keeps it from that; or accept "
                f"that with --accept {ACCEPT_STOP}",
            )
            for device, reason in stranded_devices(cluster, name)
        ),
        *(
            Problem(
                ACCEPT_STOP,
                f"device {identifier} may stop: its entry in the CIB cannot be read ({reason}), so "
                f"whether another node than {name} can serve it is not known",
                "upgrade sanctl on this node if a later release made the entry; else correct it; "
                f"or accept that with --accept {ACCEPT_STOP}",
            )
            for identifier, reason in cluster.cib.unreadable
            if _may_need(cluster, identifier, name)
        ),
    )


def _may_need(cluster: Cluster, identifier: str, name: NodeName) -> bool:
    """Whether a device that cannot be read is served by a node, or has none but it that could."""
    if name.value in cluster.mon.active_nodes(identifier):
        return True
    is_there = any(each.node == name.value for each in cluster.mon.instances_of(identifier))
    return is_there and not has_lasting_server(cluster, identifier)


def plan_standby(
    cluster: Cluster, name: NodeName, *, accepted: Collection[str] = ()
) -> tuple[Change, ...]:
    """Return the change that puts a node into standby; nothing when it is in standby.

    Raises:
        Refused: a device would stop being served, or may, and that was not accepted; or the node
            is in maintenance, so that Pacemaker would take nothing off it.
    """
    node = existing_node(cluster, name)
    refuse_without_quorum(cluster)
    if cluster.mon.state(name) is NodeState.MAINTENANCE:
        raise Refused(kept_node_problem(name))
    if node.wants_standby:
        return ()
    problems = stop_problems(cluster, name)
    if problems and ACCEPT_STOP not in accepted:
        raise Refused(*problems)
    return (SetNodeAttribute(node=name, attribute=STANDBY_ATTRIBUTE, value="on"),)


def check_fencing(cluster: Cluster, name: NodeName) -> None:
    """Check that a node exists and that something could fence it.

    Raises:
        Refused: it does not, or nothing can.
    """
    existing_node(cluster, name)
    # A fencing device without a host list asks its hardware; it may be for this node.
    found = [f for f in cluster.cib.fencing if not f.targets or name.value in f.targets]
    if found and all(f.disabled_by for f in found):
        raise Refused(
            Problem(
                "SAN-FEN-004",
                f"each fencing device for node {name} is disabled: Pacemaker does not use it",
                deletions(tuple(sorted({each for f in found for each in f.disabled_by}))),
            )
        )
    if not found:
        raise Refused(
            Problem(
                "SAN-FEN-004",
                f"no fencing device is for node {name}",
                "run the rollout again with a fencing device for it",
            )
        )


def refuse_fencing(
    cluster: Cluster, name: NodeName, here: str, *, accepted: Collection[str] = ()
) -> None:
    """Check that a node may be fenced from this one.

    Raises:
        Refused: no such node, no fencing device for it, it is this node, no quorum here, or a
            device would or may stop being served.
    """
    check_fencing(cluster, name)
    if name.value == here:
        raise Refused(
            Problem(
                "SAN-FEN-005",
                f"{name} is this node: the command would end with it, and nobody would see whether "
                "it was fenced",
                f"run it on another node; to restart {name} in order: 'reboot'",
            )
        )
    # The fencer obeys without quorum, too: this part would cut off the node that serves.
    refuse_without_quorum(cluster)
    problems = stop_problems(cluster, name) if cluster.mon.state(name) in MEMBER_STATES else ()
    if problems and ACCEPT_STOP not in accepted:
        raise Refused(*problems)


def plan_online(cluster: Cluster, name: NodeName) -> tuple[Change, ...]:
    """Return the change that ends a node's standby; nothing where no change of the CIB ends it.

    Whether a transient attribute has to go, too, is in `Cib.standby_until_reboot`.

    Raises:
        Refused: no such node, no quorum, or a failed action keeps the node in standby.
    """
    node = existing_node(cluster, name)
    refuse_without_quorum(cluster)
    if STANDBY_ATTRIBUTE in node.attributes:
        return (RemoveNodeAttribute(node=name, attribute=STANDBY_ATTRIBUTE),)
    if standby_reason(cluster, name) is StandbyReason.FAILURE:
        raise Refused(
            Problem(
                "SAN-HLT-020",
                f"node {name} is {node_state_text(cluster, name)}: nothing that was ordered ends",
                f"see SAN-HLT-040 in 'sanctl status'; then 'crm_resource --cleanup --node {name}'",
            )
        )
    return ()
