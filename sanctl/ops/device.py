# SPDX-License-Identifier: GPL-2.0-or-later
"""Creates, deletes, resizes and moves devices, and changes who may use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from sanctl.errors import NotConverged, Problem, Refused, Unreachable, UsageError
from sanctl.model.cib_change import Change, CompleteDevice
from sanctl.model.cluster import Cluster, Failure
from sanctl.model.device import DeviceSpec, access_digest
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName
from sanctl.model.topology import Topology
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress, access_applied, created, moved, resized
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.alteration import (
    plan_allow,
    plan_deny,
    plan_move,
    plan_move_end,
    plan_resize,
)
from sanctl.plan.device.creation import CreateRequest, Wish, draft, objections, read_request
from sanctl.plan.device.deletion import (
    AskStop,
    AwaitReap,
    AwaitStop,
    Deleted,
    DeletionStep,
    Remove,
    check_deletion,
    next_step,
)
from sanctl.plan.device.upgrade import plan_completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A device after a command, and whether the command had anything to do."""

    device: DeviceSpec
    cluster: Cluster
    changed: bool
    duration_s: float = 0.0


def complete_devices(session: Session) -> tuple[str, ...]:
    """Give every device what it lacks of today's; return which were changed.

    Raises:
        Refused: no quorum.
    """
    changes = session.change(plan_completion)
    return tuple(c.device.name.value for c in changes if isinstance(c, CompleteDevice))


def create_device(
    session: Session,
    topology: Topology,
    request: CreateRequest,
    *,
    new_uuid: Callable[[], str],
    drbd_version: str | None,
    timeout_s: float,
) -> Outcome:
    """Create a device and wait until it is served and all its replicas are in sync.

    Raises:
        UsageError: the request is malformed; all its problems are listed.
        Refused: the cluster's state stands against it; all reasons are listed.
        CommandError: an agent failed, with its reason.
        NotConverged: it is created, and not yet as it should be.
    """
    wish = read_request(request)
    uuid = new_uuid()
    begin = session.clock.monotonic_s()
    if wish.malformed:
        raise UsageError(
            *wish.malformed, *_objections_if_seen(session, topology, wish, drbd_version)
        )
    assert wish.name is not None
    known: list[Failure] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        problems = objections(wish, cluster, topology, drbd_version=drbd_version)
        if problems:
            raise Refused(*problems)
        result = draft(wish, cluster, topology, uuid=uuid)
        if isinstance(result, Problem):
            raise Refused(result)
        device, changes = result
        known[:] = cluster.mon.failures_of(device.name)
        session.reporter.update(
            f"creating {device.name}: {device.size} in pool {device.pool} "
            f"on {', '.join(map(str, device.nodes))}"
        )
        return changes

    session.change(decide)
    name = wish.name
    cluster = session.wait(
        lambda seen: created(seen, name),
        waiting_for=f"device {name} to be served with all replicas in sync",
        timeout_s=timeout_s,
        resources=(name.value,),
        known_failures=tuple(known),
        look=f"the device is created and goes on by itself: 'sanctl device show {name}', "
        f"'journalctl SANCTL_DEVICE={name}' on its nodes",
    )
    return _outcome(session, cluster, name, changed=True, begin=begin)


def _objections_if_seen(
    session: Session, topology: Topology, wish: Wish, drbd_version: str | None
) -> tuple[Problem, ...]:
    """What else is wrong, if the cluster can be asked: one look should show all of it."""
    try:
        cluster = session.observe()
    except Unreachable:
        return ()
    return objections(wish, cluster, topology, drbd_version=drbd_version)


def _outcome(
    session: Session, cluster: Cluster, name: DeviceName, *, changed: bool, begin: float
) -> Outcome:
    return Outcome(
        device=existing_device(cluster, name),
        cluster=cluster,
        changed=changed,
        duration_s=session.clock.monotonic_s() - begin,
    )


def resize_device(
    session: Session, name: DeviceName, size: ByteSize, *, timeout_s: float
) -> Outcome:
    """Grow a device under its users and wait until every replica has the new size.

    Run again after an interruption it waits for what is still missing.
    """
    begin = session.clock.monotonic_s()
    known: list[Failure] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = cluster.mon.failures_of(name)
        return plan_resize(cluster, name, size)

    changes = session.change(decide)
    cluster = session.wait(
        lambda seen: resized(seen, name),
        waiting_for=f"all replicas of device {name} to have {size}",
        timeout_s=timeout_s,
        resources=(name.value,),
        known_failures=tuple(known),
        look=f"'journalctl SANCTL_DEVICE={name}' on its nodes",
    )
    return _outcome(session, cluster, name, changed=bool(changes), begin=begin)


