# SPDX-License-Identifier: GPL-2.0-or-later
"""Changing how many copies a device has, and where: which step is next, told from the cluster.

A step is one atomic change of the CIB: the nodes that agents are told of, the number of instances
and the rule that keeps the device from all other nodes change together. The agent that serves is
not restarted by it; it brings DRBD in line (sanctl/agents/connections/peers.py). Nothing is
remembered
between the steps but the CIB, so that the same command, run again, goes on from wherever it
stopped: `replicas` is how many copies are wanted, `nodes` where they are or are being filled.

The order of the steps:

* Copies are added one at a time: each is in sync before the next one comes, or DRBD 9 would count
  two that it does not see yet against one that it does, and freeze I/O.
* A copy is added before one is dropped, wherever DRBD has room for it, and the new one is in sync
  before the old one goes. DRBD 8.4 has room for two: there a copy that moves is dropped first, and
  what is lost meanwhile has to be accepted.
* The last copy that is known to be up to date is never dropped
  (sanctl/plan/replicas/replica_safety.py).
* Who serves is never dropped: the active role moves to a good copy that stays, first.
* What is dropped leaves a note for its node's pool agent (a tombstone, see deletion.py) in the same
  change, which removes the data, bitmap and all. As long as that note is there the node gets no new
  copy: it could be mistaken for the old one, and old bits say what to copy of other data.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import (
    AddMove,
    Change,
    RemoveMove,
    RemoveNodeAttribute,
    RemovePreference,
    SetNodeAttribute,
    SetNodes,
)
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.topology import Topology
from sanctl.parse.cib import DISCARD_PREFIX, OUTDATED_PREFIX, REVIVE_PREFIX, TOMBSTONE_PREFIX
from sanctl.plan.cluster.convergence import describe
from sanctl.plan.cluster.preconditions import existing_device, refuse_unless_changeable
from sanctl.plan.device.alteration import plan_move
from sanctl.plan.drbd.drbd_limits import copies_limit, generation_problem
from sanctl.plan.replicas.replica_choice import LevelRequest, target_nodes
from sanctl.plan.replicas.replica_safety import (
    RISK_FEWER_COPIES,
    drop_problems,
    is_filling,
    is_good,
    lacks_majority,
    majority_problem,
    new_copy_problems,
    server_of,
    source_problems,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alter:
    """Make these changes; `words` say what they do."""

    changes: tuple[Change, ...]
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitRole:
    """No node is shown as serving, and one is about to be.

    A move is under way. Or DRBD is Primary and Pacemaker does not show it yet: it notes a reload as
    a start, and promotes what was promoted once more; the agent has nothing to do then.
    """

    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitMove:
    """The active role is on its way to a copy that stays."""

    to: NodeName
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitSync:
    """Copies are being filled."""

    nodes: tuple[NodeName, ...]
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitReap:
    """Nodes that are here still have the data of a dropped copy."""

    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """All is as asked; nodes that are away remove their copy when they are back."""

    away: tuple[NodeName, ...]


LevelStep = Alter | AwaitRole | AwaitMove | AwaitSync | AwaitReap | Reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
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


def next_step(
    cluster: Cluster, name: DeviceName, request: LevelRequest, setting: Setting
) -> LevelStep:
    """Return what has to be done next to give a device the copies that were asked for.

    Raises:
        Refused: it cannot be done, or would endanger data; all reasons are listed.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    lacking = generation_problem(request.replicas, setting.drbd_version)
    if lacking is not None:
        raise Refused(lacking)
    target = target_nodes(cluster, setting.topology, device, request)
    adds = tuple(node for node in target if node not in device.nodes)
    drops = tuple(node for node in device.nodes if node not in target)
    if not adds and not drops:
        return _last_step(cluster, device, request)
    if cluster.active_node(name) is None and _is_between_roles(cluster, device):
        return AwaitRole(seen=describe(cluster, device))
    has_room = len(device.nodes) < copies_limit(setting.drbd_version)
    # Those that are gone only count against the ones that are left.
    has_room &= not (drops and lacks_majority(cluster, device, (*device.nodes, *adds[:1])))
    if adds and has_room:
        return _add(cluster, device, adds[0], request)
    return _drop(cluster, device, drops, request, setting)


def _is_between_roles(cluster: Cluster, device: DeviceSpec) -> bool:
    return cluster.cib.move(device.name) is not None or any(
        cluster.replica(device.name, node).role == "Primary" for node in device.nodes
    )


def _last_step(cluster: Cluster, device: DeviceSpec, request: LevelRequest) -> LevelStep:
    if device.replicas != request.replicas:
        return Alter(
            changes=(SetNodes(name=device.name, nodes=device.nodes, replicas=request.replicas),),
            words=f"device {device.name} is to have {request.replicas}",
        )
    behind = tuple(node for node in device.nodes if not is_good(cluster, device, node))
    if behind:
        return AwaitSync(nodes=behind, seen=describe(cluster, device))
    stones = [s.node for s in cluster.cib.tombstones_of(device.name)]
    here = tuple(node for node in stones if cluster.is_pool_agent_running(node))
    return AwaitReap(nodes=here) if here else Reached(away=tuple(stones))


