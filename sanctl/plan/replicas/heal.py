# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which replica `device heal` may keep of diverged or blocked ones, and the loss.

The order to discard the other replica is carried out in sanctl/agents/recovery/heal.py.

Two conditions need an operator. *Diverged*: both replicas took writes the other does not have, so
DRBD refuses to connect them. *Blocked*: no replica may be served, because each is marked as
outdated, knows itself to be behind, is on a node that is gone, or has never connected to the one
that is gone since it was started, in a cluster whose quorums need not intersect
(sanctl/agents/fencing/quorum_overlap.py).

The operator names the replica to keep. One change of the CIB then does four things at once, so
that at no moment both replicas may be served: the kept one loses its mark, the other gets one, the
other's node gets the order to discard exactly the generation that the operator was shown, and what
an earlier decision has ordered and is not carried out is withdrawn. Of a device that is held as a
copy (plan/device/restore_distrust.py) it says as well that it may be something else. A choice that
would lose nothing is still a choice: no replica is discarded that was not named.

A device's only replica may be blocked, too: suspect, above all. Then there is nothing to discard,
and the decision is to serve it as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import (
    Change,
    RemoveMark,
    RemoveNodeAttribute,
    SetMark,
    SetNodeAttribute,
)
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.names import DeviceName, NodeName, format_bytes
from sanctl.parse.cib import DISCARD_PREFIX, REVIVE_PREFIX
from sanctl.plan.cluster.preconditions import (
    existing_device,
    no_replica_problem,
    refuse_unless_changeable,
)
from sanctl.plan.device.restore_distrust import plan_distrusted
from sanctl.plan.drbd.data_generations import (
    ONLY_REPLICA,
    Relation,
    compare_generations,
)
from sanctl.plan.replicas.diagnosis import (
    USABLE_STATES,
    Condition,
    Diagnosis,
    ReplicaFacts,
    diagnose,
    relation_in_contact,
)
from sanctl.plan.replicas.heal_several import loss_among_several
from sanctl.plan.replicas.loss import Loss, older_problem, with_own_loss, written_alone

ACCEPT_SERVED = "SAN-HEAL-004"
# DRBD 8.4 connects so many replicas; what differs between more is told by heal_several.py.
_COMPARED = 2


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
    if diagnosis.condition is Condition.WAITING:
        raise Refused(
            Problem(
                "SAN-HEAL-008",
                f"device {device.name}: no node serves it, and no operator can decide now: "
                f"{diagnosis.waits_for}",
                "'sanctl status' says what to do; look again when that has changed",
            )
        )
    if not kept.is_present or kept.replica.disk not in USABLE_STATES:
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
    if len(diagnosis.replicas) > _COMPARED:
        return with_own_loss(loss_among_several(diagnosis, kept), kept)
    other = next((facts for facts in diagnosis.replicas if facts.node != keep), None)
    if other is None:
        return with_own_loss(_loss_of_only(kept), kept)
    _refuse_if_newer_is_there(diagnosis, kept, other)
    lost = Loss(
        nodes=(other.node,),
        text=_loss_text(diagnosis, kept, other),
        bytes_at_most=_loss_bytes(diagnosis, kept, other),
    )
    return with_own_loss(lost, kept)


def _loss_of_only(kept: ReplicaFacts) -> Loss:
    """Return what a device's only replica may lack that is not served by itself."""
    if kept.replica.is_unflushed_cache:
        text = "writes that no host had flushed; how much that is cannot be known"
        return Loss(nodes=(), text=text, bytes_at_most=None)
    if kept.replica.is_suspect:
        return Loss(nodes=(), text="nothing", bytes_at_most=0)  # Of its resync: with_own_loss.
    text = (
        "whatever was written to a replica that is no more after this one was marked as outdated, "
        "or knew itself to be; how much that is cannot be known"
    )
    return Loss(nodes=(), text=text, bytes_at_most=None)


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
    if not other.is_present:
        return
    if kept.replica.is_connected and other.replica.is_connected:
        relation = relation_in_contact(kept, other)
    elif kept.generations is None or other.generations is None:
        raise Refused(
            Problem(
                "SAN-HEAL-006",
                f"device {diagnosis.device.name}: which data its replicas hold is not known",
                "their agents publish it within half a minute of losing the connection: look "
                "again; 'sanctl status' shows whether they run",
            )
        )
    else:
        relation = compare_generations(kept.generations, other.generations)
    if relation is Relation.BEHIND:
        raise Refused(older_problem(diagnosis, kept, other))


def _loss_bytes(diagnosis: Diagnosis, kept: ReplicaFacts, other: ReplicaFacts) -> int | None:
    if diagnosis.condition is Condition.UNRELATED:
        return diagnosis.device.size.bytes
    if diagnosis.condition is Condition.BLOCKED:
        is_known = other.is_present and not _has_no_disk(other)
        if not is_known or _was_any_in_ram(diagnosis):
            return None
        return _differing_bytes(kept, other)
    return written_alone(diagnosis, other)[1]


