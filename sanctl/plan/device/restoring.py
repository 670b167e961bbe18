# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for an order to restore a device: the next step of the node that serves; the order's end.

No host is let in between the change of the CIB that gives the order and the change that ends it.
The steps in between (sanctl/agents/restore/program.py) may be interrupted anywhere, and go on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cib_change import Change, ClearParameter, SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState, Role
from sanctl.model.device import DeviceSpec, access_digest
from sanctl.model.device_restore import (
    COPYING,
    DONE,
    HELD,
    ORDER_LIFE_S,
    RestoreOrder,
)
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.release_needs import HELD_COPIES
from sanctl.model.restore_point import RestorePoint
from sanctl.model.site import Site
from sanctl.model.site_copy import SiteCopy
from sanctl.plan.cluster.preconditions import (
    existing_device,
    quorum_problems,
    refuse_unless_changeable,
)
from sanctl.plan.device.noted_hold import is_older, newest_of, next_note
from sanctl.plan.device.release_needs import needed
from sanctl.plan.device.restore_kept import kept_point_of, unkept_problem
from sanctl.plan.device.restore_refusals import (
    held_problem,
    is_overtaken,
    nodes_with_newer_hold,
    not_said_of_hold_problems,
    older_cib_problem,
    silent_nodes,
    unsure_problem,
)

#: As far apart are an order and the moment in which a node first sees it, where no clock is wrong.
_CLOCKS_S = 60


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
    """All is ready: record that the copy begins, as soon as its source is known to be there."""

    goal: Copy | CopyFromSite


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
class CopyFromSite:
    """Make the device the same as a copy at a second site.

    Attributes:
        site: the site.
        copy: the copy.
        base: the copy that the device is, with certainty; None: that is not known.
    """

    site: Site
    copy: SiteCopy
    base: SiteCopy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """This node cannot go on, and hosts stay out: what is on the device may be of two states.

    Attributes:
        problem: why.
        noted: the newest order that nodes have noted, by which this one is not carried out: it is
            to be noted here as well. None: that is not the reason.
    """

    problem: Problem
    noted: RestoreOrder | None = None


Step = NothingToDo | Wait | GiveUp | Begin | Copy | CopyBackup | CopyFromSite | Stuck


def next_step(
    cluster: Cluster,
    name: str,
    here: str,
    *,
    is_closed_here: bool,
    now_s: float,
    waited_s: float,
    noted_here: str = "",
) -> Step:
    """Return what the node that serves a device does next for an order to restore it.

    Args:
        cluster: as observed.
        name: the device's name.
        here: the node.
        is_closed_here: the kernel here lets no host in to the device.
        now_s: seconds since 1970.
        waited_s: how long ago this node has first seen the order, by a clock that is not set: the
            other node's, which has given it, may differ from this one's by hours, and hosts were
            kept out for as long.
        noted_here: what is noted beside the data here of a hold, whether that is published or not.
    """
    device = cluster.cib.device(name)
    order = device.restore if device else None
    if device is None or order is None or not order.is_open or device.is_stopping:
        return NothingToDo()
    if order.state == HELD:
        return NothingToDo()  # A command goes on.
    noting = nodes_with_newer_hold(cluster, device)
    # Before the next monitor publishes it. One that cannot be read may be of anything; an order of
    # a hold takes its place before anything is written, and no other one does.
    is_overruled = next_note(str(order), noted_here) is not None
    if noted_here and is_older(str(order), noted_here) and not is_overruled:
        noting[here] = RestoreOrder.parse(noted_here)
    # A new device that is made from a backup was never held.
    silent = () if order.backup is not None else silent_nodes(cluster, device)
    if silent and (order.is_of_holds or noting or waited_s <= ORDER_LIFE_S):
        # attrd gives no answer, or was restarted: each of them may have noted that this has ended.
        return Wait(why=f"what {', '.join(silent)} has noted of it is not known")
    if is_overtaken(order, noting):
        return Stuck(
            problem=older_cib_problem(cluster, device, noting), noted=newest_of(noting.values())
        )
    if order.backup is not None:
        # Given with the device itself: it has never held anything else, and no host was let in.
        repository, backup = order.backup
        if not is_closed_here:
            return Wait(why=f"{here} still lets hosts in")
        return CopyBackup(repository=repository, backup=backup)
    found = _open_step(
        cluster,
        device,
        order,
        here,
        is_closed_here=is_closed_here,
        now_s=now_s,
        waited_s=waited_s,
    )
    if isinstance(found, GiveUp) and (order.is_unsure or noting):
        return Stuck(problem=found.problem)
    if noting and isinstance(found, Begin) and isinstance(found.goal, CopyFromSite):
        # It has begun where this CIB does not say so: the device is not its base any more.
        return Begin(goal=replace(found.goal, base=None))
    return found


