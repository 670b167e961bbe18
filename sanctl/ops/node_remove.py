# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `node remove`: takes a stopped member out of Corosync, the CIB and the fencing.

Each step is derived from what is there, so that the command goes on where an interrupted one
stopped. The order: corosync.conf on every node that stays, one reload, the CIB's entry of the node,
its fencing devices. Fencing goes last: until Corosync has forgotten the node it may come back. A
command that ends before the reload takes back what it has told the nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection

from sanctl.drivers import corosync
from sanctl.errors import NotConverged, Problem, SanctlError
from sanctl.model.cib_change import Change, RemoveFencing, RemoveNodeAttribute, SetNodeAttribute
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

_POLL_S = 0.5


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
        NotConverged: a node did not change its file in time, Corosync keeps the node in its list
            after the reload, or the node's entry stays.
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
    storage, is_loaded = staying_storage(topology, name), False
    try:
        _write_files(session, storage, name, check, deadline_s=deadline_s)
        if here not in {node.value for node in storage}:
            # A witness, as the last one: nobody reports a file of its that lacks the node.
            corosync.drop_member(name.value)
        corosync.reload(runner)
        is_loaded = True
    finally:
        if not is_loaded:
            _withdraw(session, storage, name)
    _await_reload(session, runner, storage, name, deadline_s=deadline_s)


def _write_files(
    session: Session,
    storage: Collection[NodeName],
    name: NodeName,
    check: Callable[[Cluster], None],
    *,
    deadline_s: float,
) -> None:
    """Have every storage node write its corosync.conf without the node; none is loaded yet."""

    def order(cluster: Cluster) -> tuple[Change, ...]:
        check(cluster)
        return tuple(
            SetNodeAttribute(node=node, attribute=DROPPED_MEMBER_ATTRIBUTE, value=name.value)
            for node in storage
        )

    session.change(order)

    def written(cluster: Cluster) -> Progress:
        # The order's end alone is no proof, as another command may have withdrawn it; nor is the
        # list alone, which a node may have published before its file was written back.
        ordered = {
            node.name for node in cluster.cib.nodes if DROPPED_MEMBER_ATTRIBUTE in node.attributes
        }
        left = [
            str(node)
            for node in storage
            if node in ordered
            or not (members := cluster.votes_of(node).written)
            or name.value in members
        ]
        return Progress(is_done=not left, seen=f"not yet on {', '.join(left)}")

    seen = session.wait(
        written,
        waiting_for=f"every node to take {name} out of its corosync.conf",
        timeout_s=max(0.0, deadline_s - session.clock.monotonic_s()),
        look="the others' orders are withdrawn, and no Corosync was reloaded. As long as "
        f"{name} is stopped, run the command again; before {name} starts again, run site.yml, "
        "which writes it back (SAN-HLT-083). An agent of an older release does not follow",
    )
    # It may have been started meanwhile.
    check(seen)


def _withdraw(session: Session, storage: Collection[NodeName], name: NodeName) -> None:
    """Take back the orders that stand, so that no node follows late, when the node is back.

    Best effort: what had ended the command is what its caller has to hear of. `sanctl status` tells
    of an order that is left (SAN-HLT-084).
    """

    def withdrawal(cluster: Cluster) -> tuple[Change, ...]:
        return tuple(
            RemoveNodeAttribute(node=node.name, attribute=DROPPED_MEMBER_ATTRIBUTE)
            for node in cluster.cib.nodes
            if node.name in storage and node.attributes.get(DROPPED_MEMBER_ATTRIBUTE) == name.value
        )

    with contextlib.suppress(SanctlError):
        session.change(withdrawal, reads_replicas=False)


def _await_reload(
    session: Session,
    runner: Runner,
    storage: Collection[NodeName],
    name: NodeName,
    *,
    deadline_s: float,
) -> None:
    """Wait until every node's Corosync has forgotten the node: else Pacemaker must not.

    This node's is asked; the others publish it. A command that reloads Corosync goes by what they
    publish, too, and would be refused before (SAN-NODE-011).

    Raises:
        NotConverged: one has not in time.
    """
    look = "'journalctl -u corosync' on each node says what it refused; then run the command again"
    while name.value in corosync.members(runner):
        if session.clock.monotonic_s() >= deadline_s:
            raise NotConverged(
                Problem(
                    "SAN-WAIT-001",
                    f"Corosync has reloaded its configuration, and {name} is still in its list",
                    look,
                )
            )
        session.clock.sleep(_POLL_S)

    def forgotten(cluster: Cluster) -> Progress:
        left = [str(node) for node in storage if name.value in cluster.votes_of(node).loaded]
        return Progress(is_done=not left, seen=f"not yet on {', '.join(left)}")

    session.wait(
        forgotten,
        waiting_for=f"every Corosync to forget {name}",
        timeout_s=max(0.0, deadline_s - session.clock.monotonic_s()),
        look=look,
    )