def _add(cluster: Cluster, device: DeviceSpec, node: NodeName, request: LevelRequest) -> LevelStep:
    nodes = (*device.nodes, node)
    problems = list(source_problems(cluster, device))
    if not problems and lacks_majority(cluster, device, nodes):
        filling = tuple(each for each in device.nodes if is_filling(cluster, device, each))
        if filling:
            return AwaitSync(nodes=filling, seen=describe(cluster, device))
        problems.append(majority_problem(cluster, device, nodes))
    server = server_of(cluster, device)
    size = None if server is None else cluster.replica(device.name, server).size_bytes
    if server is not None and size != device.size.bytes:
        problems.append(
            Problem(
                "SAN-REP-005",
                f"device {device.name} is to have {device.size}, and has not grown to that yet",
                "wait until it has: 'sanctl status'",
            )
        )
    problems.extend(new_copy_problems(cluster, device, node))
    if problems:
        raise Refused(*problems)
    return Alter(
        changes=(SetNodes(name=device.name, nodes=nodes, replicas=request.replicas),),
        words=f"adding a copy of {device.name} on {node}",
    )


def _drop(
    cluster: Cluster,
    device: DeviceSpec,
    drops: tuple[NodeName, ...],
    request: LevelRequest,
    setting: Setting,
) -> LevelStep:
    kept = tuple(node for node in device.nodes if node not in drops)
    filling = tuple(node for node in kept if is_filling(cluster, device, node))
    loses = any(is_good(cluster, device, node) for node in drops)
    remaining = sum(is_good(cluster, device, node) for node in kept)
    if loses and filling and remaining < request.replicas:
        return AwaitSync(nodes=filling, seen=describe(cluster, device))
    problems = list(drop_problems(cluster, device, drops))
    if loses and 0 < remaining < request.replicas and RISK_FEWER_COPIES not in setting.accepted:
        problems.append(
            Problem(
                RISK_FEWER_COPIES,
                f"device {device.name}: from dropping the copy on {_listed(drops)} until a new one "
                f"is in sync there is only {_listed(kept)}; if that fails, the device is lost",
                f"DRBD 9 adds the new copy first; or accept that with --accept {RISK_FEWER_COPIES}",
            )
        )
    if not problems and loses and lacks_majority(cluster, device, kept):
        problems.append(majority_problem(cluster, device, kept))
    if problems:
        raise Refused(*problems)
    active = cluster.active_node(device.name)
    if active is not None and active in {node.value for node in drops}:
        return _move_away(cluster, device, kept, setting)
    return Alter(
        changes=(
            SetNodes(name=device.name, nodes=kept, replicas=request.replicas),
            *_farewell(cluster, device, drops),
        ),
        words=f"dropping the copy of {device.name} on {_listed(drops)}",
    )


def _move_away(
    cluster: Cluster, device: DeviceSpec, kept: tuple[NodeName, ...], setting: Setting
) -> LevelStep:
    good = [node for node in kept if is_good(cluster, device, node)]
    move = cluster.cib.move(device.name)
    if move is not None and move.node in {node.value for node in good}:
        return AwaitMove(to=NodeName.parse(move.node), seen=describe(cluster, device))
    refusal: Refused | None = None
    for node in good:
        try:
            changes = plan_move(cluster, device.name, node, now_s=setting.now_s)
        except Refused as error:
            refusal = error
            continue
        assert any(isinstance(change, AddMove) for change in changes)
        return Alter(changes=changes, words=f"moving {device.name} to {node} first")
    assert refusal is not None, "a copy that may be dropped leaves a good one"
    raise refusal


def _farewell(
    cluster: Cluster, device: DeviceSpec, drops: Collection[NodeName]
) -> tuple[Change, ...]:
    """Return what goes with copies: their data, what is noted of them, what pulls to them."""
    members = {node.name: node for node in cluster.cib.nodes}
    changes: list[Change] = []
    if cluster.cib.move(device.name) is not None:
        changes.append(RemoveMove(name=device.name))
    if device.prefer in drops:
        changes.append(RemovePreference(name=device.name))
    for node in drops:
        if node not in members:
            continue  # removed from the cluster for good
        changes.append(
            SetNodeAttribute(
                node=node,
                attribute=f"{TOMBSTONE_PREFIX}{device.name}",
                value=f"{device.uuid} {device.pool}",
            )
        )
        changes += [
            RemoveNodeAttribute(node=node, attribute=attribute)
            for prefix in (OUTDATED_PREFIX, DISCARD_PREFIX, REVIVE_PREFIX)
            if (attribute := f"{prefix}{device.name}") in members[node].attributes
        ]
    return tuple(changes)


def _listed(nodes: Collection[NodeName]) -> str:
    return ", ".join(map(str, nodes))
