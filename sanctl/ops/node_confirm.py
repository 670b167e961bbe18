# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `node confirm-off`: the cluster goes by a person who says that a node is off."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sanctl.drivers import corosync
from sanctl.drivers.stonith import StonithPort
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName
from sanctl.model.topology import Address, Topology
from sanctl.ops.session import Session
from sanctl.plan.cluster.confirmation import needs_confirmation, refuse_confirmation
from sanctl.plan.cluster.convergence import Progress
from sanctl.system.runner import Runner

#: Returns which addresses answer a ping from this node.
Ping = Callable[[Collection[Address]], frozenset[Address]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewpoint:
    """From where a node is looked for, and how.

    Attributes:
        here: this node.
        runner: runs programs here.
        topology: has the nodes' addresses.
        ping: asks addresses.
    """

    here: str
    runner: Runner
    topology: Topology
    ping: Ping


def check_confirmation(session: Session, viewpoint: Viewpoint, name: NodeName) -> Cluster:
    """Check that the cluster may be told that a node is off; return the cluster as observed.

    Raises:
        Refused: as `refuse_confirmation` says.
        CommandError: Corosync did not answer.
    """
    cluster = session.observe()
    known = viewpoint.topology.node(name)
    addresses = () if known is None else (*known.iscsi, known.sync, known.heartbeat)
    refuse_confirmation(
        cluster,
        name,
        here=viewpoint.here,
        membership=corosync.membership(viewpoint.runner),
        answering=[str(each) for each in viewpoint.ping(addresses)] if addresses else [],
    )
    return cluster


def confirm_off(
    session: Session,
    stonith: StonithPort,
    viewpoint: Viewpoint,
    name: NodeName,
    *,
    is_answered: bool,
    timeout_s: float,
) -> bool:
    """Have the cluster take a node for fenced, and wait until it does; return whether it had to.

    What was checked before a person was asked is checked again: minutes may have gone by. A command
    that dies after the fencer was told has told it; run again, it finds nothing to do.

    Without `is_answered` nobody was asked, as there was nothing to confirm at the first look.

    Raises:
        Refused: as `refuse_confirmation` says.
        CommandError: Corosync did not answer, or the fencer is not known to have been told.
        NotConverged: the cluster does not take the node for fenced in time.
    """
    cluster = check_confirmation(session, viewpoint, name)
    if not needs_confirmation(cluster, name):
        return False
    if not is_answered:
        raise Refused(
            Problem(
                "SAN-FEN-007",
                f"{name} has begun to wait for its fencing a moment ago",
                "give that a minute; if the fencing fails, run the command again",
            )
        )
    session.reporter.update(f"confirming that {name} is off")
    try:
        stonith.confirm_off(name.value)
    except CommandError as error:
        raise CommandError(
            Problem(
                "SAN-FEN-008",
                f"the cluster is not known to take {name} for fenced: {error.problems[0].text}",
                "'sanctl status' shows whether it does; if not, run the command again",
            )
        ) from error
    session.wait(
        lambda seen: Progress(
            is_done=not needs_confirmation(seen, name),
            seen=f"{name} is {seen.mon.state(name).value}",
        ),
        waiting_for=f"the cluster to take {name} for fenced",
        timeout_s=timeout_s,
        look="'journalctl -u pacemaker' on the DC ('crm_mon -1' names it) says why",
    )
    return True
