# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `device replicas`: adds and drops replicas step by step, waiting for each step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import assert_never

from sanctl.errors import (
    CommandError,
    NotConverged,
    PartialApply,
    Problem,
    Refused,
    SanctlError,
    Unreachable,
)
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Failure
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.replicas.pending_change import pending_change_of, unknown_replicas
from sanctl.plan.replicas.replica_choice import ReplicaRequest
from sanctl.plan.replicas.replica_count import (
    AwaitDroppedData,
    AwaitMove,
    AwaitRole,
    AwaitSync,
    ChangeReplicas,
    ReplicasReached,
    ReplicaStep,
    StepContext,
    next_replica_step,
)

#: A change of role takes seconds; one that takes longer is held up by something else.
_ROLE_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasOutcome:
    """A device after a change of its replicas.

    Attributes:
        steps: what was done, in order; nothing when all was as asked.
        away: nodes that remove their replica when they are back.
        added: nodes that have a replica now and had none.
    """

    device: DeviceSpec
    cluster: Cluster
    steps: tuple[str, ...]
    away: tuple[NodeName, ...]
    added: tuple[NodeName, ...]
    duration_s: float


def change_replicas(
    session: Session,
    name: DeviceName,
    request: ReplicaRequest,
    context: StepContext,
    *,
    timeout_s: float,
    again: str,
) -> ReplicasOutcome:
    """Give a device the replicas asked for, and wait until all of them are in sync.

    Run again after an interruption, the command goes on from where the change is.

    The time in `context` is read again for each step; `timeout_s` is for all of them. Messages name
    `again`, the command to run again.

    Raises:
        Refused: the change cannot be made, or would endanger data; nothing was changed.
        PartialApply: steps were done, and the next one is refused.
        CommandError: an agent failed.
        NotConverged: time ran out; says at which step.
    """
    steps: list[str] = []
    try:
        return _change_step_by_step(
            session, name, request, context, steps, timeout_s=timeout_s, again=again
        )
    except (CommandError, NotConverged, Unreachable) as error:
        left = _half_done(session, name, steps)
        if left is None:
            raise
        raise type(error)(*error.problems, left) from error
    except Refused as error:
        if not steps:
            raise
        done = f"device {name}: done before that: {', '.join(steps)}"
        look = f"'sanctl device show {name}' shows its replicas; '{again}' run again goes on"
        raise PartialApply(*error.problems, Problem("SAN-REP-008", done, look)) from error


def _half_done(session: Session, name: DeviceName, steps: Collection[str]) -> Problem | None:
    """Return what a change that ended early leaves, and how to go on or take it back."""
    try:
        cluster = session.observe()
    except SanctlError:
        if not steps:
            return None
        hint = f"'sanctl device show {name}' shows its replicas, and how to take one back"
        return Problem("SAN-REP-009", f"device {name}: done before: {', '.join(steps)}", hint)
    device = cluster.cib.device(name)
    if device is None:
        return None
    left = pending_change_of(cluster, device) or unknown_replicas(cluster, device)
    return None if left is None else Problem("SAN-REP-009", f"device {name}: {left[0]}", left[1])


def _change_step_by_step(
    session: Session,
    name: DeviceName,
    request: ReplicaRequest,
    context: StepContext,
    steps: list[str],
    *,
    timeout_s: float,
    again: str,
) -> ReplicasOutcome:
    """Do steps until the replicas are as requested; each step done is appended to `steps`."""
    begin = session.clock.monotonic_s()
    cluster = session.observe()
    known = cluster.mon.failures_of(name)
    before = existing_device(cluster, name).nodes
    while True:
        step = next_replica_step(cluster, name, request, at_present(session, context))
        match step:
            case ChangeReplicas(words=words):
                session.reporter.update(words)
                if _make_change(session, name, request, context, words):
                    steps.append(words)
                cluster = session.observe()
                continue
            case AwaitRole() | AwaitMove() | AwaitSync() | AwaitDroppedData():
                pass
            case ReplicasReached(away=away):
                device = existing_device(cluster, name)
                return ReplicasOutcome(
                    device=device,
                    cluster=cluster,
                    steps=tuple(steps),
                    away=away,
                    added=tuple(node for node in device.nodes if node not in before),
                    duration_s=session.clock.monotonic_s() - begin,
                )
            case _:
                assert_never(step)
        cluster = _await_next(
            session,
            name,
            request,
            context,
            step=step,
            known=known,
            remaining_s=min(
                timeout_s - (session.clock.monotonic_s() - begin),
                _ROLE_TIMEOUT_S if isinstance(step, AwaitRole | AwaitMove) else timeout_s,
            ),
            again=again,
        )


def _make_change(
    session: Session, name: DeviceName, request: ReplicaRequest, context: StepContext, words: str
) -> bool:
    """Make the changes of a step, if the cluster still calls for that very step."""

    def decide(seen: Cluster) -> tuple[Change, ...]:
        step = next_replica_step(seen, name, request, at_present(session, context))
        return step.changes if isinstance(step, ChangeReplicas) and step.words == words else ()

    return bool(session.change(decide))


def _await_next(
    session: Session,
    name: DeviceName,
    request: ReplicaRequest,
    context: StepContext,
    *,
    step: ReplicaStep,
    known: Collection[Failure],
    remaining_s: float,
    again: str,
) -> Cluster:
    """Wait until another step than this one is next."""
    look = (
        f"the change goes on by itself as far as it can; '{again}' run again finishes it, and "
        f"'sanctl device show {name}' says how to take it back"
    )

    def goal(seen: Cluster) -> Progress:
        now = next_replica_step(seen, name, request, at_present(session, context))
        return Progress(is_done=type(now) is not type(step), seen=describe_step(now))

    if remaining_s <= 0:
        raise NotConverged(
            Problem("SAN-WAIT-001", f"device {name}: {describe_step(step)}; time is up", look)
        )
    return session.wait(
        goal,
        waiting_for=f"device {name}",
        timeout_s=remaining_s,
        resources=(name.value,),
        known_failures=known,
        look=look,
    )


def at_present(session: Session, context: StepContext) -> StepContext:
    """Return the context with the time of now."""
    return replace(context, now_s=session.clock.wall_s())


def describe_step(step: ReplicaStep) -> str:
    """Return what a step does or waits for, in a few words."""
    match step:
        case ChangeReplicas(words=words):
            return words
        case AwaitRole(seen=seen):
            return f"Pacemaker to see which node serves it ({seen})"
        case AwaitMove(to=to, seen=seen):
            return f"moving to {to} ({seen})"
        case AwaitSync(nodes=nodes, seen=seen):
            return f"{', '.join(map(str, nodes))} to be in sync ({seen})"
        case AwaitDroppedData(nodes=nodes):
            return f"data of the old replica to be removed on {', '.join(map(str, nodes))}"
        case ReplicasReached():
            return "done"
        case _:
            assert_never(step)