def move_device(session: Session, name: DeviceName, node: NodeName, *, timeout_s: float) -> Outcome:
    """Let another node serve a device; what pulls it there is removed whatever happens."""
    begin = session.clock.monotonic_s()
    known: list[Failure] = []
    already: list[bool] = [False]

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = cluster.mon.failures_of(name)
        already[0] = cluster.active_node(name) == node.value
        return plan_move(cluster, name, node, now_s=session.clock.wall_s())

    session.change(decide)
    if already[0]:
        return _outcome(session, session.observe(), name, changed=False, begin=begin)
    try:
        cluster = session.wait(
            lambda seen: moved(seen, name, node),
            waiting_for=f"device {name} to be served by {node}",
            timeout_s=timeout_s,
            resources=(name.value,),
            known_failures=tuple(known),
            look=f"'journalctl SANCTL_DEVICE={name}' on its nodes",
        )
        duration_s = session.clock.monotonic_s() - begin
    finally:
        session.change(lambda seen: plan_move_end(seen, name))
    return Outcome(
        device=existing_device(cluster, name),
        cluster=cluster,
        changed=True,
        duration_s=duration_s,
    )


def allow_initiator(session: Session, name: DeviceName, iqn: Iqn, *, timeout_s: float) -> Outcome:
    """Let an initiator use a device."""
    return _change_access(session, name, lambda seen: plan_allow(seen, name, iqn), timeout_s)


def deny_initiator(session: Session, name: DeviceName, iqn: Iqn, *, timeout_s: float) -> Outcome:
    """Keep an initiator from a device."""
    return _change_access(session, name, lambda seen: plan_deny(seen, name, iqn), timeout_s)


def _change_access(
    session: Session,
    name: DeviceName,
    plan: Callable[[Cluster], tuple[Change, ...]],
    timeout_s: float,
) -> Outcome:
    begin = session.clock.monotonic_s()
    known: list[Failure] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = cluster.mon.failures_of(name)
        return plan(cluster)

    changes = session.change(decide)

    def goal(cluster: Cluster) -> Progress:
        return access_applied(
            cluster, name, access_digest(existing_device(cluster, name).initiators)
        )

    cluster = session.wait(
        goal,
        waiting_for=f"the access list of device {name} to be in force on its nodes",
        timeout_s=timeout_s,
        resources=(name.value,),
        known_failures=tuple(known),
        look=f"the list is stored; 'journalctl SANCTL_DEVICE={name}' on its nodes shows why it "
        "is not in force",
    )
    return _outcome(session, cluster, name, changed=bool(changes), begin=begin)


def delete_device(session: Session, name: DeviceName, *, timeout_s: float) -> tuple[NodeName, ...]:
    """Delete a device and its data; run again, it goes on where it stopped.

    Returns:
        The nodes that are away and will remove their data when they are back.

    Raises:
        Refused: there is no such device, or Pacemaker would not stop it.
        NotConverged: time ran out; says at which step.
    """
    deadline = session.clock.monotonic_s() + timeout_s
    cluster = session.observe()
    check_deletion(cluster, name)
    known = cluster.mon.failures_of(name)
    while True:
        step = next_step(cluster, name)
        match step:
            case AskStop():
                session.reporter.update(f"stopping device {name} on all nodes")
                session.change(lambda seen: _changes_of(next_step(seen, name), AskStop))
            case AwaitStop():
                pass
            case Remove():
                session.reporter.update(f"removing device {name}")
                if cluster.mon.failures_of(name):
                    session.forget_failures(name)
                session.change(lambda seen: _changes_of(next_step(seen, name), Remove))
            case AwaitReap():
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
                    f"last seen: {_describe(step)}",
                    f"run 'sanctl device delete {name}' again to finish it",
                )
            )
        cluster = session.wait(
            lambda seen: _deletion_moved_on(seen, name),
            waiting_for=f"deletion of device {name}",
            timeout_s=remaining,
            resources=(name.value,),
            known_failures=known,
            look=f"run 'sanctl device delete {name}' again to finish it",
        )


def _changes_of(step: DeletionStep, wanted: type[AskStop] | type[Remove]) -> tuple[Change, ...]:
    """The changes of a step, if the cluster still calls for that very step."""
    if isinstance(step, wanted) and isinstance(step, AskStop | Remove):
        return step.changes
    return ()


def _deletion_moved_on(cluster: Cluster, name: DeviceName) -> Progress:
    step = next_step(cluster, name)
    return Progress(is_done=not isinstance(step, AwaitStop | AwaitReap), seen=_describe(step))


def _describe(step: DeletionStep) -> str:
    match step:
        case AskStop():
            return "it is still to be stopped"
        case AwaitStop(running=running):
            return f"still running on {', '.join(running)}"
        case Remove():
            return "stopped; its configuration is still there"
        case AwaitReap(here=here):
            return f"data still to be removed on {', '.join(map(str, here))}"
        case Deleted():
            return "deleted"
        case _:
            assert_never(step)
