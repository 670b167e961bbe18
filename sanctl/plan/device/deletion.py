# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: the next step of `device delete`: stop, leave tombstones, remove, await each node.

Order and reason: Pacemaker stops every instance *before* the configuration goes, because a resource
that vanishes while it runs is stopped without its parameters, that stop fails, and a failed stop is
answered by fencing the node. Then one change removes the configuration and leaves a tombstone for
each replica's node (`sanctl-delete-NAME`) that names exactly the files to remove. Both or neither:
at no moment is data left that the CIB knows nothing of. Each node's pool agent removes the files,
then its tombstone; an absent node does so when it is back.

Nothing is kept between the steps but the CIB, so an interrupted deletion is finished by running the
command again, from wherever it stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import Change, RemoveDevice, SetNodeAttribute, SetStopped
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.host_session import HostSession
from sanctl.model.names import DeviceName, NodeName
from sanctl.parse.cib import TOMBSTONE_PREFIX
from sanctl.plan.cluster.preconditions import (
    existing_device,
    kept_node_problems,
    quorum_problems,
    unmanaged_problems,
)
from sanctl.plan.device.clone_needs import needed_by_clones
from sanctl.plan.device.host_logins import host_logins

#: The refusal that an operator may accept.
HOSTS_LOGGED_IN = "SAN-DEV-023"
_NAMED = 8

