# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: the next step of `device replicas` or `node replace`: add, drop, move or wait.

A step is one atomic change of the CIB: the list of replica nodes, the number of instances and the
rule that keeps the device from all other nodes change together. The step does not restart the
Primary's instance; its agent connects DRBD to the new list (sanctl/agents/connections/peers.py).
Nothing is kept between the steps but the CIB, so that the same command, run again, goes on from
wherever it stopped: `replicas` is how many replicas are wanted, `nodes` where they are, complete or
still resyncing.

The order of the steps:

* Replicas are added one at a time: each is in sync before the next one is added, or DRBD 9 would
  count two that it does not see yet against one that it does, and freeze I/O.
* A replica is added before one is dropped, wherever DRBD has room for it, and the new one is in
  sync before the old one is dropped. DRBD 8.4 has room for two: there a replica that moves is
  dropped first, and the operator has to accept the missing redundancy meanwhile.
* The last replica that is known to be up to date is never dropped
  (sanctl/plan/replicas/replica_safety.py). Nor is one dropped whose writes the last one may have in
  RAM alone.
* The Primary's replica is never dropped: first the active role moves to a good replica that stays.
* The change that adds a replica marks it as outdated: it may not serve before the Primary has it in
  sync, and clears the mark.
* The change that drops a replica leaves a tombstone for its node's pool agent (see deletion.py),
  which removes the data, bitmap and all. As long as the tombstone is there the node gets no new
  replica: the old one could be mistaken for it, and its old bitmap tells what to resync of other
  data.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import (
    AddMove,
    Change,
    RemoveMark,
    RemoveMove,
    RemoveNodeAttribute,
    RemovePreference,
    SetMark,
    SetNodes,
)
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.topology import Topology
from sanctl.parse.cib import DISCARD_PREFIX, REVIVE_PREFIX
from sanctl.plan.cluster.convergence import replicas_text
from sanctl.plan.cluster.preconditions import existing_device, refuse_unless_changeable
from sanctl.plan.device.alteration import plan_move
from sanctl.plan.device.clone_needs import needed_by_clones
from sanctl.plan.device.deletion import tombstone
from sanctl.plan.device.restore_points import only_holder_problems
from sanctl.plan.device.restore_refusals import refuse_while_restoring
from sanctl.plan.drbd.version_limits import drbd_version_problem, replica_limit
from sanctl.plan.replicas.replica_choice import ReplicaRequest, target_nodes
from sanctl.plan.replicas.replica_safety import (
    RISK_FEWER_REPLICAS,
    drop_problems,
    in_ram_problem,
    is_known_stable,
    is_known_up_to_date,
    lacks_flush_alone,
    lacks_majority,
    majority_problem,
    may_be_in_ram_alone,
    may_become_stable,
    may_become_up_to_date,
    new_replica_problems,
    source_problems,
    up_to_date_primary,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeReplicas:
    """Make these changes; `words` describe them."""

    changes: tuple[Change, ...]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitRole:
    """No node is shown as serving, and one is about to be.

    A move is under way. Or DRBD is Primary and Pacemaker does not show it yet: Pacemaker records a
    reload as a start, and promotes the Primary once more, which changes nothing there.
    """

    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitMove:
    """The active role is moving to a replica that stays."""

    to: NodeName
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitSync:
    """Replicas are resyncing."""

    nodes: tuple[NodeName, ...]
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitDroppedData:
    """Nodes whose pool agent runs still have the data of a dropped replica."""

    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasReached:
    """All is as requested; absent nodes remove their dropped replica when they are back."""

    away: tuple[NodeName, ...]


ReplicaStep = (
    ChangeReplicas | AwaitRole | AwaitMove | AwaitSync | AwaitDroppedData | ReplicasReached
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step depends on besides the cluster.

    Attributes:
        topology: cluster.toml.
        drbd_version: of the loaded DRBD, None where none is.
        accepted: the codes that were accepted.
        now_s: seconds since 1970.
    """

    topology: Topology
    drbd_version: str | None
    accepted: frozenset[str] = frozenset()
    now_s: float = 0.0


def next_replica_step(
    cluster: Cluster, name: DeviceName, request: ReplicaRequest, context: StepContext
) -> ReplicaStep:
    """Return what has to be done next to give a device the replicas that were requested.

    Raises:
        Refused: it cannot be done, or would endanger data; all reasons are listed.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    lacking = drbd_version_problem(request.replicas, context.drbd_version)
    if lacking is not None:
        raise Refused(lacking)
    target = target_nodes(cluster, context.topology, device, request, accepted=context.accepted)
    adds = tuple(node for node in target if node not in device.nodes)
    drops = tuple(node for node in device.nodes if node not in target)
    if not adds and not drops:
        return _last_step(cluster, device, request)
    refuse_while_restoring(cluster, device)
    if cluster.active_node(name) is None and _is_between_roles(cluster, device, context.now_s):
        return AwaitRole(seen=replicas_text(cluster, device))
    has_room = len(device.nodes) < replica_limit(context.drbd_version)
    # Replicas that are gone count in DRBD's total only, and could cost the majority.
    has_room &= not (drops and lacks_majority(cluster, device, (*device.nodes, *adds[:1])))
    if adds and has_room:
        return _add(cluster, device, adds[0], request, context)
    # What could not be added in its place afterwards costs no replica.
    unable = [
        each
        for node in adds
        for each in new_replica_problems(cluster, device, node, context.accepted)
    ]
    if unable:
        raise Refused(*unable)
    return _drop(cluster, device, drops, request, context)


def _is_between_roles(cluster: Cluster, device: DeviceSpec, now_s: float) -> bool:
    return cluster.cib.move_under_way(device.name, now_s) is not None or any(
        cluster.replica(device.name, node).role == "Primary" for node in device.nodes
    )


def _last_step(cluster: Cluster, device: DeviceSpec, request: ReplicaRequest) -> ReplicaStep:
    if device.replicas != request.replicas:
        return ChangeReplicas(
            changes=(SetNodes(name=device.name, nodes=device.nodes, replicas=request.replicas),),
            words=f"device {device.name} is to have {request.replicas}",
        )
    behind = tuple(node for node in device.nodes if not is_known_up_to_date(cluster, device, node))
    if behind:
        return AwaitSync(nodes=behind, seen=replicas_text(cluster, device))
    stones = [s.node for s in cluster.cib.tombstones_of(device.name)]
    here = tuple(node for node in stones if cluster.is_pool_agent_running(node))
    return AwaitDroppedData(nodes=here) if here else ReplicasReached(away=tuple(stones))


def _add(
    cluster: Cluster,
    device: DeviceSpec,
    node: NodeName,
    request: ReplicaRequest,
    context: StepContext,
) -> ReplicaStep:
    nodes = (*device.nodes, node)
    problems = list(source_problems(cluster, device))
    if not problems and lacks_majority(cluster, device, nodes):
        filling = tuple(
            each for each in device.nodes if may_become_up_to_date(cluster, device, each)
        )
        if filling:
            return AwaitSync(nodes=filling, seen=replicas_text(cluster, device))
        problems.append(majority_problem(cluster, device, nodes))
    server = up_to_date_primary(cluster, device)
    size = None if server is None else cluster.replica(device.name, server).size_bytes
    if server is not None and size != device.size.bytes:
        problems.append(
            Problem(
                "SAN-REP-005",
                f"device {device.name} is to have {device.size}, and has not grown to that yet",
                "wait until it has: 'sanctl status'",
            )
        )
    problems.extend(new_replica_problems(cluster, device, node, context.accepted))
    if problems:
        raise Refused(*problems)
    # Not before the Primary has it in sync may it serve, whatever its node holds: files of an
    # earlier replica, say, whose tombstone went with the node's entry ('sanctl node remove').
    mark = SetMark(name=device.name, node=node, uuid=device.uuid)
    return ChangeReplicas(
        changes=(
            SetNodes(name=device.name, nodes=nodes, replicas=request.replicas),
            *(() if cluster.is_marked(device, node) else (mark,)),
        ),
        words=f"adding a replica of {device.name} on {node}",
    )


def _drop(
    cluster: Cluster,
    device: DeviceSpec,
    drops: tuple[NodeName, ...],
    request: ReplicaRequest,
    context: StepContext,
) -> ReplicaStep:
    kept = tuple(node for node in device.nodes if node not in drops)
    filling = tuple(node for node in kept if may_become_stable(cluster, device, node))
    loses = any(is_known_up_to_date(cluster, device, node) for node in drops)
    remaining = sum(is_known_stable(cluster, device, node) for node in kept)
    flushed = tuple(node for node in kept if lacks_flush_alone(cluster, device, node))
    # What filled the last good replica may be away, and not known up to date any more.
    awaited = filling if loses and remaining < request.replicas else () if remaining else flushed
    if awaited:
        seen = replicas_text(cluster, device)
        if flushed:
            seen += f"; what the resync wrote on {_listed(flushed)} is being flushed"
        return AwaitSync(nodes=awaited, seen=seen)
    problems = [
        *drop_problems(cluster, device, drops),
        *only_holder_problems(cluster, device, drops),
        *needed_by_clones(cluster, cluster.cib.points_of(device.name), on=drops),
    ]
    if loses and 0 < remaining < request.replicas and RISK_FEWER_REPLICAS not in context.accepted:
        problems.append(
            Problem(
                RISK_FEWER_REPLICAS,
                f"device {device.name}: from dropping the replica on {_listed(drops)} until a new "
                f"one is in sync there is only {_listed(kept)}; if that fails, the device is lost",
                "DRBD 9 adds the new replica first; "
                f"or accept that with --accept {RISK_FEWER_REPLICAS}",
            )
        )
    in_ram = may_be_in_ram_alone(cluster, device, kept)
    if in_ram is not None:
        problems.append(in_ram_problem(device, in_ram))
    if not problems and loses and lacks_majority(cluster, device, kept):
        problems.append(majority_problem(cluster, device, kept))
    if problems:
        raise Refused(*problems)
    active = cluster.active_node(device.name)
    if active is not None and active in {node.value for node in drops}:
        return _move_away(cluster, device, kept, context)
    return ChangeReplicas(
        changes=(
            SetNodes(name=device.name, nodes=kept, replicas=request.replicas),
            *_removals(cluster, device, drops),
        ),
        words=f"dropping the replica of {device.name} on {_listed(drops)}",
    )


def _move_away(
    cluster: Cluster, device: DeviceSpec, kept: tuple[NodeName, ...], context: StepContext
) -> ReplicaStep:
    good = [node for node in kept if is_known_stable(cluster, device, node)]
    move = cluster.cib.move_under_way(device.name, context.now_s)
    if move is not None and move.node in {node.value for node in good}:
        return AwaitMove(to=NodeName.parse(move.node), seen=replicas_text(cluster, device))
    refusal: Refused | None = None
    for node in good:
        try:
            changes = plan_move(cluster, device.name, node, now_s=context.now_s)
        except Refused as error:
            refusal = error
            continue
        assert any(isinstance(change, AddMove) for change in changes)
        return ChangeReplicas(changes=changes, words=f"moving {device.name} to {node} first")
    assert refusal is not None, "a replica that may be dropped leaves a good one"
    raise refusal


def _removals(
    cluster: Cluster, device: DeviceSpec, drops: Collection[NodeName]
) -> tuple[Change, ...]:
    """Return what goes with dropped replicas: data, node attributes, move and preference."""
    members = {node.name: node for node in cluster.cib.nodes}
    changes: list[Change] = []
    if cluster.cib.move(device.name) is not None:
        changes.append(RemoveMove(name=device.name))
    if device.prefer in drops:
        changes.append(RemovePreference(name=device.name))
    for node in drops:
        if node not in members:
            continue  # removed from the cluster for good
        changes.append(tombstone(device, node))
        changes.append(RemoveMark(name=device.name, node=node))
        changes += [
            RemoveNodeAttribute(node=node, attribute=attribute)
            for prefix in (DISCARD_PREFIX, REVIVE_PREFIX)
            if (attribute := f"{prefix}{device.name}") in members[node].attributes
        ]
    return tuple(changes)


def _listed(nodes: Collection[NodeName]) -> str:
    return ", ".join(map(str, nodes))
