# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `node replace` as plan.replicas says: waits for one device after the other."""

from __future__ import annotations

from sanctl.errors import PartialApply, Problem, Refused
from sanctl.model.names import NodeName
from sanctl.ops.device_replicas import ReplicasOutcome, at_present, change_replicas
from sanctl.ops.session import Session
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.replicas.node_replacement import plan_replacement, replacement_request
from sanctl.plan.replicas.replica_count import (
    StepContext,
    next_replica_step,
)


def replace_node(
    session: Session,
    old: NodeName,
    new: NodeName,
    context: StepContext,
    *,
    timeout_s: float,
    again: str,
) -> tuple[ReplicasOutcome, ...]:
    """Move all replicas of one node to another, device by device; run again, it goes on.

    Raises:
        Refused: for at least one device this cannot be done; no device has been touched then.
        PartialApply: replicas were moved, and a later step is refused.
        CommandError: an agent failed.
        NotConverged: time ran out; says at which device.
    """
    begin = session.clock.monotonic_s()
    cluster = session.observe()
    wanted = plan_replacement(cluster, old, new)
    problems: list[Problem] = []
    for name, request in wanted:
        try:
            next_replica_step(cluster, name, request, at_present(session, context))
        except Refused as error:
            problems.extend(error.problems)
    if problems:
        raise Refused(*problems)
    done: list[ReplicasOutcome] = []
    for name, _ in wanted:
        request = replacement_request(existing_device(session.observe(), name), old, new)
        left_s = timeout_s - (session.clock.monotonic_s() - begin)
        try:
            outcome = change_replicas(
                session, name, request, context, timeout_s=left_s, again=again
            )
        except Refused as error:
            if not done:
                raise
            moved = ", ".join(str(each.device.name) for each in done)
            raise PartialApply(
                *error.problems,
                Problem("SAN-REP-008", f"done before that: replicas of {moved}", f"'{again}'"),
            ) from error
        done.append(outcome)
    return tuple(done)
