# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a device may go back to a restore point, what is next, and what goes meanwhile.

No host is let in from the change of the CIB that gives the order until the one that ends it. What
is in between (sanctl/agents/restore/program.py) may be interrupted anywhere, and goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cib_change import Change, SetParameter
from sanctl.model.cluster import MEMBER_STATES, Cluster, NodeState, Role
from sanctl.model.device import DeviceSpec, access_digest
from sanctl.model.device_restore import (
    COPYING,
    DONE,
    GIVEN_UP,
    ORDER_LIFE_S,
    RestoreOrder,
)
from sanctl.model.host_session import HostSession
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.plan.cluster.preconditions import (
    existing_device,
    quorum_problems,
    refuse_unless_changeable,
)
from sanctl.plan.device.placement import missing_bytes
from sanctl.plan.device.restore_points import existing_point, plan_point_order
from sanctl.plan.device.restore_refusals import being_restored_problem

#: The refusal that an operator may accept.
HOSTS_LOGGED_IN = "SAN-REST-001"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """What a command asks for.

    Attributes:
        device: the device.
        point: the name of the restore point.
        token: 16 hex digits that no other order has.
        kept: the order for the point that keeps what is on the device; None: nothing is kept.
        accepted: the codes of refusals that the operator accepts.
    """

    device: DeviceName
    point: str
    token: str
    kept: PointOrder | None
    accepted: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToDo:
    """There is no open order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Look again soon; `why` says what for."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Nothing has been written: let hosts in again, and say why."""

    problem: Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """All is ready: record that the copy begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Make the device the same as this restore point."""

    point: RestorePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyBackup:
    """Make the device the same as a backup: the names of a repository and of a backup in it."""

    repository: str
    backup: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """Something may have been written, and this node cannot go on: hosts stay out."""

    problem: Problem


Step = NothingToDo | Wait | GiveUp | Begin | Copy | CopyBackup | Stuck


def plan_restore(
    cluster: Cluster,
    request: RestoreRequest,
    sessions: Mapping[str, Collection[HostSession]],
    now_s: float,
) -> tuple[Change, ...]:
    """Return the change that orders a restore; none if the same one is under way.

    Args:
        cluster: as observed.
        request: what is wanted.
        sessions: of hosts, by node; a node that does not say is left out.
        now_s: seconds since 1970.

    Raises:
        Refused: there is no such device or point, the point cannot be used, or not now.
    """
    device = existing_device(cluster, request.device)
    refuse_unless_changeable(cluster, device)
    point = existing_point(cluster, request.device, request.point)
    problems = [*_point_problems(cluster, device, point)]
    order = device.restore
    if device.is_restoring:
        if order is None:
            raise Refused(unreadable_problem(device))
        if order.point_token == point.token:
            return ()
        if order.state != COPYING:
            problems.append(being_restored_problem(device))
        if problems:
            raise Refused(*problems)
        # What is on the device now is neither state, so it is not kept once more.
        other = order._replace(
            token=request.token, point=point.name, point_token=point.token, given_s=int(now_s)
        )
        return (_order_change(device, other),)
    if cluster.cib.move(device.name) is not None:
        problems.append(
            Problem(
                "SAN-REST-004",
                f"device {device.name} is being moved to another node",
                "wait until it has moved, and try again",
            )
        )
    problems += _session_problems(cluster, device, request.accepted, sessions)
    kept_changes: tuple[Change, ...] = ()
    if request.kept is None:
        problems += _room_problems(cluster, device)
    else:
        try:
            # Its life begins with the order, and not with the question before.
            kept = request.kept._replace(given_s=int(now_s))
            kept_changes = plan_point_order(cluster, device.name, kept, now_s)
        except Refused as error:
            problems += error.problems
    if problems:
        raise Refused(*problems)
    ordered = RestoreOrder(
        request.token,
        point.name,
        point.token,
        request.kept.token if request.kept else "",
        int(now_s),
    )
    # One patch: no host is served between the point that keeps the present state and the copy.
    return (*kept_changes, _order_change(device, ordered))


def _order_change(device: DeviceSpec, order: RestoreOrder) -> Change:
    return SetParameter(name=device.name, parameter="restore", value=str(order))


