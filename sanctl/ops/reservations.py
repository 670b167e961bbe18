# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `device set --reservations` and `target reservations`: reads, switches, clears."""

from __future__ import annotations

from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName
from sanctl.model.published_reservations import (
    RESERVATIONS_PREFIX,
    PublishedReservations,
    parse_published,
)
from sanctl.ops.device_change import DeviceOutcome, change_device
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.device.reservations import (
    clear_progress,
    plan_clear,
    plan_reservations,
    switch_progress,
)


def published_reservations(session: Session, name: DeviceName) -> dict[str, PublishedReservations]:
    """Return what nodes say of a device's reservations; those that do not say are left out.

    Raises:
        CommandError: Pacemaker did not answer.
    """
    return {
        node: found
        for node, text in session.published(f"{RESERVATIONS_PREFIX}{name}").items()
        if (found := parse_published(text)) is not None
    }


def switch_reservations(
    session: Session, name: DeviceName, *, is_on: bool, timeout_s: float
) -> DeviceOutcome:
    """Switch a device's reservations on or off, and wait until the active node has done so.

    Raises:
        Refused: a host is logged in or registered, or that is not known, or a node cannot do it.
        CommandError: Pacemaker did not answer, or an agent failed.
        NotConverged: the switch is stored, and the active node has not followed yet.
    """

    def plan(cluster: Cluster) -> tuple[Change, ...]:
        # After the CIB, so never older than it: a host may log in at any time.
        return plan_reservations(
            cluster,
            name,
            session.host_sessions(),
            published_reservations(session, name),
            is_on=is_on,
        )

    return change_device(
        session,
        name,
        plan,
        lambda seen: switch_progress(seen, name, published_reservations(session, name)),
        waiting_for=f"device {name} to have its reservations {'on' if is_on else 'off'}",
        timeout_s=timeout_s,
        look=f"it is stored; 'journalctl SANCTL_DEVICE={name}' on the device's nodes shows why it "
        "is not in force",
    )


def needs_clearing(session: Session, name: DeviceName, token: str) -> bool:
    """Check that a device's reservations may be cleared; return whether there may be any.

    Raises:
        Refused: they may not.
        CommandError: Pacemaker did not answer.
    """
    return bool(plan_clear(session.observe(), name, token, published_reservations(session, name)))


def clear_reservations(
    session: Session, name: DeviceName, token: str, *, timeout_s: float
) -> DeviceOutcome:
    """Break all reservations of a device, and wait until the active node has done so.

    `token` is 16 hex digits that no other order has. After `timeout_s` the wait is given up, and
    the order stands: the node that serves the device next carries it out.

    Raises:
        Refused: the device has no reservations, or cannot be changed now.
        CommandError: Pacemaker did not answer, an agent failed, or another order replaced this one.
        NotConverged: it is not carried out yet.
    """
    ordered: list[Change] = []

    def plan(cluster: Cluster) -> tuple[Change, ...]:
        ordered[:] = plan_clear(cluster, name, token, published_reservations(session, name))
        return tuple(ordered)

    def progress(cluster: Cluster) -> Progress:
        if not ordered:
            return Progress(is_done=True, seen="no host is registered")
        return clear_progress(cluster, name, token, published_reservations(session, name))

    return change_device(
        session,
        name,
        plan,
        progress,
        waiting_for=f"the reservations of device {name} to be cleared",
        timeout_s=timeout_s,
        look="the order stands, and the node that serves the device carries it out: "
        f"'journalctl SANCTL_DEVICE={name}' there; 'sanctl status' where no node serves it",
    )
