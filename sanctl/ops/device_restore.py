# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `device restore`: an order in the CIB, and the wait until hosts are let in again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.device import access_digest
from sanctl.model.device_restore import DONE, HELD
from sanctl.model.host_session import HostSession
from sanctl.model.names import DeviceName
from sanctl.model.site_copy import SiteCopy
from sanctl.ops.cib_room import within_room
from sanctl.ops.device_change import DeviceOutcome, change_device
from sanctl.ops.noted_state import await_noted
from sanctl.ops.session import Session
from sanctl.ops.snapshot import await_active_node
from sanctl.plan.cluster.convergence import Progress, access_progress
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.restore_changes import plan_cancelled
from sanctl.plan.device.restore_kept import kept_before
from sanctl.plan.device.restore_progress import given_up_problem, progress_text
from sanctl.plan.device.restore_refusals import held_problem
from sanctl.plan.device.restore_request import (
    RestoreRequest,
    plan_restore,
    shown_of,
)
from sanctl.plan.site.hold_release import plan_released

#: How long a device's role may be hidden: a reload of both replicas, on busy nodes.
_ROLE_S = 20.0


class Checked(NamedTuple):
    """A restore that may be ordered.

    Attributes:
        request: the same, of nothing but what has its names now.
        is_under_way: the same one is under way already.
        is_lost: what is on the device now is not kept, as it may be half of a copy. It may be by
            the time of the order, which says so itself.
    """

    request: RestoreRequest
    is_under_way: bool
    is_lost: bool


def check_restore(session: Session, request: RestoreRequest) -> Checked:
    """Check that a restore may be ordered now; note what has these names, before a question.

    Raises:
        Refused: it may not.
    """
    await_active_node(session, request.device, timeout_s=_ROLE_S)
    await_noted(session, request.device.value)
    now_s = session.clock.wall_s()
    cluster = session.observe()
    changes = plan_restore(cluster, request, session.host_sessions(), now_s)
    device = existing_device(cluster, request.device)
    is_lost = request.kept is None or kept_before(cluster, device, stands=False) is not None
    return Checked(replace(request, shown=shown_of(cluster, request)), not changes, is_lost)


def restore_device(
    session: Session, request: RestoreRequest, *, ipc_buffer_bytes: int, timeout_s: float
) -> DeviceOutcome:
    """Put a device back to a restore point, or wait for the same restore that is under way.

    It ends when hosts can log in, or the device is held. After `timeout_s` the wait is given up,
    and the restore goes on.

    Raises:
        Refused: it may not be done now.
        CommandError: nothing was written, and hosts are let in again; or another restore replaced
            this one.
        NotConverged: it goes on.
    """
    name = request.device
    # Also after a question to the operator: a node may be silent since.
    await_noted(session, name.value)
    sessions: dict[str, tuple[HostSession, ...]] = session.host_sessions()
    token = request.token

    def plan(cluster: Cluster) -> tuple[Change, ...]:
        nonlocal token
        changes = plan_restore(cluster, request, sessions, session.clock.wall_s())
        under_way = existing_device(cluster, name).restore
        token = request.token if changes or under_way is None else under_way.token
        return changes

    def progress(cluster: Cluster) -> Progress:
        return order_progress(cluster, name, token, request.point)

    return change_device(
        session,
        name,
        within_room(session, plan, ipc_buffer_bytes),
        progress,
        waiting_for=f"device {name} to be back at {request.goal}",
        timeout_s=timeout_s,
        look=f"it goes on by itself, and lets no host in before its end: 'sanctl device show {name}"
        "' shows how far it is; the same command waits again",
    )


def cancel_restore(session: Session, name: DeviceName, *, timeout_s: float) -> DeviceOutcome:
    """Withdraw an order of which nothing is written yet, and wait until hosts are let in again.

    Raises:
        Refused: there is no such device, it cannot be changed now, or the copy has begun.
        NotConverged: the order is withdrawn, and a node still keeps hosts out.
    """

    def progress(cluster: Cluster) -> Progress:
        device = existing_device(cluster, name)
        return access_progress(cluster, name, access_digest(device.access))

    return change_device(
        session,
        name,
        lambda seen: plan_cancelled(seen, name),
        progress,
        waiting_for=f"hosts to be let in to device {name} again",
        timeout_s=timeout_s,
        look=f"the restore is withdrawn; 'journalctl SANCTL_DEVICE={name}' on its nodes says why "
        "hosts are still kept out",
    )


def release_device(
    session: Session,
    name: DeviceName,
    copy: SiteCopy | None,
    *,
    timeout_s: float,
    accepted: Collection[str] = (),
) -> DeviceOutcome:
    """Let hosts in to a device that is held as a copy, and wait for that; else nothing is done.

    Args:
        session: the cluster.
        name: the device.
        copy: the copy that it has to be; None: whichever it is held as.
        timeout_s: after so many seconds the wait is given up.
        accepted: the codes of refusals that the operator accepts.

    Raises:
        Refused: there is no such device, it cannot be changed now, is being restored still, or is
            held as another copy; or it is held by what nodes have noted alone.
        NotConverged: it is not held any more, and a node still keeps hosts out.
    """

    def progress(cluster: Cluster) -> Progress:
        device = existing_device(cluster, name)
        return access_progress(cluster, name, access_digest(device.access))

    return change_device(
        session,
        name,
        lambda seen: plan_released(seen, name, copy, accepted),
        progress,
        waiting_for=f"hosts to be let in to device {name}",
        timeout_s=timeout_s,
        look=f"it is held no more; 'journalctl SANCTL_DEVICE={name}' on its nodes says why hosts "
        "are still kept out",
    )


def order_progress(
    cluster: Cluster,
    name: DeviceName,
    token: str,
    wanted: str | tuple[SiteCopy, int] | None = None,
) -> Progress:
    """Return how far an order to restore a device has come; done: hosts can log in, or it is held.

    Args:
        cluster: as observed.
        name: the device.
        token: the order's.
        wanted: what the device is to hold, as a request has it; None: what the order says.

    Raises:
        CommandError: nothing was written, and hosts are let in again or it is held as before; or
            another order replaced it.
    """
    device = existing_device(cluster, name)
    order = device.restore
    if order is None or order.token != token:
        raise CommandError(
            Problem(
                "SAN-REST-006",
                f"the order to restore device {name} was replaced",
                f"'sanctl device show {name}' shows what is going on",
            )
        )
    if order.state == HELD:
        if isinstance(wanted, str) or (wanted is not None and order.copy != wanted[0]):
            problem = given_up_problem(cluster, device, order)
            raise CommandError(problem, held_problem(device, order))
        return Progress(is_done=True, seen=progress_text(cluster, device))
    if order.is_open:
        return Progress(is_done=False, seen=progress_text(cluster, device))
    if order.state != DONE:
        raise CommandError(given_up_problem(cluster, device, order))
    # So that hosts can log in when the command ends.
    return access_progress(cluster, name, access_digest(device.access))
