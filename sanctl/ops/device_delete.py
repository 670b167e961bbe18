# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `device delete`: stops, removes the configuration, waits for the data to go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import assert_never

from sanctl.errors import CommandError, NotConverged, Problem
from sanctl.model.cib_change import Change, SetNodeAttribute
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.device.deletion import (
    AwaitDataRemoval,
    AwaitStop,
    Deleted,
    DeletionStep,
    RemoveConfiguration,
    RequestStop,
    is_removal_due,
    next_deletion_step,
    refuse_deletions,
    removal_changes,
    stop_changes,
)

_Steps = Mapping[DeviceName, DeletionStep]


def delete_devices(
    session: Session,
    names: Sequence[DeviceName],
    *,
    timeout_s: float,
    tell: Callable[[Collection[NodeName]], None],
    check: Callable[[Cluster], None],
) -> dict[DeviceName, tuple[NodeName, ...]]:
    """Delete devices and their data; run again, the deletion goes on where it stopped.

    One change of the CIB asks for the stop of all, and one removes all when all have stopped; those
    that have, when the time is over. Each change of the tombstones has Pacemaker elect its DC anew.

    `tell` has these nodes look for their tombstones now. Where it cannot, they do so by themselves
    within some seconds. `check` refuses what was not asked for, of the cluster as it is when a stop
    is ordered: an operator may have taken an hour to answer.

    Returns:
        For each device the nodes that are away; each removes its data when it is back.

    Raises:
        CommandError: a stop failed, or Pacemaker did not answer.
        Refused: there is no such device, Pacemaker would not stop it, or `check` refuses; for one
            of them at least, and none is stopped.
        NotConverged: time ran out; says at which step.
    """
    deadline = session.clock.monotonic_s() + timeout_s
    shown = _what(names)
    again = f"run 'sanctl device delete {' '.join(map(str, names))}' again to finish it"
    cluster = session.observe()
    refuse_deletions(cluster, names)
    known = tuple(failure for name in names for failure in cluster.mon.failures_of(name))
    while True:
        steps = _steps(cluster, names)
        away = {name: step.away for name, step in steps.items() if isinstance(step, Deleted)}
        if len(away) == len(steps):
            return away
        remaining = deadline - session.clock.monotonic_s()
        _make_changes(session, cluster, steps, tell, check, is_last=remaining <= 0)
        if remaining <= 0:
            raise NotConverged(
                Problem(
                    "SAN-WAIT-001",
                    f"deletion of {shown}: not finished within {timeout_s:g} s; "
                    f"last seen: {_text(steps)}",
                    again,
                )
            )
        try:
            cluster = session.wait(
                lambda seen: _progress(_steps(seen, names)),
                waiting_for=f"deletion of {shown}",
                timeout_s=remaining,
                resources=tuple(name.value for name in names),
                known_failures=known,
                # One that fails to start, say, is stopped all the same.
                ends_wait=lambda failure: failure.action == "stop",
                look=again,
                may_be_done=partial(_may_have_stopped, session, _stopping(cluster, names)),
            )
        except NotConverged:
            cluster = session.observe()


def _stopping(cluster: Cluster, names: Sequence[DeviceName]) -> list[DeviceName]:
    """Return the devices that are to stop and have not, as far as was seen before this change."""
    awaited = RequestStop, AwaitStop
    return [name for name, step in _steps(cluster, names).items() if isinstance(step, awaited)]


def _may_have_stopped(session: Session, awaited: list[DeviceName]) -> bool:
    """Whether all seem to have stopped: a replica that does withdraws its state.

    Those that seem to are taken off the list. To observe the whole cluster takes longer, on the
    processors that are to stop them.
    """
    while awaited:
        try:
            if session.published_replicas(awaited[0]):
                return False
        except CommandError:
            return True
        del awaited[0]
    return True


def _steps(cluster: Cluster, names: Sequence[DeviceName]) -> _Steps:
    return {name: next_deletion_step(cluster, name) for name in names}


def _make_changes(
    session: Session,
    cluster: Cluster,
    steps: _Steps,
    tell: Callable[[Collection[NodeName]], None],
    check: Callable[[Cluster], None],
    *,
    is_last: bool,
) -> None:
    """Make the changes that are due: one for all devices to stop, one for all to remove."""
    stopping = [name for name, step in steps.items() if isinstance(step, RequestStop)]
    if stopping:
        session.reporter.update(f"stopping {_what(stopping)} on all nodes")

        def stop(seen: Cluster) -> tuple[Change, ...]:
            check(seen)
            return stop_changes(_steps(seen, stopping).values())

        session.change(stop)
    removed = [name for name, step in steps.items() if isinstance(step, RemoveConfiguration)]
    if removed and (is_last or is_removal_due(steps.values())):
        session.reporter.update(f"removing {_what(removed)}")
        for name in removed:
            if cluster.mon.failures_of(name):
                session.clean_up_failures(name)
        changes = session.change(
            lambda seen: removal_changes(_steps(seen, removed).values()), reads_replicas=False
        )
        tell({change.node for change in changes if isinstance(change, SetNodeAttribute)})


def _what(names: Sequence[DeviceName]) -> str:
    return f"device {names[0]}" if len(names) == 1 else f"{len(names)} devices"


def _progress(steps: _Steps) -> Progress:
    return Progress(
        is_done=any(isinstance(step, RequestStop) for step in steps.values())
        or is_removal_due(steps.values())
        or all(isinstance(step, Deleted) for step in steps.values()),
        seen=_text(steps),
    )


def _text(steps: _Steps) -> str:
    """What is still to be done of one device, and how many have come to their end."""
    left = {name: _step_text(step) for name, step in steps.items() if not isinstance(step, Deleted)}
    if not left:
        return "deleted"
    first, text = next(iter(left.items()))
    if len(steps) == 1:
        return text
    return f"{len(steps) - len(left)} of {len(steps)} are deleted; {first}: {text}"


def _step_text(step: DeletionStep) -> str:
    match step:
        case RequestStop():
            return "the device is still to be stopped"
        case AwaitStop(running=running):
            return f"the device still runs on {', '.join(running)}"
        case RemoveConfiguration():
            return "the device is stopped; its configuration is still there"
        case AwaitDataRemoval(here=here):
            return f"data is still to be removed on {', '.join(map(str, here))}"
        case Deleted():
            return "deleted"
        case _:
            assert_never(step)