def _loss_text(diagnosis: Diagnosis, kept: ReplicaFacts, other: ReplicaFacts) -> str:
    if diagnosis.condition is Condition.UNRELATED:
        return (
            f"all that only {other.node} has: the replicas have no common past, and "
            f"{format_bytes(diagnosis.device.size.bytes)} are resynced"
        )
    if diagnosis.condition is Condition.BLOCKED:
        if other.is_present and _has_no_disk(other):
            return (
                f"whatever was written to the disk of {other.node} after that of {kept.node} was "
                f"lost or out of contact; it is {other.replica.disk or 'not known'}, so how much "
                "that is cannot be known"
            )
        if other.is_present and _was_any_in_ram(diagnosis):
            return _lost_in_ram(kept, other)
        if other.is_present and (differing := _differing_bytes(kept, other)):
            return (
                f"what only {other.node} has of the {format_bytes(differing)} in which the two may "
                "differ by their bitmaps, such as writes under way when both disks were lost"
            )
        if other.is_present:
            return "nothing: the other replica has nothing that this one lacks"
        return (
            f"whatever was written on {other.node} after {kept.node} lost the connection to it; "
            f"{other.node} is {other.state.value}, so how much that is cannot be known"
        )
    return written_alone(diagnosis, other)[0]


def _differing_bytes(kept: ReplicaFacts, other: ReplicaFacts) -> int:
    """Return in how many bytes two replicas may differ that do not know which of them is behind.

    Of two whose disks were both lost: DRBD 9 attaches them at equal generations, with what its
    activity log names in the bitmap (docs/adr/0047). Beside such a one an Outdated one has nothing
    to be asked for.
    """
    disks = {kept.replica.disk, other.replica.disk}
    if not disks <= {"UpToDate", "Consistent"} and disks != {"Outdated"}:
        return 0
    return 1024 * max(kept.replica.out_of_sync_kib or 0, other.replica.out_of_sync_kib or 0)


def _has_no_disk(facts: ReplicaFacts) -> bool:
    """Whether a replica may hold what DRBD cannot compare: its disk is away, or not known."""
    return facts.replica.disk not in {*USABLE_STATES, "Inconsistent"}


def _was_any_in_ram(diagnosis: Diagnosis) -> bool:
    return any(facts.replica.is_unflushed_cache for facts in diagnosis.replicas)


def _lost_in_ram(kept: ReplicaFacts, other: ReplicaFacts) -> str:
    """Return what a replica may lack that crashed with writes in RAM.

    A host's flush is answered when the Primary's disk has it, and reaches the peer at about that
    time (docs/explanation/cache.md).
    """
    if kept.replica.was_last_primary and not other.replica.was_last_primary:
        return (
            "writes that no host had flushed: this replica served last, so it has all that was, "
            "unless its own resync was not over; "
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

    Anything else than what the operator was `shown` is refused; refusals with a code of `accepted`
    are not.

    Raises:
        Refused: the state is not what was shown, the replica cannot be kept, or hosts use the
            other one.
    """
    device = existing_device(cluster, name)
    # Orders are attributes of the nodes that carry them out: no agent is told, and a node in
    # maintenance that has none is not concerned.
    refuse_unless_changeable(cluster, device, on=())
    now = diagnose(cluster, device)
    loss_of_keeping(now, keep)
    if now.key != shown.key:
        raise Refused(
            Problem(
                "SAN-HEAL-005",
                f"device {name}: its replicas have changed since they were shown",
                f"look again: 'sanctl device heal {name}'",
            )
        )
    kept = now.replica_on(keep)
    assert kept is not None
    others = [facts for facts in now.replicas if facts is not kept]
    serving = next((facts for facts in others if facts.serves), None)
    if serving is not None and ACCEPT_SERVED not in accepted:
        raise Refused(
            Problem(
                ACCEPT_SERVED,
                f"{serving.node} serves device {name}: hosts would find other data below what they "
                "have in memory",
                f"stop its hosts first (unmount, log out), then --accept {ACCEPT_SERVED}",
            )
        )
    return (*_changes(now, kept, others), *plan_distrusted(cluster, device))


def _changes(
    diagnosis: Diagnosis, kept: ReplicaFacts, others: Sequence[ReplicaFacts]
) -> tuple[Change, ...]:
    name, uuid = diagnosis.device.name, diagnosis.device.uuid
    changes: list[Change] = []
    orders: list[SetNodeAttribute] = []
    if kept.is_marked:
        changes.append(RemoveMark(name=name, node=kept.node))
    changes += [
        SetMark(name=name, node=other.node, uuid=uuid) for other in others if not other.is_marked
    ]
    if diagnosis.condition in {Condition.DIVERGED, Condition.UNRELATED}:
        (other,) = others  # Of more the choice is refused.
        assert other.generations is not None
        how = "bitmap" if diagnosis.condition is Condition.DIVERGED else "full"
        orders.append(
            SetNodeAttribute(
                node=other.node,
                attribute=f"{DISCARD_PREFIX}{name}",
                value=f"{uuid} {other.generations.name} {how}",
            )
        )
    if (
        kept.replica.disk == "Outdated"
        or kept.is_never_connected
        or kept.replica.is_suspect
        or kept.lacks_majority
        or (len(others) == 1 and kept.is_unconfirmed_in_contact)
    ):
        generation = kept.generations.name if kept.generations else None
        if not others:
            generation = ONLY_REPLICA
        if generation is None:
            raise Refused(
                Problem(
                    "SAN-HEAL-002",
                    f"{kept.node} has not published which data it holds",
                    "look again in half a minute; 'sanctl status' shows whether its agent runs",
                )
            )
        orders.append(
            SetNodeAttribute(
                node=kept.node,
                attribute=f"{REVIVE_PREFIX}{name}",
                value=f"{uuid} {generation}",
            )
        )
    given = {(order.node, order.attribute) for order in orders}
    withdrawn = (
        RemoveNodeAttribute(node=facts.node, attribute=attribute)
        for facts in diagnosis.replicas
        for attribute in sorted(facts.orders)
        if (facts.node, attribute) not in given
    )
    return (*changes, *orders, *withdrawn)
