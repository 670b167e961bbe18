# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `node remove`: takes a stopped member out of Corosync, the CIB and the fencing.

Each step is derived from what is there, so that the command goes on where an interrupted one
stopped. The order: corosync.conf on every node that stays, one reload, the CIB's entry of the node,
its fencing devices. Fencing goes last: until Corosync has forgotten the node it may come back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sanctl.drivers import corosync
from sanctl.model.cib_change import Change, RemoveFencing, SetNodeAttribute
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName
from sanctl.model.topology import Topology
from sanctl.model.vote_mode import DROPPED_MEMBER_ATTRIBUTE
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.removal import (
    fencing_ids,
    is_removed,
    refuse_removal,
    staying_storage,
)
from sanctl.system.runner import Runner


def remove_node(
    session: Session,
    runner: Runner,
    topology: Topology,
    name: NodeName,
    *,
    here: str,
    accepted: Collection[str],
    timeout_s: float,
) -> bool:
    """Take a node out of the cluster; return whether anything was to change.

    Raises:
        Refused: the node is a member still, holds replicas, or another node cannot follow.
        CommandError: Corosync or Pacemaker refused a step.
        NotConverged: a node did not change its file in time, or the node's entry stays.
    """
    members = corosync.members(runner)

    def check(cluster: Cluster) -> None:
        refuse_removal(
            cluster,
            topology,
            name,
            members=corosync.members(runner),
            present=corosync.membership(runner).members,
            here=here,
            accepted=accepted,
        )

    begun = session.observe()
    if is_removed(begun, name, members) and topology.node(name) is not None:
        return False
    check(begun)
    deadline_s = session.clock.monotonic_s() + timeout_s
    if name.value in members:
        _leave_corosync(session, runner, topology, name, check, here=here, deadline_s=deadline_s)
    if any(node.name == name for node in session.observe().cib.nodes):
        session.reporter.update(f"removing {name} from the CIB")
        session.remove_node(name)
        session.wait(
            lambda seen: Progress(
                is_done=all(node.name != name for node in seen.cib.nodes),
                seen=f"the CIB has node {name}",
            ),
            waiting_for=f"Pacemaker to forget node {name}",
            timeout_s=max(0.0, deadline_s - session.clock.monotonic_s()),
        )

    def drop_fencing(cluster: Cluster) -> tuple[Change, ...]:
        return (RemoveFencing(node=name),) if fencing_ids(cluster, name) else ()

    session.change(drop_fencing)
    return True


def _leave_corosync(
    session: Session,
    runner: Runner,
    topology: Topology,
    name: NodeName,
    check: Callable[[Cluster], None],
    *,
    here: str,
    deadline_s: float,
) -> None:
    """Take the node out of every corosync.conf, and have the running Corosyncs load that."""
    storage = staying_storage(topology, name)

    def order(cluster: Cluster) -> tuple[Change, ...]:
        check(cluster)
        return tuple(
            SetNodeAttribute(node=node, attribute=DROPPED_MEMBER_ATTRIBUTE, value=name.value)
            for node in storage
        )

    session.change(order)
    if here not in {node.value for node in storage}:
        corosync.drop_member(name.value)

    def written(cluster: Cluster) -> Progress:
        left = [
            str(node.name)
            for node in cluster.cib.nodes
            if node.name in storage and DROPPED_MEMBER_ATTRIBUTE in node.attributes
        ]
        return Progress(is_done=not left, seen=f"not yet on {', '.join(left)}")

    seen = session.wait(
        written,
        waiting_for=f"every node to take {name} out of its corosync.conf",
        timeout_s=max(0.0, deadline_s - session.clock.monotonic_s()),
        look="nothing is unsafe: run the command again; an agent of an older release does not "
        "follow",
    )
    # It may have been started meanwhile.
    check(seen)
    corosync.reload(runner)
