# SPDX-License-Identifier: GPL-2.0-or-later
"""The choice of `device heal`: which replica to keep of diverged or blocked ones, and its loss.

The order to discard the other replica is carried out in sanctl/agents/recovery/heal.py.

Two conditions need an operator. *Diverged*: both replicas took writes the other does not have, so
DRBD refuses to connect them. *Blocked*: no replica may be served, because each is marked as
outdated, knows itself to be behind, is on a node that is gone, or has never connected to the one
that is gone since it was started, in a cluster whose quorums need not intersect
(sanctl/agents/fencing/quorum_overlap.py).

The operator names the replica to keep. One change of the CIB then does three things at once, so
that at no moment both replicas may be served: the kept one loses its mark, the other gets one, and
the other's node gets the order to discard exactly the generation that the operator was shown. A
choice that would lose nothing is still a choice: no replica is discarded that was not named.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import Change, RemoveNodeAttribute, SetNodeAttribute
from sanctl.model.cluster import MEMBER_STATES, Cluster, NodeState
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.names import DeviceName, NodeName, format_bytes
from sanctl.parse.cib import DISCARD_PREFIX, OUTDATED_PREFIX, REVIVE_PREFIX
from sanctl.plan.cluster.preconditions import (
    existing_device,
    no_replica_problem,
    refuse_unless_changeable,
)
from sanctl.plan.drbd.data_generations import (
    Generations,
    Relation,
    compare_generations,
    parse_generations,
)

ACCEPT_SERVED = "SAN-HEAL-004"
# What DRBD lets become Primary, by itself or when told that it may.
_USABLE = frozenset({"UpToDate", "Consistent", "Outdated"})
_GOOD = frozenset({"UpToDate", "Consistent"})
# Good as far as the replica knows; its knowledge may be old.
_UNCONFIRMED = "Consistent"
# The loss can be told for so many replicas.
_COMPARED = 2


class Condition(StrEnum):
    """What is wrong with a device's replicas."""

    SOUND = "sound"
    """Nothing that an operator has to decide; connections may be down."""
    DIVERGED = "diverged"
    UNRELATED = "unrelated"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFacts:
    """One replica, as far as it is known."""

    node: NodeName
    state: NodeState
    replica: ReplicaState
    generations: Generations | None
    is_marked: bool
    serves: bool
    is_never_connected: bool = False
    """Never connected since its start, and quorums need not intersect: its mark may be missing."""

    @property
    def is_present(self) -> bool:
        """Whether its node is a member and can act."""
        return self.state in MEMBER_STATES

    @property
    def may_serve(self) -> bool:
        """Whether Pacemaker could promote the replica as it is."""
        return (
            self.is_present
            and not self.is_marked
            and not self.replica.is_suspect
            and self.replica.disk in _GOOD
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A device's condition, with all its replicas."""

    device: DeviceSpec
    condition: Condition
    replicas: tuple[ReplicaFacts, ...]

    def replica_on(self, node: NodeName) -> ReplicaFacts | None:
        """Return what is known of the replica on a node; None where it has none."""
        return next((facts for facts in self.replicas if facts.node == node), None)

    @property
    def key(self) -> tuple[object, ...]:
        """What must not change between what an operator is shown and what is done."""
        return (
            self.condition,
            tuple(
                (
                    facts.node,
                    facts.is_present,
                    facts.replica.disk,
                    facts.replica.is_suspect,
                    facts.generations,
                    facts.serves,
                )
                for facts in self.replicas
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What keeping one replica would lose: of which node, as text, and how much at most."""

    node: NodeName
    text: str
    bytes_at_most: int | None
    """None: not known."""


def diagnose(cluster: Cluster, device: DeviceSpec) -> Diagnosis:
    """Compare a device's replicas."""
    replicas = tuple(_facts(cluster, device, node) for node in device.nodes)
    return Diagnosis(device=device, condition=_condition(replicas), replicas=replicas)


def _facts(cluster: Cluster, device: DeviceSpec, node: NodeName) -> ReplicaFacts:
    replica = cluster.replica(device.name, node)
    return ReplicaFacts(
        node=node,
        state=cluster.mon.state(node),
        replica=replica,
        generations=parse_generations(replica.generations or ""),
        is_marked=any(
            mark.device == device.name.value and mark.node == node and mark.uuid == device.uuid
            for mark in cluster.cib.outdated
        ),
        serves=node.value in cluster.mon.active_nodes(device.name),
        is_never_connected=replica.disk == _UNCONFIRMED and not _quorums_intersect(cluster, node),
    )


def _quorums_intersect(cluster: Cluster, node: NodeName) -> bool:
    live = cluster.votes_of(node).live
    return live is None or live.votes.quorums_intersect


def _condition(replicas: tuple[ReplicaFacts, ...]) -> Condition:
    relation = _relation(replicas)
    if relation is Relation.DIVERGED:
        return Condition.DIVERGED
    if relation is Relation.UNRELATED:
        return Condition.UNRELATED
    if any(facts.serves or _may_serve(facts, replicas) for facts in replicas):
        return Condition.SOUND
    # A replica of which nothing is known may be the good one, just starting; a resync that runs
    # ends, and its target may serve then. An agent's first monitor publishes which data it holds.
    undecided = any(
        facts.state is NodeState.UNCLEAN
        or facts.state is NodeState.PENDING
        or (facts.is_present and facts.replica.disk is None)
        or (facts.is_never_connected and facts.generations is None)
        for facts in replicas
    )
    usable = any(facts.is_present and facts.replica.disk in _USABLE for facts in replicas)
    return Condition.BLOCKED if usable and not undecided else Condition.SOUND


def _may_serve(facts: ReplicaFacts, replicas: tuple[ReplicaFacts, ...]) -> bool:
    if facts.is_never_connected and not any(
        each.is_present for each in replicas if each is not facts
    ):
        return False
    return facts.may_serve


def _relation(replicas: tuple[ReplicaFacts, ...]) -> Relation | None:
    if len(replicas) != 2 or any(facts.replica.is_connected for facts in replicas):
        return None
    mine, theirs = (facts.generations if facts.is_present else None for facts in replicas)
    return compare_generations(mine, theirs) if mine is not None and theirs is not None else None


def loss_of_keeping(diagnosis: Diagnosis, keep: NodeName) -> Loss:
    """Return what keeping one node's replica would lose.

    Raises:
        Refused: that replica cannot be kept, with the reason.
    """
    kept = diagnosis.replica_on(keep)
    device = diagnosis.device
    if kept is None:
        raise Refused(no_replica_problem(device, keep))
    if diagnosis.condition is Condition.SOUND:
        raise Refused(
            Problem(
                "SAN-HEAL-001",
                f"device {device.name}: its replicas have not diverged, and one may serve",
                "nothing is to be decided: 'sanctl status' says what else is wrong",
            )
        )
    if len(diagnosis.replicas) > _COMPARED:
        raise Refused(
            Problem(
                "SAN-HEAL-007",
                f"device {device.name} has {len(diagnosis.replicas)} replicas: sanctl compares two",
                "'drbdsetup status --verbose --statistics' on each node shows what each has; "
                "'drbdadm connect --discard-my-data' is for the replicas to be given up",
            )
        )
    if not kept.is_present or kept.replica.disk not in _USABLE:
        raise Refused(
            Problem(
                "SAN-HEAL-002",
                f"the replica of device {device.name} on {keep} cannot be kept: "
                + (
                    f"it is {kept.replica.disk or 'not known'}"
                    if kept.is_present
                    else f"{keep} is {kept.state.value}"
                ),
                "start that node, or keep the other replica",
            )
        )
    other = next(facts for facts in diagnosis.replicas if facts.node != keep)
    _refuse_if_newer_is_there(diagnosis, kept, other)
    return Loss(
        node=other.node,
        text=_loss_text(diagnosis, kept, other),
        bytes_at_most=_loss_bytes(diagnosis, other),
    )


def _refuse_if_newer_is_there(
    diagnosis: Diagnosis, kept: ReplicaFacts, other: ReplicaFacts
) -> None:
    if diagnosis.condition is not Condition.BLOCKED:
        return
    if other.state in {NodeState.UNCLEAN, NodeState.UNKNOWN, NodeState.PENDING}:
        raise Refused(
            Problem(
                "SAN-HEAL-003",
                f"node {other.node} is {other.state.value}: it may be serving the device",
                "it must be fenced, or back, before its replica is given up",
            )
        )
    if other.is_present and not (kept.replica.is_connected and other.replica.is_connected):
        if kept.generations is None or other.generations is None:
            raise Refused(
                Problem(
                    "SAN-HEAL-006",
                    f"device {diagnosis.device.name}: which data its replicas hold is not known",
                    "their agents publish it within half a minute of losing the connection: look "
                    "again; 'sanctl status' shows whether they run",
                )
            )
        if compare_generations(kept.generations, other.generations) is Relation.BEHIND:
            raise Refused(
                Problem(
                    "SAN-HEAL-002",
                    f"the replica on {kept.node} is older than the one on {other.node}, which has "
                    "all of it",
                    f"keep {other.node}: nothing is lost by that",
                )
            )


def _loss_bytes(diagnosis: Diagnosis, other: ReplicaFacts) -> int | None:
    if diagnosis.condition is Condition.UNRELATED:
        return diagnosis.device.size.bytes
    if diagnosis.condition is Condition.BLOCKED:
        return 0 if other.is_present and not _is_any_suspect(diagnosis) else None
    kib = other.replica.out_of_sync_kib
    return None if kib is None else kib * 1024


def _loss_text(diagnosis: Diagnosis, kept: ReplicaFacts, other: ReplicaFacts) -> str:
    if diagnosis.condition is Condition.UNRELATED:
        return (
            f"all that only {other.node} has: the replicas have no common past, and "
            f"{format_bytes(diagnosis.device.size.bytes)} are resynced"
        )
    if diagnosis.condition is Condition.BLOCKED:
        if other.is_present and _is_any_suspect(diagnosis):
            return _lost_in_ram(kept, other)
        if other.is_present:
            return "nothing: the other replica has nothing that this one lacks"
        return (
            f"whatever was written on {other.node} after {kept.node} lost the connection to it; "
            f"{other.node} is {other.state.value}, so how much that is cannot be known"
        )
    kib = other.replica.out_of_sync_kib
    amount = (
        "an unknown amount"
        if kib is None
        else f"up to {format_bytes(kib * 1024)} ({kib // 4} blocks of 4 KiB)"
    )
    return f"{amount} that were written on {other.node} alone since they disconnected"


def _is_any_suspect(diagnosis: Diagnosis) -> bool:
    return any(facts.replica.is_suspect for facts in diagnosis.replicas)


def _lost_in_ram(kept: ReplicaFacts, other: ReplicaFacts) -> str:
    """Return what a replica may lack that crashed with writes in RAM.

    A host's flush is answered when the Primary's disk has it, and reaches the peer at about that
    time (docs/explanation/cache.md).
    """
    if kept.replica.was_last_primary and not other.replica.was_last_primary:
        return (
            "writes that no host had flushed: this replica served last, so it has all that was; "
            f"what else only {other.node} has cannot be known"
        )
    if other.replica.was_last_primary:
        return (
            f"writes that no host had flushed, and perhaps the last that were: {other.node} served "
            f"last, keep that one if it can be; how much {kept.node} lacks cannot be known"
        )
    return (
        "writes that no host had flushed; which replica served last, and so has all that was "
        "flushed, is not known"
    )


def plan_heal(
    cluster: Cluster,
    name: DeviceName,
    keep: NodeName,
    *,
    shown: Diagnosis,
    accepted: Collection[str] = (),
) -> tuple[Change, ...]:
    """Return the change that keeps one replica and gives the other up.

    Args:
        cluster: as it is now.
        name: the device.
        keep: the node whose replica is kept.
        shown: what the operator was shown; anything else now is refused.
        accepted: codes of refusals the operator has accepted.

    Raises:
        Refused: the state is not what was shown, the replica cannot be kept, or hosts use the
            other one.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    now = diagnose(cluster, device)
    lost = loss_of_keeping(now, keep)
    if now.key != shown.key:
        raise Refused(
            Problem(
                "SAN-HEAL-005",
                f"device {name}: its replicas have changed since they were shown",
                f"look again: 'sanctl device heal {name}'",
            )
        )
    kept, other = now.replica_on(keep), now.replica_on(lost.node)
    assert kept is not None
    assert other is not None
    if other.serves and ACCEPT_SERVED not in accepted:
        raise Refused(
            Problem(
                ACCEPT_SERVED,
                f"{other.node} serves device {name}: hosts would find other data below what they "
                "have in memory",
                f"stop its hosts first (unmount, log out), then --accept {ACCEPT_SERVED}",
            )
        )
    return _changes(now, kept, other)


def _changes(diagnosis: Diagnosis, kept: ReplicaFacts, other: ReplicaFacts) -> tuple[Change, ...]:
    name, uuid = diagnosis.device.name, diagnosis.device.uuid
    mark = f"{OUTDATED_PREFIX}{name}"
    changes: list[Change] = []
    if kept.is_marked:
        changes.append(RemoveNodeAttribute(node=kept.node, attribute=mark))
    if not other.is_marked:
        changes.append(SetNodeAttribute(node=other.node, attribute=mark, value=uuid))
    if diagnosis.condition in {Condition.DIVERGED, Condition.UNRELATED}:
        assert other.generations is not None
        how = "bitmap" if diagnosis.condition is Condition.DIVERGED else "full"
        changes.append(
            SetNodeAttribute(
                node=other.node,
                attribute=f"{DISCARD_PREFIX}{name}",
                value=f"{uuid} {other.generations.name} {how}",
            )
        )
    if kept.replica.disk == "Outdated" or kept.is_never_connected or kept.replica.is_suspect:
        if kept.generations is None:
            raise Refused(
                Problem(
                    "SAN-HEAL-002",
                    f"{kept.node} has not published which data it holds",
                    "look again in half a minute; 'sanctl status' shows whether its agent runs",
                )
            )
        changes.append(
            SetNodeAttribute(
                node=kept.node,
                attribute=f"{REVIVE_PREFIX}{name}",
                value=f"{uuid} {kept.generations.name}",
            )
        )
    return tuple(changes)