def is_unsure(cluster: Cluster, device: DeviceSpec, order: RestoreOrder) -> bool:
    """Whether what is on a device before an order begins may be half of a copy.

    Such an order is not given up and not withdrawn: hosts would see that. It begins once all is
    ready, what is to be kept as well, or another one takes its place.
    """
    return order.is_unsure or bool(nodes_with_newer_hold(cluster, device))


def _open_step(
    cluster: Cluster,
    device: DeviceSpec,
    order: RestoreOrder,
    here: str,
    *,
    is_closed_here: bool,
    now_s: float,
    waited_s: float,
) -> Step:
    goal = goal_of(cluster, device, order, here)
    if isinstance(goal, Problem):
        return Stuck(problem=goal) if order.state == COPYING else GiveUp(problem=goal)
    if order.state == COPYING:
        return goal if is_closed_here else Wait(why=f"{here} still lets hosts in")
    problem = unkept_problem(cluster, device, order)
    if problem is not None:
        return GiveUp(problem=problem)
    why = _not_ready(cluster, device, order, here, is_closed_here=is_closed_here)
    if not why:
        return Begin(goal=goal)
    if waited_s <= ORDER_LIFE_S:
        return Wait(why=why)
    # An order to keep what is on the device is carried out for a minute by the clocks.
    off_s = round(abs(now_s - waited_s - order.given_s))
    hint = (
        "the clock here and that of the node which gave the order, or an earlier one, differ by "
        f"{off_s} s: set them; then again"
        if off_s > _CLOCKS_S and not order.is_unsure
        else ""
    )
    return GiveUp(problem=Problem("SAN-REST-007", f"after {ORDER_LIFE_S} s {why}", hint))


def goal_of(
    cluster: Cluster, device: DeviceSpec, order: RestoreOrder, here: str
) -> Copy | CopyFromSite | Problem:
    """Return the step by which a node fills the device; else why it cannot. Not of a backup."""
    copy = order.copy
    if copy is not None:
        site = cluster.cib.site(copy.site)
        if site is None:
            return gone_site_problem(copy)
        return CopyFromSite(site=site, copy=copy, base=order.base)
    point = target_point(cluster, device, order)
    if point is None:
        return gone_point_problem(device, order)
    return Copy(point=point) if here in point.nodes else lacking_problem(device, point, here)


def gone_site_problem(copy: SiteCopy) -> Problem:
    """Return that the cluster does not know the site of a copy."""
    return Problem(
        "SAN-SITE-002",
        f"there is no site {copy.site}, or its entry in the CIB cannot be read",
        f"'sanctl site add {copy.site}' with its server and directory, and it goes on",
    )


def lacking_problem(device: DeviceSpec, point: RestorePoint, node: str) -> Problem:
    """Return that the node which serves a device does not have a restore point."""
    have = [name for name in point.nodes if name in {each.value for each in device.nodes}]
    return Problem(
        "SAN-REST-002",
        f"{node} serves device {device.name} and does not have restore point {point.name}",
        f"have a node serve it that has it: 'sanctl device move {device.name} --to {have[0]}'"
        if have
        else "no node with a replica has it; choose another: 'sanctl snapshot list' shows them",
    )


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


def gone_point_problem(device: DeviceSpec, order: RestoreOrder) -> Problem:
    """Return that the restore point of an order is gone."""
    return Problem(
        "SAN-REST-003",
        f"restore point {device.name}@{order.point} is gone",
        f"go back to another: 'sanctl device restore {device.name} --to POINT'",
    )


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
        # It would come back with an older CIB, and let hosts in to half of the copy.
        if order.is_of_holds and cluster.replica(device.name, node).is_hold_unnoted:
            return f"{node} cannot note it beside the data"
    keeps = order.kept_token and order.base is None
    if keeps and kept_point_of(cluster, device, order) is None:
        return "what is on the device is not kept yet"
    return ""


