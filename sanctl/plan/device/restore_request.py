# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a device may go back to a restore point, or to a copy at a site; the order for it.

No host is let in from the change of the CIB that gives the order until the one that ends it
(restore_changes.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import COPYING, HELD, ORDERED, RestoreOrder
from sanctl.model.host_session import HostSession
from sanctl.model.names import DeviceName, format_bytes
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.model.site_copy import SiteCopy
from sanctl.plan.cluster.preconditions import existing_device, refuse_unless_changeable
from sanctl.plan.device.notes_of_nodes import is_overtaken, newer_s, nodes_with_newer_hold
from sanctl.plan.device.placement import missing_bytes
from sanctl.plan.device.restore_changes import is_unsure, order_changes, unreadable_problem
from sanctl.plan.device.restore_kept import (
    KEPT_NOT_EVERYWHERE,
    kept_before,
    lacks_kept,
    not_kept_problems,
)
from sanctl.plan.device.restore_points import existing_point, plan_point_order
from sanctl.plan.device.restore_refusals import (
    ENDS_HOLD,
    being_restored_problem,
    ends_hold_problem,
    not_said_problems,
)
from sanctl.plan.device.restoring import lacking_problem

#: The refusals that an operator may accept.
HOSTS_LOGGED_IN = "SAN-REST-001"
GOAL_NOT_EVERYWHERE = "SAN-REST-011"
STILL_MOUNTED = (
    "hosts that still have it mounted, also those without a session now, will write over it: "
    "unmount it there first, and remove its paths ('multipath -f', log out), or reboot them"
)
"""No session tells of these: a host that was denied keeps its filesystem, and the writes that its
multipath queues, and sends them once it is let in again: the device is still the same LUN."""


class Shown(NamedTuple):
    """The identities of a device and its restore point at the moment an operator was asked.

    Attributes:
        uuid: the device's UUID.
        point_token: the restore point's token; empty: a copy at a site is meant, whose digest says
            which.
    """

    uuid: str
    point_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """The request of a command to restore a device.

    Attributes:
        device: the device.
        point: the name of the restore point; or a copy at a site with its size in bytes.
        token: 16 hex digits that no other order has.
        kept: the order for the point that keeps the device's content; None: nothing is kept.
        accepted: the codes of refusals that the operator accepts.
        shown: the device and point that the operator was shown; None: any of these names.
        holds: the device is held once it is the copy: no host is let in before that is released.
    """

    device: DeviceName
    point: str | tuple[SiteCopy, int]
    token: str
    kept: PointOrder | None
    accepted: Collection[str] = ()
    shown: Shown | None = None
    holds: bool = False

    @property
    def goal(self) -> str:
        """What the device is to hold, for people."""
        if isinstance(self.point, str):
            return f"restore point {self.point}"
        return f"copy {self.point[0].name}"


def shown_of(cluster: Cluster, request: RestoreRequest) -> Shown:
    """Return what has the names of a request now.

    Raises:
        Refused: there is no such device or restore point.
    """
    device = existing_device(cluster, request.device)
    if not isinstance(request.point, str):
        return Shown(device.uuid, "")
    return Shown(device.uuid, existing_point(cluster, device.name, request.point).token)


def _refuse_others(cluster: Cluster, request: RestoreRequest) -> None:
    """Raise Refused if the device or the restore point is another one than was shown."""
    if request.shown is None:
        return
    present = shown_of(cluster, request)
    if present.uuid != request.shown.uuid:
        raise Refused(
            Problem(
                "SAN-DEV-022",
                f"device {request.device} is another one than the one to be restored: it was "
                "created anew since",
                f"'sanctl device show {request.device}'; run the command again if this one is to "
                "be overwritten",
            )
        )
    if present.point_token != request.shown.point_token:
        name = f"{request.device}@{request.point}"
        raise Refused(
            Problem(
                "SAN-SNAP-020",
                f"restore point {name} is another one than the one that was shown: it was made "
                "anew since",
                f"'sanctl snapshot show {name}'; run the command again if the device is to go back "
                "to this one",
            )
        )


def plan_restore(
    cluster: Cluster,
    request: RestoreRequest,
    sessions: Mapping[str, Collection[HostSession]],
    now_s: float,
) -> tuple[Change, ...]:
    """Return the change that orders a restore; none if the same one is under way, or held.

    Args:
        cluster: as observed.
        request: what is wanted.
        sessions: of hosts, by node; a node that does not say is left out.
        now_s: seconds since 1970.

    Raises:
        Refused: there is no such device or point, it is another one than was shown, the point or
            copy cannot be used, or not now.
    """
    device = existing_device(cluster, request.device)
    _refuse_others(cluster, request)
    refuse_unless_changeable(cluster, device)
    goal = _goal(cluster, device, request)
    problems = [*goal.problems, *not_said_problems(cluster, device)]
    order = device.restore
    noting = nodes_with_newer_hold(cluster, device)
    if device.is_restoring and order is None:
        raise Refused(unreadable_problem(device))
    if ENDS_HOLD not in request.accepted:
        _refuse_end_of_hold(cluster, request, device, noting)
    # What the CIB says is of before else: nothing of it stands.
    stands = device.is_restoring and not is_overtaken(order, noting)
    if order is not None and stands:
        if goal.is_that_of(order) and not (
            order.state == ORDERED
            and is_unsure(cluster, device, order)
            and lacks_kept(cluster, device, _as_accepted(request, order), now_s)
        ):
            # One that lets hosts in at its end is not to do that before they are to be let in.
            if order.state != HELD and request.holds and not order.holds:
                raise Refused(being_restored_problem(cluster, device))
            if order.state != ORDERED or order.may_keep_on_few or not _may_keep_on_few(request):
                return ()
            return order_changes(device, order._replace(may_keep_on_few=True))
        if order.state in {COPYING, HELD}:
            if problems:
                raise Refused(*problems)
            # What is on the device now is neither state, or a copy, so it is not kept once more.
            other = order._replace(
                token=request.token,
                point=goal.point,
                point_token=goal.token,
                given_s=newer_s(cluster, device, now_s),
                state=ORDERED if order.state == HELD else order.state,
                holds=request.holds,
                base=order.copy if order.state == HELD else None,
            )
            if other.base is None:
                other = other._replace(turn=_turn_kept(request, order, goal))
            return order_changes(device, other)
        if not is_unsure(cluster, device, order):
            raise Refused(*problems, being_restored_problem(cluster, device))
    if cluster.cib.move_under_way(device.name, now_s) is not None:
        problems.append(
            Problem(
                "SAN-REST-004",
                f"device {device.name} is being moved to another node",
                "wait until it has moved, and try again",
            )
        )
    if not device.is_restoring:
        problems += _session_problems(cluster, device, request.accepted, sessions)
    kept_changes: tuple[Change, ...] = ()
    kept_token = request.kept.token if request.kept else ""
    before = kept_before(cluster, device, stands=stands)
    if before is not None:
        kept_token = before
    if request.kept is None or before is not None:
        problems += _room_problems(cluster, device)
    else:
        problems += not_kept_problems(cluster, device, request.accepted)
        try:
            # Its life begins with the order, and not with the question before.
            kept = request.kept._replace(given_s=int(now_s))
            kept_changes = plan_point_order(
                cluster, device.name, kept, now_s, is_before_restore=True
            )
        except Refused as error:
            problems += error.problems
    if problems:
        raise Refused(*problems)
    ordered = RestoreOrder(
        request.token,
        goal.point,
        goal.token,
        kept_token,
        newer_s(cluster, device, now_s),
        # A node of an earlier release cannot read it, so it is there only where it says something:
        # what was kept before a hold is all that there is; what an order that stands has kept is on
        # all nodes, or that was accepted.
        may_keep_on_few=(before is not None and _may_keep_before(order, stands=stands))
        or (
            before is None
            and _may_keep_on_few(request)
            and bool(not_kept_problems(cluster, device, ()))
        ),
        holds=request.holds,
        turn=_turn_kept(request, order, goal) if device.is_restoring and order is not None else "",
        is_unsure=bool(noting) or stands,
    )
    # One patch: no host is served between the point that keeps the present state and the copy.
    return (*kept_changes, *order_changes(device, ordered))


def _refuse_end_of_hold(
    cluster: Cluster,
    request: RestoreRequest,
    device: DeviceSpec,
    noting: Mapping[str, RestoreOrder | None],
) -> None:
    """Raise Refused if a failback would end a hold; a restore to a point says that it does.

    Also one to the same copy, and one that nodes have noted alone: the hold may be another
    administrator's, who waits for the hosts of the other device to stop.
    """
    if request.holds or isinstance(request.point, str):
        return
    known = (*((device.restore,) if device.is_restoring else ()), *noting.values())
    held = [order for order in known if order is None or order.holds]
    if held:
        raise Refused(ends_hold_problem(cluster, device, held[0]))


def _turn_kept(request: RestoreRequest, order: RestoreOrder, goal: _Goal) -> str:
    """Return how far the turn of the roles stays, where an order takes the place of another."""
    return order.turn_towards(SiteCopy.parse(goal.point)) if request.holds else ""


def _may_keep_before(order: RestoreOrder | None, *, stands: bool) -> bool:
    return order is None or not stands or order.may_keep_on_few


def _as_accepted(request: RestoreRequest, order: RestoreOrder) -> RestoreOrder:
    return order._replace(may_keep_on_few=order.may_keep_on_few or _may_keep_on_few(request))


def _may_keep_on_few(request: RestoreRequest) -> bool:
    return request.kept is not None and KEPT_NOT_EVERYWHERE in request.accepted


class _Goal(NamedTuple):
    """What the device is to hold: as the order names it, and why it cannot."""

    point: str
    token: str
    problems: tuple[Problem, ...]

    def is_that_of(self, order: RestoreOrder) -> bool:
        """Whether an order is one to hold the same."""
        return order.point == self.point and (
            order.point_token == self.token or not order.is_of_point
        )


def _goal(cluster: Cluster, device: DeviceSpec, request: RestoreRequest) -> _Goal:
    if isinstance(request.point, str):
        point = existing_point(cluster, request.device, request.point)
        problems = _point_problems(cluster, device, point, request.accepted)
        return _Goal(point.name, point.token, problems)
    copy, size_bytes = request.point
    problems = ()
    if size_bytes > device.size.bytes:
        problems = (
            Problem(
                "SAN-SITE-020",
                f"copy {copy.name} has {format_bytes(size_bytes)}, more than device "
                f"{device.name} with its {device.size}",
                f"'sanctl device resize {device.name}' makes it larger; or 'sanctl replicate "
                "restore' makes another device",
            ),
        )
    return _Goal(
        str(copy),
        request.token,
        (
            *problems,
            *(() if cluster.active_node(device.name) else (_not_served_problem(device),)),
        ),
    )


def _not_served_problem(device: DeviceSpec) -> Problem:
    return Problem(
        "SAN-REST-004",
        f"no node serves device {device.name} at the moment",
        "'sanctl status' shows why; try again when one does",
    )


def _point_problems(
    cluster: Cluster, device: DeviceSpec, point: RestorePoint, accepted: Collection[str]
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
        problems.append(_not_served_problem(device))
    elif active not in point.nodes:
        problems.append(lacking_problem(device, point, active))
    elif GOAL_NOT_EVERYWHERE not in accepted and (
        lacking := [node.value for node in device.nodes if node.value not in point.nodes]
    ):
        problems.append(
            Problem(
                GOAL_NOT_EVERYWHERE,
                f"restore point {device.name}@{point.name} is not on {', '.join(lacking)}",
                f"choose one that is on all nodes: 'sanctl snapshot list {device.name}' shows them."
                f" If {active} fails before the end, no host gets in until a node with the restore "
                f"point serves again; --accept {GOAL_NOT_EVERYWHERE} goes on all the same",
            )
        )
    return tuple(problems)


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
            "host that stays would write what it remembers over what comes back, also after its "
            f"session was ended; --accept {HOSTS_LOGGED_IN} ends the sessions",
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
