# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `replicate set` and `replicate release`: devices that await their second sites."""

from __future__ import annotations

from sanctl.model.names import DeviceName
from sanctl.ops.cib_room import within_room
from sanctl.ops.device_change import DeviceOutcome, change_device
from sanctl.ops.session import Session
from sanctl.plan.site.holding import Held, hold_progress, plan_hold, plan_release, release_progress


def set_hold(
    session: Session,
    name: DeviceName,
    site: str,
    *,
    holds: bool,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> DeviceOutcome:
    """Have a device await a site after the whole cluster was started anew, or not any more.

    Raises:
        Refused: there is no such device or site; hosts are kept out now, or that is not known.
        NotConverged: the setting is stored, and not in force on every node yet.
    """
    return change_device(
        session,
        name,
        within_room(
            session, lambda seen: plan_hold(seen, name, site, holds=holds), ipc_buffer_bytes
        ),
        lambda seen: hold_progress(seen, name),
        waiting_for=f"the nodes of device {name} to have the setting",
        timeout_s=timeout_s,
        look=f"the setting is stored; 'journalctl SANCTL_DEVICE={name}' on the device's nodes "
        "shows why it is not in force",
    )


def release(
    session: Session,
    name: DeviceName,
    *,
    shown: Held | None,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> DeviceOutcome:
    """Let hosts in to a device without the answer of its sites.

    `shown` is why hosts were kept out when an operator was asked; None where nobody was.

    Raises:
        Refused: there is no such device, no node says whether it keeps hosts out, or a site has
            said since the question that it was taken over.
        NotConverged: the order is stored, and a node still keeps hosts out.
    """
    return change_device(
        session,
        name,
        within_room(session, lambda seen: plan_release(seen, name, shown), ipc_buffer_bytes),
        lambda seen: release_progress(seen, name),
        waiting_for=f"hosts to be let in to device {name}",
        timeout_s=timeout_s,
        look=f"the order is stored; 'journalctl SANCTL_DEVICE={name}' on the device's nodes shows "
        "why hosts are not let in",
    )