def _point_problems(
    cluster: Cluster, device: DeviceSpec, point: RestorePoint
) -> tuple[Problem, ...]:
    problems = []
    if point.is_deleting:
        problems.append(
            Problem(
                "SAN-REST-003",
                f"restore point {device.name}@{point.name} is being deleted",
                "choose another: 'sanctl snapshot list' shows them",
            )
        )
    if point.size_bytes > device.size.bytes:
        problems.append(
            Problem(
                "SAN-REST-003",
                f"restore point {device.name}@{point.name} has {format_bytes(point.size_bytes)}, "
                f"more than the device with its {device.size}",
                "a device never shrinks, so the CIB was changed by hand: set its size right first",
            )
        )
    active = cluster.active_node(device.name)
    if active is None:
        problems.append(
            Problem(
                "SAN-REST-004",
                f"no node serves device {device.name} at the moment",
                "'sanctl status' shows why; try again when one does",
            )
        )
    elif active not in point.nodes:
        problems.append(_lacking_problem(device, point, active))
    return tuple(problems)


def _lacking_problem(device: DeviceSpec, point: RestorePoint, node: str) -> Problem:
    have = [name for name in point.nodes if name in {each.value for each in device.nodes}]
    return Problem(
        "SAN-REST-002",
        f"{node} serves device {device.name} and does not have restore point {point.name}",
        f"have a node serve it that has it: 'sanctl device move {device.name} --to {have[0]}'"
        if have
        else "no node with a replica has it; choose another: 'sanctl snapshot list' shows them",
    )


def _session_problems(
    cluster: Cluster,
    device: DeviceSpec,
    accepted: Collection[str],
    sessions: Mapping[str, Collection[HostSession]],
) -> tuple[Problem, ...]:
    if HOSTS_LOGGED_IN in accepted:
        return ()
    members = [n.value for n in device.nodes if cluster.mon.state(n) in MEMBER_STATES]
    hosts = sorted(
        {
            session.iqn
            for node in members
            for session in sessions.get(node, ())
            if session.device == device.name.value
        }
    )
    silent = [node for node in members if node not in sessions]
    if not hosts and not silent:
        return ()
    who = [*hosts, *(f"hosts of {node}, which does not say" for node in silent)]
    return (
        Problem(
            HOSTS_LOGGED_IN,
            f"hosts are logged in to device {device.name}: {', '.join(who)}",
            "stop what uses it there, unmount it, log out, and try again after half a minute: a "
            "host that stays would write what it remembers over what comes back; --accept "
            f"{HOSTS_LOGGED_IN} ends the sessions",
        ),
    )


def _room_problems(cluster: Cluster, device: DeviceSpec) -> tuple[Problem, ...]:
    return tuple(
        Problem(
            "SAN-REST-009",
            f"the devices in pool {device.pool} on {node} may still write "
            f"{format_bytes(missing)} more than it has free",
            "what comes back is written to new blocks: delete restore points or devices, or make "
            "the pool larger",
        )
        for node in device.nodes
        if (missing := missing_bytes(cluster, device.pool, node))
    )


def next_step(
    cluster: Cluster, name: str, here: str, *, is_closed_here: bool, now_s: float
) -> Step:
    """Return what the node that serves a device does next for an order to restore it.

    Args:
        cluster: as observed.
        name: the device's name.
        here: the node.
        is_closed_here: the kernel here lets no host in to the device.
        now_s: seconds since 1970.
    """
    device = cluster.cib.device(name)
    order = device.restore if device else None
    if device is None or order is None or not order.is_open or device.is_stopping:
        return NothingToDo()
    if order.backup is not None:
        # Given with the device itself: it has never held anything else, and no host was let in.
        repository, backup = order.backup
        if not is_closed_here:
            return Wait(why=f"{here} still lets hosts in")
        return CopyBackup(repository=repository, backup=backup)
    point = target_point(cluster, device, order)
    if order.state == COPYING:
        problem = copy_problem(device, order, point, here)
        if problem is not None:
            return Stuck(problem=problem)
        assert point is not None
        return Copy(point=point) if is_closed_here else Wait(why=f"{here} still lets hosts in")
    problem = copy_problem(device, order, point, here) or _kept_problem(cluster, device, order)
    if problem is not None:
        return GiveUp(problem=problem)
    why = _not_ready(cluster, device, order, here, is_closed_here=is_closed_here)
    if not why:
        return Begin()
    if now_s - order.given_s <= ORDER_LIFE_S:
        return Wait(why=why)
    return GiveUp(problem=Problem("SAN-REST-007", f"after {ORDER_LIFE_S} s {why}"))