def order_changes(device: DeviceSpec, order: RestoreOrder) -> tuple[Change, ...]:
    """Return the changes that give a device this order, and say what a release has to know."""
    return (
        *needed(device, HELD_COPIES, is_on=order.is_of_holds),
        SetParameter(name=device.name, parameter="restore", value=str(order)),
    )


def plan_begun(cluster: Cluster, name: str, order: RestoreOrder) -> tuple[Change, ...]:
    """Return the change after which the device may hold parts of two states.

    Raises:
        CommandError: the order does not stand any more, also by what a node has noted that is back
            since; or what one has noted is not known.
    """
    device = _said(cluster, name, order)
    noting = nodes_with_newer_hold(cluster, device)
    if is_overtaken(order, noting):
        raise CommandError(older_cib_problem(cluster, device, noting))
    return order_changes(device, order.in_state(COPYING))


def plan_done(cluster: Cluster, name: str, order: RestoreOrder, here: str) -> tuple[Change, ...]:
    """Return the change that says that the device is what was ordered.

    By it hosts are let in again, or the device is held.

    Args:
        cluster: as observed.
        name: the device's name.
        order: the order.
        here: the node that has filled its replica. Pacemaker may not show its role, as after the
            reload by which the order came.

    Raises:
        CommandError: the order does not stand any more; or the replica that was filled is marked as
            outdated, or another node serves: so another one than that is to be the device.
    """
    device, active = _standing(cluster, name, order), cluster.active_node(DeviceName.parse(name))
    if cluster.is_marked(device, NodeName.parse(here)):
        raise CommandError(
            Problem("SAN-REST-008", f"the replica of {name} on {here} is marked as outdated")
        )
    if active not in {None, here}:
        raise CommandError(Problem("SAN-REST-008", f"{active} serves {name}, and not {here}"))
    return order_changes(device, order.in_state(HELD if order.holds else DONE))


def plan_given_up(cluster: Cluster, name: str, order: RestoreOrder) -> tuple[Change, ...]:
    """Return the change by which hosts are let in again: nothing was written.

    A device that was held before is held again. None of an order that is unsure.

    Raises:
        CommandError: the order does not stand any more, or the copy has begun; or what a node has
            noted is not known.
    """
    device = _said(cluster, name, order)
    assert order.state != COPYING
    return () if is_unsure(cluster, device, order) else order_changes(device, order.withdrawn)


def plan_cancelled(cluster: Cluster, name: DeviceName) -> tuple[Change, ...]:
    """Return the change by which an operator withdraws an order, and hosts are let in again.

    A device that was held before is held again, as the copy that it was and is. No change if no
    order is open. The node that serves notes the begin of its copy by a change of the same order
    (`plan_begun`), and writes nothing before: only one of both changes is made.

    Raises:
        Refused: there is no such device, it cannot be changed now, the copy has begun, or it has
            ended and the device is held; or what is on the device, or what a node has noted of it,
            is not known.
    """
    device = existing_device(cluster, name)
    if not device.is_restoring:
        return ()
    refuse_unless_changeable(cluster, device)
    order = device.restore
    if order is None:
        raise Refused(unreadable_problem(device))
    if order.state == COPYING:
        raise Refused(
            Problem(
                "SAN-REST-013",
                f"device {name} is being overwritten from {order.source}, and may hold parts of "
                "two states: that is not withdrawn any more",
                f"wait until it is whole: 'sanctl device show {name}' shows how far it is; then "
                "'sanctl device restore' goes back to what was kept",
            )
        )
    if order.state == HELD:
        raise Refused(held_problem(device, order))
    if silent := not_said_of_hold_problems(cluster, device):
        raise Refused(*silent)
    noting = nodes_with_newer_hold(cluster, device)
    if is_overtaken(order, noting):
        raise Refused(older_cib_problem(cluster, device, noting))
    if is_unsure(cluster, device, order):
        raise Refused(unsure_problem(device, order))
    changes = order_changes(device, order.withdrawn)
    kept = device.point_order
    if kept is not None and kept.token == order.kept_token:
        # What is on the device stays there, so nobody needs the restore point of it.
        return (*changes, ClearParameter(name=name, parameter="point"))
    return changes


def _said(cluster: Cluster, name: str, order: RestoreOrder) -> DeviceSpec:
    """Return the device, if its order stands and what nodes have noted of a hold is known."""
    device = _standing(cluster, name, order)
    if silent := not_said_of_hold_problems(cluster, device):
        raise CommandError(*silent)
    return device


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
