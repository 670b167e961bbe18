# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for an order to restore a device: the next step of the node that serves.

No host is let in between the change of the CIB that gives the order and the change that ends it
(restore_changes.py). The steps in between (sanctl/agents/restore/program.py) may be interrupted
anywhere, and go on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sanctl.errors import Problem
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState, Role
from sanctl.model.device import DeviceSpec, access_digest
from sanctl.model.device_restore import COPYING, HELD, ORDER_LIFE_S, RestoreOrder
from sanctl.model.restore_point import RestorePoint
from sanctl.model.site import Site
from sanctl.model.site_copy import SiteCopy
from sanctl.plan.device.noted_hold import is_older, newest_of, next_note
from sanctl.plan.device.notes_of_nodes import is_overtaken, nodes_with_newer_hold, silent_nodes
from sanctl.plan.device.restore_kept import kept_point_of, unkept_problem
from sanctl.plan.device.restore_refusals import older_cib_problem

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
