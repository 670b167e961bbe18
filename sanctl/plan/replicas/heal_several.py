# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: of three and four replicas, what keeping one would lose of each of the others.

DRBD 9 has a bitmap for each peer, so any two replicas can be compared. A replica that another one
has overtaken cannot be kept: the other has all of it. Replicas that have diverged are compared, and
the choice is refused with the commands that carry it out: which of several replicas DRBD 9 resyncs
from which, while some are to be discarded, has not been tried.
"""

from __future__ import annotations

from sanctl.errors import Problem, Refused
from sanctl.model.crm_mon import NodeState
from sanctl.model.names import NodeName
from sanctl.plan.drbd.data_generations import Relation
from sanctl.plan.replicas.diagnosis import USABLE_STATES, Diagnosis, ReplicaFacts, relation_of
from sanctl.plan.replicas.loss import Loss, older_problem, written_alone

_MAY_SERVE = frozenset({NodeState.UNCLEAN, NodeState.UNKNOWN, NodeState.PENDING})
_NEVER_WHOLE = "Inconsistent"


def loss_among_several(diagnosis: Diagnosis, kept: ReplicaFacts) -> Loss:
    """Return what keeping a replica would lose, of all others together.

    Raises:
        Refused: another replica has all of it and more, may be serving, or is not known; or others
            have diverged from it, with what would be lost and how it is done.
    """
    others = [facts for facts in diagnosis.replicas if facts is not kept]
    parts = [part for other in others if (part := _part(diagnosis, kept, other)) is not None]
    if not parts:
        text = "nothing: no other replica has anything that this one lacks"
        return Loss(nodes=tuple(other.node for other in others), text=text, bytes_at_most=0)
    sizes = [part.bytes_at_most for part in parts]
    lost = Loss(
        nodes=tuple(node for part in parts for node in part.nodes),
        text="; and ".join(part.text for part in parts),
        bytes_at_most=None if None in sizes else sum(filter(None, sizes)),
    )
    _refuse_if_by_hand(diagnosis, kept, others, lost)
    return lost


def _part(diagnosis: Diagnosis, kept: ReplicaFacts, other: ReplicaFacts) -> Loss | None:
    """Return what is lost of one other replica; None: nothing."""
    if not other.is_present:
        return _part_of_absent(kept, other)
    relation = relation_of(kept, other)
    if relation is Relation.BEHIND:
        raise Refused(older_problem(diagnosis, kept, other))
    if relation in {Relation.SAME, Relation.AHEAD}:
        is_in_ram = kept.replica.is_unflushed_cache or other.replica.is_unflushed_cache
        return _unflushed(kept, other) if is_in_ram else None
    if relation is Relation.UNRELATED:
        size = diagnosis.device.size.bytes
        text = f"all that only {other.node} has: it has no common past with {kept.node}"
        return Loss(nodes=(other.node,), text=text, bytes_at_most=size)
    if relation is Relation.DIVERGED:
        text, at_most = written_alone(diagnosis, other)
        return Loss(nodes=(other.node,), text=text, bytes_at_most=at_most)
    if other.replica.disk == _NEVER_WHOLE:
        return None  # It was being filled: what it has is whole at no moment.
    if other.replica.disk not in USABLE_STATES:
        return Loss(
            nodes=(other.node,),
            text=f"whatever was written to the disk of {other.node} after that of {kept.node} was "
            f"lost or out of contact; it is {other.replica.disk or 'not known'}, so how much that "
            "is cannot be known",
            bytes_at_most=None,
        )
    raise Refused(
        Problem(
            "SAN-HEAL-006",
            f"device {diagnosis.device.name}: which data its replicas on {kept.node} and "
            f"{other.node} hold is not known",
            "their agents publish it within half a minute of losing a connection: look again; "
            "'sanctl status' shows whether they run",
        )
    )


def _part_of_absent(kept: ReplicaFacts, other: ReplicaFacts) -> Loss | None:
    if kept.serves:
        return None  # It serves without that node already.
    if other.state in _MAY_SERVE:
        raise Refused(
            Problem(
                "SAN-HEAL-003",
                f"node {other.node} is {other.state.value}: it may be serving the device",
                "it must be fenced, or back, before its replica is given up",
            )
        )
    text = (
        f"whatever was written on {other.node} after {kept.node} lost the connection to it; "
        f"{other.node} is {other.state.value}, so how much that is cannot be known"
    )
    return Loss(nodes=(other.node,), text=text, bytes_at_most=None)


def _unflushed(kept: ReplicaFacts, other: ReplicaFacts) -> Loss:
    served = next((facts for facts in (kept, other) if facts.replica.was_last_primary), None)
    which = (
        f"{served.node} served last, so it has all that was flushed, unless its own resync was "
        "not over"
        if served is not None
        else "which replica served last, and so has all that was flushed, is not known"
    )
    text = f"writes that no host had flushed: {which}"
    return Loss(nodes=(other.node,), text=text, bytes_at_most=None)


def _refuse_if_by_hand(
    diagnosis: Diagnosis, kept: ReplicaFacts, others: list[ReplicaFacts], lost: Loss
) -> None:
    apart = [
        other.node
        for other in others
        if relation_of(kept, other) in {Relation.DIVERGED, Relation.UNRELATED}
    ]
    if apart:
        raise Refused(
            Problem(
                "SAN-HEAL-007",
                f"keeping the replica on {kept.node} loses {lost.text}: of more than two replicas "
                "sanctl discards none",
                _by_hand(diagnosis, apart),
            )
        )


def _by_hand(diagnosis: Diagnosis, apart: list[NodeName]) -> str:
    name = diagnosis.device.name
    where = " and ".join(map(str, apart))
    return (
        f"on {where}, one after the other: 'drbdadm disconnect {name}', then 'drbdadm connect "
        f"--discard-my-data {name}'; then on each other node 'drbdadm connect {name}:{apart[0]}'"
        f"{' and so on' if len(apart) > 1 else ''}, as docs/howto/diverged-data.md says"
    )
