# SPDX-License-Identifier: GPL-2.0-or-later
"""Deleting a device: which step is next, told from the cluster's state alone.

Order and reason: Pacemaker stops every instance *before* the configuration goes, because a resource
that vanishes while it runs is stopped without its parameters, that stop fails, and a failed stop is
answered by fencing the node. Then one change removes the configuration and leaves a note for each
replica's node (`sanctl-delete-NAME`) that names exactly the files to remove. Both or neither: no
moment exists in which data is left that nobody knows of. Each node's pool agent removes the files,
then its note; a node that is away does so when it is back.

Nothing is remembered between the steps but the CIB, so an interrupted deletion is finished by
running the command again, from wherever it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.errors import Refused
from sanctl.model.cib_change import Change, RemoveDevice, SetNodeAttribute, SetStopped
from sanctl.model.cluster import Cluster, NodeState
from sanctl.model.names import DeviceName, NodeName
from sanctl.parse.cib import TOMBSTONE_PREFIX
from sanctl.plan.cluster.preconditions import existing_device, unmanaged_problems
from sanctl.plan.device.creation import no_quorum_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStop:
    """Ask Pacemaker to stop all instances."""

    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitStop:
    """Instances still run, or may run on a node that is not yet fenced."""

    running: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Nothing runs: remove the configuration, leave the notes."""

    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitReap:
    """Nodes that are here have not removed the data yet."""

    here: tuple[NodeName, ...]
    away: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Done, but for nodes that are away and will remove the data when they are back."""

    away: tuple[NodeName, ...]


DeletionStep = AskStop | AwaitStop | Remove | AwaitReap | Deleted


def check_deletion(cluster: Cluster, name: DeviceName) -> None:
    """Check that a deletion can begin, or go on.

    Raises:
        Refused: there is nothing of that name, no quorum, or Pacemaker would not stop it.
    """
    if cluster.cib.device(name) is None and cluster.cib.tombstones_of(name):
        return
    device = existing_device(cluster, name)
    problems = list(unmanaged_problems(cluster, device))
    if not cluster.mon.has_quorum:
        problems.insert(0, no_quorum_problem())
    if problems:
        raise Refused(*problems)


def next_step(cluster: Cluster, name: DeviceName) -> DeletionStep:
    """Return what a deletion has to do next."""
    device = cluster.cib.device(name)
    if device is None:
        stones = cluster.cib.tombstones_of(name)
        here = tuple(s.node for s in stones if cluster.is_pool_agent_running(s.node))
        away = tuple(s.node for s in stones if not cluster.is_pool_agent_running(s.node))
        return AwaitReap(here=here, away=away) if here else Deleted(away=away)
    if not device.is_stopping:
        return AskStop(changes=(SetStopped(name=name),))
    running = {instance.node for instance in cluster.mon.instances_of(name)}
    # What an unclean node does is unknown until it is fenced: it may still be writing.
    running |= {node.value for node in device.nodes if cluster.mon.state(node) is NodeState.UNCLEAN}
    if running:
        return AwaitStop(running=tuple(sorted(running)))
    members = {node.name for node in cluster.cib.nodes}
    return Remove(
        changes=(
            RemoveDevice(name=name),
            *(
                SetNodeAttribute(
                    node=node,
                    attribute=f"{TOMBSTONE_PREFIX}{name}",
                    value=f"{device.uuid} {device.pool}",
                )
                for node in device.nodes
                if node in members
            ),
        )
    )
