# SPDX-License-Identifier: GPL-2.0-or-later
"""What to do about replicas that no longer agree, and what each choice would lose.

Two conditions need an operator. *Diverged*: both replicas took writes the other does not have, so
DRBD refuses to connect them. *Blocked*: no replica may be served, because each is marked as
behind, knows itself to be behind, is on a node that is gone, or has not met the one that is gone
since it was started, in a cluster whose votes keep no notes
(sanctl/agents/fencing/quorum_overlap.py).

The operator names the copy to keep. One change of the CIB then does three things at once, so that
no moment exists in which both replicas may be served: the kept one loses its mark, the other gets
one, and the other's node gets the order to discard exactly the generation that the operator was
shown (sanctl/agents/recovery/heal.py). A choice that would lose nothing is still a choice: nothing
is discarded that was not named.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import Change, RemoveNodeAttribute, SetNodeAttribute
from sanctl.model.cluster import PRESENT, Cluster, NodeState
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.names import DeviceName, NodeName, format_bytes
from sanctl.parse.cib import DISCARD_PREFIX, OUTDATED_PREFIX, REVIVE_PREFIX
from sanctl.plan.cluster.preconditions import existing_device, refuse_unless_changeable
from sanctl.plan.drbd.data_generations import Generations, Relation, parse_generations, relate

ACCEPT_SERVED = "SAN-HEAL-004"
# What DRBD lets become Primary, by itself or when told that it may.
_USABLE = frozenset({"UpToDate", "Consistent", "Outdated"})
_GOOD = frozenset({"UpToDate", "Consistent"})
# Good by all it knows itself, and what it knows may be old.
_UNTRIED = "Consistent"
# What one copy has and another has not is told for so many.
_COMPARED = 2


class Condition(StrEnum):
    """What is the matter with a device's replicas."""

    SOUND = "sound"
    """Nothing that an operator has to decide; they may be out of contact."""
    DIVERGED = "diverged"
    UNRELATED = "unrelated"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One replica, as far as it is known."""

    node: NodeName
    state: NodeState
    replica: ReplicaState
    generations: Generations | None
    is_marked: bool
    serves: bool
    is_untried: bool = False
    """It has not met another since it was started, and no vote would tell of one that went on."""

    @property
    def is_present(self) -> bool:
        """Whether its node is a member and can act."""
        return self.state in PRESENT

    @property
    def may_serve(self) -> bool:
        """Whether Pacemaker could promote it as it is."""
        return (
            self.is_present
            and not self.is_marked
            and not self.replica.is_suspect
            and self.replica.disk in _GOOD
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A device's replicas side by side."""

    device: DeviceSpec
    condition: Condition
    sides: tuple[Side, ...]

    def side(self, node: NodeName) -> Side | None:
        """Return a node's side."""
        return next((side for side in self.sides if side.node == node), None)

    @property
    def key(self) -> tuple[object, ...]:
        """What must not change between what an operator is shown and what is done."""
        return (
            self.condition,
            tuple(
                (
                    side.node,
                    side.is_present,
                    side.replica.disk,
                    side.replica.is_suspect,
                    side.generations,
                    side.serves,
                )
                for side in self.sides
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What would be lost by keeping one copy: of which node, in words, and how much at most."""

    node: NodeName
    text: str
    bytes_at_most: int | None
    """None: not known."""


def diagnose(cluster: Cluster, device: DeviceSpec) -> Diagnosis:
    """Compare a device's replicas."""
    sides = tuple(_side(cluster, device, node) for node in device.nodes)
    return Diagnosis(device=device, condition=_condition(sides), sides=sides)


def _side(cluster: Cluster, device: DeviceSpec, node: NodeName) -> Side:
    replica = cluster.replica(device.name, node)
    return Side(
        node=node,
        state=cluster.mon.state(node),
        replica=replica,
        generations=parse_generations(replica.generations or ""),
        is_marked=any(
            mark.device == device.name.value and mark.node == node and mark.uuid == device.uuid
            for mark in cluster.cib.outdated
        ),
        serves=node.value in cluster.mon.active_nodes(device.name),
        is_untried=replica.disk == _UNTRIED and not _has_memory(cluster, node),
    )


def _has_memory(cluster: Cluster, node: NodeName) -> bool:
    live = cluster.ballot(node).live
    return live is None or live.votes.has_memory


def _condition(sides: tuple[Side, ...]) -> Condition:
    relation = _relation(sides)
    if relation is Relation.DIVERGED:
        return Condition.DIVERGED
    if relation is Relation.UNRELATED:
        return Condition.UNRELATED
    if any(side.serves or _may_serve(side, sides) for side in sides):
        return Condition.SOUND
    # A replica of which nothing is known may be the good one, just starting; a resync that runs
    # ends, and its target may serve then. An agent's first monitor tells which data it holds.
    undecided = any(
        side.state is NodeState.UNCLEAN
        or side.state is NodeState.PENDING
        or (side.is_present and side.replica.disk is None)
        or (side.is_untried and side.generations is None)
        for side in sides
    )
    usable = any(side.is_present and side.replica.disk in _USABLE for side in sides)
    return Condition.BLOCKED if usable and not undecided else Condition.SOUND


def _may_serve(side: Side, sides: tuple[Side, ...]) -> bool:
    if side.is_untried and not any(each.is_present for each in sides if each is not side):
        return False
    return side.may_serve


def _relation(sides: tuple[Side, ...]) -> Relation | None:
    if len(sides) != 2 or any(side.replica.is_linked for side in sides):
        return None
    mine, theirs = (side.generations if side.is_present else None for side in sides)
    return relate(mine, theirs) if mine is not None and theirs is not None else None


def loss(diagnosis: Diagnosis, keep: NodeName) -> Loss:
    """Return what keeping one node's copy would lose.

    Raises:
        Refused: that copy cannot be kept, with the reason.
    """
    kept = diagnosis.side(keep)
    device = diagnosis.device
    if kept is None:
        holders = ", ".join(map(str, device.nodes))
        raise Refused(
            Problem(
                "SAN-DEV-015",
                f"node {keep} has no replica of device {device.name}",
                f"its replicas are on {holders}",
            )
        )
    if diagnosis.condition is Condition.SOUND:
        raise Refused(
            Problem(
                "SAN-HEAL-001",
                f"device {device.name}: its replicas have not diverged, and one may serve",
                "nothing is to be decided: 'sanctl status' says what else is the matter",
            )
        )
    if len(diagnosis.sides) > _COMPARED:
        raise Refused(
            Problem(
                "SAN-HEAL-007",
                f"device {device.name} has {len(diagnosis.sides)} copies: sanctl compares two",
                "'drbdsetup status --verbose --statistics' on each node shows what each has; "
                "'drbdadm connect --discard-my-data' is for the ones to be given up",
            )
        )
    if not kept.is_present or kept.replica.disk not in _USABLE:
        raise Refused(
            Problem(
                "SAN-HEAL-002",
                f"the copy of device {device.name} on {keep} cannot be kept: "
                + (
                    f"it is {kept.replica.disk or 'not known'}"
                    if kept.is_present
                    else f"{keep} is {kept.state.value}"
                ),
                "start that node, or keep the other copy",
            )
        )
    other = next(side for side in diagnosis.sides if side.node != keep)
    _refuse_if_newer_is_there(diagnosis, kept, other)
    return Loss(
        node=other.node,
        text=_loss_text(diagnosis, kept, other),
        bytes_at_most=_loss_bytes(diagnosis, other),
    )


def _refuse_if_newer_is_there(diagnosis: Diagnosis, kept: Side, other: Side) -> None:
    if diagnosis.condition is not Condition.BLOCKED:
        return
    if other.state in {NodeState.UNCLEAN, NodeState.UNKNOWN, NodeState.PENDING}:
        raise Refused(
            Problem(
                "SAN-HEAL-003",
                f"node {other.node} is {other.state.value}: it may be serving the device",
                "it must be fenced, or back, before its copy is given up",
            )
        )
    if other.is_present and not (kept.replica.is_linked and other.replica.is_linked):
        if kept.generations is None or other.generations is None:
            raise Refused(
                Problem(
                    "SAN-HEAL-006",
                    f"device {diagnosis.device.name}: which data its replicas hold is not known",
                    "their agents tell it within half a minute of losing contact: look again; "
                    "'sanctl status' shows whether they run",
                )
            )
        if relate(kept.generations, other.generations) is Relation.BEHIND:
            raise Refused(
                Problem(
                    "SAN-HEAL-002",
                    f"the copy on {kept.node} is older than the one on {other.node}, which has "
                    "all of it",
                    f"keep {other.node}: nothing is lost by that",
                )
            )


def _loss_bytes(diagnosis: Diagnosis, other: Side) -> int | None:
    if diagnosis.condition is Condition.UNRELATED:
        return diagnosis.device.size.bytes
    if diagnosis.condition is Condition.BLOCKED:
        return 0 if other.is_present and not _is_any_suspect(diagnosis) else None
    kib = other.replica.out_of_sync_kib
    return None if kib is None else kib * 1024


def _loss_text(diagnosis: Diagnosis, kept: Side, other: Side) -> str:
    if diagnosis.condition is Condition.UNRELATED:
        return (
            f"all that only {other.node} has: the copies have no common past, and "
            f"{format_bytes(diagnosis.device.size.bytes)} are sent anew"
        )
    if diagnosis.condition is Condition.BLOCKED:
        if other.is_present and _is_any_suspect(diagnosis):
            return _lost_in_ram(kept, other)
        if other.is_present:
            return "nothing: the other copy has nothing that this one lacks"
        return (
            f"whatever was written on {other.node} after {kept.node} lost sight of it; "
            f"{other.node} is {other.state.value}, so how much that is cannot be known"
        )
    kib = other.replica.out_of_sync_kib
    amount = (
        "an unknown amount"
        if kib is None
        else f"up to {format_bytes(kib * 1024)} ({kib // 4} blocks of 4 KiB)"
    )
    return f"{amount} that were written on {other.node} alone since they parted"


def _is_any_suspect(diagnosis: Diagnosis) -> bool:
    return any(side.replica.is_suspect for side in diagnosis.sides)


def _lost_in_ram(kept: Side, other: Side) -> str:
    """Say what a copy may lack that crashed with writes in RAM.

    A host's flush is answered when the disk of the node that served has it, and reaches the other
    at about that time (docs/explanation/cache.md).
    """
    if kept.replica.served_last and not other.replica.served_last:
        return (
            "writes that no host had flushed: this copy served last, so it has all that was; "
            f"what else only {other.node} has cannot be known"
        )
    if other.replica.served_last:
        return (
            f"writes that no host had flushed, and perhaps the last that were: {other.node} served "
            f"last, keep that one if it can be; how much {kept.node} lacks cannot be known"
        )
    return (
        "writes that no host had flushed; which copy served last, and so has all that was flushed, "
        "is not known"
    )


def plan_heal(
    cluster: Cluster,
    name: DeviceName,
    keep: NodeName,
    *,
    shown: Diagnosis,
    accepted: Collection[str] = (),
) -> tuple[Change, ...]:
    """Return the change that keeps one copy and gives the other up.

    Args:
        cluster: as it is now.
        name: the device.
        keep: the node whose copy is kept.
        shown: what the operator was shown; anything else now is refused.
        accepted: codes of refusals the operator has accepted.

    Raises:
        Refused: it is not what was shown, or cannot be done, or hosts use the other copy.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    now = diagnose(cluster, device)
    lost = loss(now, keep)
    if now.key != shown.key:
        raise Refused(
            Problem(
                "SAN-HEAL-005",
                f"device {name}: its replicas have changed since they were shown",
                f"look again: 'sanctl device heal {name}'",
            )
        )
    kept, other = now.side(keep), now.side(lost.node)
    assert kept is not None
    assert other is not None
    if other.serves and ACCEPT_SERVED not in accepted:
        raise Refused(
            Problem(
                ACCEPT_SERVED,
                f"{other.node} serves device {name}: hosts would find other data under what they "
                "have in memory",
                f"stop its hosts first (unmount, log out), then --accept {ACCEPT_SERVED}",
            )
        )
    return _changes(now, kept, other)


def _changes(diagnosis: Diagnosis, kept: Side, other: Side) -> tuple[Change, ...]:
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
    if kept.replica.disk == "Outdated" or kept.is_untried or kept.replica.is_suspect:
        if kept.generations is None:
            raise Refused(
                Problem(
                    "SAN-HEAL-002",
                    f"{kept.node} has not told which data it holds",
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
