# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl device delete`: stops a device, removes its configuration, waits for its data to go."""

from __future__ import annotations

from typing import assert_never

from sanctl.errors import NotConverged, Problem
from sanctl.model.cib_change import Change
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
    check_deletion,
    next_deletion_step,
)


def delete_device(session: Session, name: DeviceName, *, timeout_s: float) -> tuple[NodeName, ...]:
    """Delete a device and its data; run again, the deletion goes on where it stopped.

    Returns:
        The nodes that are away; each removes its data when it is back.

    Raises:
        Refused: there is no such device, or Pacemaker would not stop it.
        NotConverged: time ran out; says at which step.
    """
    deadline = session.clock.monotonic_s() + timeout_s
    cluster = session.observe()
    check_deletion(cluster, name)
    known = cluster.mon.failures_of(name)
    while True:
        step = next_deletion_step(cluster, name)
        match step:
            case RequestStop():
                session.reporter.update(f"stopping device {name} on all nodes")
                session.change(
                    lambda seen: _changes_of(next_deletion_step(seen, name), RequestStop)
                )
            case AwaitStop():
                pass
            case RemoveConfiguration():
                session.reporter.update(f"removing device {name}")
                if cluster.mon.failures_of(name):
                    session.clean_up_failures(name)
                session.change(
                    lambda seen: _changes_of(next_deletion_step(seen, name), RemoveConfiguration)
                )
            case AwaitDataRemoval():
                pass
            case Deleted(away=away):
                return away
            case _:
                assert_never(step)
        remaining = deadline - session.clock.monotonic_s()
        if remaining <= 0:
            raise NotConverged(
                Problem(
                    "SAN-WAIT-001",
                    f"deletion of device {name}: not finished within {timeout_s:g} s; "
                    f"last seen: {_step_text(step)}",
                    f"run 'sanctl device delete {name}' again to finish it",
                )
            )
        cluster = session.wait(
            lambda seen: _step_progress(seen, name),
            waiting_for=f"deletion of device {name}",
            timeout_s=remaining,
            resources=(name.value,),
            known_failures=known,
            look=f"run 'sanctl device delete {name}' again to finish it",
        )


def _changes_of(
    step: DeletionStep, wanted: type[RequestStop] | type[RemoveConfiguration]
) -> tuple[Change, ...]:
    """The changes of a step, if the cluster still calls for that very step."""
    if isinstance(step, wanted) and isinstance(step, RequestStop | RemoveConfiguration):
        return step.changes
    return ()


def _step_progress(cluster: Cluster, name: DeviceName) -> Progress:
    step = next_deletion_step(cluster, name)
    return Progress(
        is_done=not isinstance(step, AwaitStop | AwaitDataRemoval), seen=_step_text(step)
    )


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