#: Nodes in these states may run an instance that Pacemaker does not show. What an unclean node does
#: is unknown until it is fenced: it may still be writing. Of one that is joining nothing is known
#: before Pacemaker has asked what runs there: where its Pacemaker was started anew, all that ran
#: before still does, and would be stopped without its parameters.
_MAY_RUN = frozenset({NodeState.UNCLEAN, NodeState.PENDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStop:
    """Ask Pacemaker to stop all instances."""

    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitStop:
    """Instances still run, or may run on a node that is not yet fenced, or is joining."""

    running: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveConfiguration:
    """Nothing runs: remove the configuration, leave the tombstones."""

    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitDataRemoval:
    """Nodes whose pool agent runs have not removed the data yet."""

    here: tuple[NodeName, ...]
    away: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Done, except on absent nodes, which remove the data when they are back."""

    away: tuple[NodeName, ...]


DeletionStep = RequestStop | AwaitStop | RemoveConfiguration | AwaitDataRemoval | Deleted


def check_deletion(cluster: Cluster, name: DeviceName) -> None:
    """Check that a deletion can begin, or go on.

    Raises:
        Refused: there is no such device or tombstone, no quorum, the device is unmanaged, a
            node of it is in maintenance, or a clone is being made from a restore point of it.
    """
    if cluster.cib.device(name) is None and cluster.cib.tombstones_of(name):
        return
    device = existing_device(cluster, name)
    problems = [
        *quorum_problems(cluster),
        *unmanaged_problems(cluster, device),
        *kept_node_problems(cluster, device, device.nodes),
        *(() if device.is_deleting else needed_by_clones(cluster, cluster.cib.points_of(name))),
    ]
    if problems:
        raise Refused(*problems)


def refuse_deletions(cluster: Cluster, names: Sequence[DeviceName]) -> None:
    """Check that the deletion of each of these devices can begin, or go on.

    Raises:
        Refused: of one at least it cannot; the reasons of all are listed.
    """
    problems: list[Problem] = []
    for name in names:
        try:
            check_deletion(cluster, name)
        except Refused as error:
            problems.extend(error.problems)
    if problems:
        raise Refused(*dict.fromkeys(problems))


def uuids_of(cluster: Cluster, names: Sequence[DeviceName]) -> dict[DeviceName, str]:
    """Return which devices have these names now; those that are deleted already are left out."""
    found = {name: cluster.cib.device(name) for name in names}
    return {name: device.uuid for name, device in found.items() if device is not None}


def refuse_others(cluster: Cluster, shown: Mapping[DeviceName, str]) -> None:
    """Check that each device that is still there is the one that is to be deleted.

    Raises:
        Refused: one was deleted and created anew, while an operator was asked, say.
    """
    problems = [
        Problem(
            "SAN-DEV-022",
            f"device {name} is another one than the one to be deleted: it was created anew since",
            f"'sanctl device show {name}'; run the command again if this one is to go, too",
        )
        for name, uuid in uuids_of(cluster, tuple(shown)).items()
        if uuid != shown[name]
    ]
    if problems:
        raise Refused(*problems)


def refuse_while_logged_in(
    cluster: Cluster,
    names: Iterable[DeviceName],
    sessions: Mapping[str, Collection[HostSession]],
) -> None:
    """Check that no host is logged in to a device whose deletion has not begun yet.

    Such a host gets no error where its multipath queues: what it writes waits for a path. A device
    that is created under the same name has the same target name, and would get it.

    Args:
        cluster: as observed.
        names: the devices.
        sessions: of hosts, by node; a node that does not say is left out.

    Raises:
        Refused: one is, or a node with a replica does not say.
    """
    problems: list[Problem] = []
    for name in names:
        device = cluster.cib.device(name)
        if device is None or device.is_deleting:
            continue
        hosts, silent = host_logins(cluster, device, sessions)
        named = ", ".join([*hosts[:_NAMED], *(["..."] if len(hosts) > _NAMED else [])])
        what = [f"hosts are logged in to device {name}: {named}"] if hosts else []
        if silent:
            what.append(f"{', '.join(silent)} does not say who is logged in to device {name}")
        if what:
            problems.append(
                Problem(
                    HOSTS_LOGGED_IN,
                    "; ".join(what),
                    "stop what uses it there, unmount it, log out, and try again after half a "
                    "minute: what a host still writes waits for a path, and goes to a new device "
                    f"of the same name; --accept {HOSTS_LOGGED_IN} deletes it all the same",
                )
            )
    if problems:
        raise Refused(*problems)


def next_deletion_step(cluster: Cluster, name: DeviceName) -> DeletionStep:
    """Return what a deletion has to do next.

    Raises:
        Refused: a clone is being made from a restore point of the device, since the deletion was
            checked. Once the device is being deleted none is made any more.
    """
    device = cluster.cib.device(name)
    if device is None:
        stones = cluster.cib.tombstones_of(name)
        here = tuple(s.node for s in stones if cluster.is_pool_agent_running(s.node))
        away = tuple(s.node for s in stones if not cluster.is_pool_agent_running(s.node))
        return AwaitDataRemoval(here=here, away=away) if here else Deleted(away=away)
    if not device.is_deleting:
        needed = needed_by_clones(cluster, cluster.cib.points_of(name))
        if needed:
            raise Refused(*needed)
        return RequestStop(changes=(SetStopped(name=name),))
    running = {instance.node for instance in cluster.mon.instances_of(name)}
    members = {node.name for node in cluster.cib.nodes}
    running |= {
        node.value
        for node in device.nodes
        if (state := cluster.mon.state(node)) in _MAY_RUN
        or (state is NodeState.UNKNOWN and node in members)
    }
    if running:
        return AwaitStop(running=tuple(sorted(running)))
    return RemoveConfiguration(
        changes=(
            RemoveDevice(name=name),
            *(tombstone(device, node) for node in device.nodes if node in members),
        )
    )


def is_removal_due(steps: Iterable[DeletionStep]) -> bool:
    """Whether devices that are deleted together are to be removed now: none is still to stop.

    One change removes them all: Pacemaker answers each change of the section `nodes`, which has the
    tombstones, with an election of its DC (docs/adr/0046).
    """
    steps = tuple(steps)
    return any(isinstance(step, RemoveConfiguration) for step in steps) and not any(
        isinstance(step, RequestStop | AwaitStop) for step in steps
    )


def stop_changes(steps: Iterable[DeletionStep]) -> tuple[Change, ...]:
    """Return the changes by which those are stopped that are still to be asked for it."""
    return tuple(
        change for step in steps if isinstance(step, RequestStop) for change in step.changes
    )


def removal_changes(steps: Iterable[DeletionStep]) -> tuple[Change, ...]:
    """Return the changes by which those are removed that have stopped."""
    return tuple(
        change for step in steps if isinstance(step, RemoveConfiguration) for change in step.changes
    )


def tombstone(device: DeviceSpec, node: NodeName) -> Change:
    """Return the change by which a node's pool agent removes its replica's files."""
    return SetNodeAttribute(
        node=node,
        attribute=f"{TOMBSTONE_PREFIX}{device.name}",
        value=f"{device.uuid} {device.pool}",
    )
