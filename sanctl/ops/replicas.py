# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes how many copies devices have and where, step by step, and waits for each step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import assert_never

from sanctl.errors import NotConverged, Problem, Refused
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster, Failure
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.replicas.node_replacement import replacement_of, replacements
from sanctl.plan.replicas.replica_choice import LevelRequest
from sanctl.plan.replicas.replica_count import (
    Alter,
    AwaitMove,
    AwaitReap,
    AwaitRole,
    AwaitSync,
    LevelStep,
    Reached,
    Setting,
    next_step,
)

#: A change of role takes seconds; one that does not come about has another reason.
_ROLE_PATIENCE_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Levelled:
    """A device after a change of its copies.

    Attributes:
        steps: what was done, in order; nothing when all was as asked.
        away: nodes that remove their copy when they are back.
        added: nodes that have a copy now and had none.
    """

    device: DeviceSpec
    cluster: Cluster
    steps: tuple[str, ...]
    away: tuple[NodeName, ...]
    added: tuple[NodeName, ...]
    duration_s: float


def change_level(
    session: Session,
    name: DeviceName,
    request: LevelRequest,
    setting: Setting,
    *,
    timeout_s: float,
    again: str,
) -> Levelled:
    """Give a device the copies that are asked for, and wait until all of them are in sync.

    Run again after an interruption it goes on from where that one stopped.

    Args:
        session: the cluster.
        name: the device.
        request: what is asked for.
        setting: what else it depends on; the time in it is taken anew for each step.
        timeout_s: of all together.
        again: the command that goes on, for messages.

    Raises:
        Refused: it cannot be done, or would endanger data.
        CommandError: an agent failed.
        NotConverged: time ran out; says at which step.
    """
    begin = session.clock.monotonic_s()
    cluster = session.observe()
    known = cluster.mon.failures_of(name)
    before = existing_device(cluster, name).nodes
    steps: list[str] = []
    while True:
        step = next_step(cluster, name, request, _now(session, setting))
        match step:
            case Alter(words=words):
                session.reporter.update(words)
                if _alter(session, name, request, setting, words):
                    steps.append(words)
                cluster = session.observe()
                continue
            case AwaitRole() | AwaitMove() | AwaitSync() | AwaitReap():
                pass
            case Reached(away=away):
                device = existing_device(cluster, name)
                return Levelled(
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
            setting,
            step=step,
            known=known,
            remaining_s=min(
                timeout_s - (session.clock.monotonic_s() - begin),
                _ROLE_PATIENCE_S if isinstance(step, AwaitRole | AwaitMove) else timeout_s,
            ),
            again=again,
        )


def _alter(
    session: Session, name: DeviceName, request: LevelRequest, setting: Setting, words: str
) -> bool:
    """Make the changes of a step, if the cluster still calls for that very step."""

    def decide(seen: Cluster) -> tuple[Change, ...]:
        step = next_step(seen, name, request, _now(session, setting))
        return step.changes if isinstance(step, Alter) and step.words == words else ()

    return bool(session.change(decide))


def _await_next(
    session: Session,
    name: DeviceName,
    request: LevelRequest,
    setting: Setting,
    *,
    step: LevelStep,
    known: Collection[Failure],
    remaining_s: float,
    again: str,
) -> Cluster:
    """Wait until something else than this step is next."""
    look = (
        f"it goes on by itself as far as it can; '{again}' run again finishes it, and "
        f"'sanctl device show {name}' says how it could be taken back"
    )

    def goal(seen: Cluster) -> Progress:
        now = next_step(seen, name, request, _now(session, setting))
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


def _now(session: Session, setting: Setting) -> Setting:
    return replace(setting, now_s=session.clock.wall_s())


def describe_step(step: LevelStep) -> str:
    """Say in a few words what a step waits for."""
    match step:
        case Alter(words=words):
            return words
        case AwaitRole(seen=seen):
            return f"Pacemaker to see who serves it ({seen})"
        case AwaitMove(to=to, seen=seen):
            return f"moving to {to} ({seen})"
        case AwaitSync(nodes=nodes, seen=seen):
            return f"{', '.join(map(str, nodes))} to be in sync ({seen})"
        case AwaitReap(nodes=nodes):
            return f"data of the old copy to be removed on {', '.join(map(str, nodes))}"
        case Reached():
            return "done"
        case _:
            assert_never(step)


def replace_node(
    session: Session,
    old: NodeName,
    new: NodeName,
    setting: Setting,
    *,
    timeout_s: float,
    again: str,
) -> tuple[Levelled, ...]:
    """Give all copies of one node to another, device by device; run again, it goes on.

    Raises:
        Refused: of one device at least that cannot be done; no device has been touched then.
        CommandError: an agent failed.
        NotConverged: time ran out; says at which device.
    """
    begin = session.clock.monotonic_s()
    cluster = session.observe()
    wanted = replacements(cluster, old, new)
    problems: list[Problem] = []
    for name, request in wanted:
        try:
            next_step(cluster, name, request, _now(session, setting))
        except Refused as error:
            problems.extend(error.problems)
    if problems:
        raise Refused(*problems)
    done = []
    for name, _ in wanted:
        request = replacement_of(existing_device(session.observe(), name), old, new)
        left_s = timeout_s - (session.clock.monotonic_s() - begin)
        done.append(change_level(session, name, request, setting, timeout_s=left_s, again=again))
    return tuple(done)