def target_point(cluster: Cluster, device: DeviceSpec, order: RestoreOrder) -> RestorePoint | None:
    """Return the restore point that an order goes back to; None: it is gone, or going."""
    return next(
        (
            point
            for point in cluster.cib.points_of(device.name)
            if point.token == order.point_token and not point.is_deleting
        ),
        None,
    )


def copy_problem(
    device: DeviceSpec, order: RestoreOrder, point: RestorePoint | None, here: str
) -> Problem | None:
    """Return why this node cannot copy the restore point of an order; None: it can."""
    if point is None:
        return Problem(
            "SAN-REST-003",
            f"restore point {device.name}@{order.point} is gone",
            f"go back to another: 'sanctl device restore {device.name} --to POINT'",
        )
    return None if here in point.nodes else _lacking_problem(device, point, here)


def _kept_problem(cluster: Cluster, device: DeviceSpec, order: RestoreOrder) -> Problem | None:
    if not order.kept_token or _is_kept(cluster, device, order):
        return None
    failures = [
        failure
        for (name, _), failure in cluster.cib.point_failures.items()
        if name == device.name.value and failure.token == order.kept_token
    ]
    return Problem(failures[0].code, failures[0].text) if failures else None


def _is_kept(cluster: Cluster, device: DeviceSpec, order: RestoreOrder) -> bool:
    points = cluster.cib.points_of(device.name)
    return not order.kept_token or any(point.token == order.kept_token for point in points)


def _not_ready(
    cluster: Cluster, device: DeviceSpec, order: RestoreOrder, here: str, *, is_closed_here: bool
) -> str:
    """Return what is missing before anything may be written; empty: nothing."""
    if not is_closed_here:
        return f"{here} still lets hosts in"
    nobody = access_digest(())
    for node in device.nodes:
        state = cluster.mon.state(node)
        # A node that is away gets the CIB, and with it the order, before it starts the device.
        if node.value == here or state is NodeState.OFFLINE:
            continue
        if state not in MEMBER_STATES:
            return f"{node} is {state.value}"
        # So it has read the order, and lets nobody in either when it comes to serve.
        if (
            cluster.mon.role(device.name, node) is not Role.STOPPED
            and cluster.replica(device.name, node).access != nobody
        ):
            return f"{node} still lets hosts in"
    if not _is_kept(cluster, device, order):
        return "what is on the device is not kept yet"
    return ""


def plan_begun(cluster: Cluster, name: str, order: RestoreOrder) -> tuple[Change, ...]:
    """Return the change after which the device may hold parts of two states.

    Raises:
        CommandError: the order does not stand any more.
    """
    return (_order_change(_standing(cluster, name, order), order._replace(state=COPYING)),)


def plan_done(cluster: Cluster, name: str, order: RestoreOrder) -> tuple[Change, ...]:
    """Return the change by which hosts are let in again: the device is the restore point.

    Raises:
        CommandError: the order does not stand any more.
    """
    return (_order_change(_standing(cluster, name, order), order._replace(state=DONE)),)


def plan_given_up(cluster: Cluster, name: str, order: RestoreOrder) -> tuple[Change, ...]:
    """Return the change by which hosts are let in again: nothing was written.

    Raises:
        CommandError: the order does not stand any more, or the copy has begun.
    """
    device = _standing(cluster, name, order)
    assert order.state != COPYING
    return (_order_change(device, order._replace(state=GIVEN_UP)),)


def _standing(cluster: Cluster, name: str, order: RestoreOrder) -> DeviceSpec:
    device = cluster.cib.device(name)
    problems = quorum_problems(cluster)
    if problems:
        raise CommandError(*problems)
    if device is None or device.restore != order:
        raise CommandError(Problem("SAN-REST-006", f"the order to restore {name} was replaced"))
    return device


def unreadable_problem(device: DeviceSpec) -> Problem:
    """Return the problem of an order that another release has written."""
    return Problem(
        "SAN-REST-010",
        f"what the CIB says of the restore of device {device.name} cannot be read here",
        "nodes have different releases: run the playbook on all of them",
    )
