# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `device resize`; whether all replicas have grown is plan.cluster.convergence's."""

from __future__ import annotations

from sanctl.model.names import ByteSize, DeviceName
from sanctl.ops.device_change import DeviceOutcome, change_device
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import resize_progress
from sanctl.plan.device.alteration import plan_resize


def resize_device(
    session: Session, name: DeviceName, size: ByteSize, *, timeout_s: float
) -> DeviceOutcome:
    """Grow a device while hosts use it, and wait until every replica has the new size.

    Run again after an interruption, the command waits for what is still missing.
    """
    return change_device(
        session,
        name,
        lambda seen: plan_resize(seen, name, size),
        lambda seen: resize_progress(seen, name),
        waiting_for=f"all replicas of device {name} to have {size}",
        timeout_s=timeout_s,
        look=f"'journalctl SANCTL_DEVICE={name}' on the device's nodes",
    )
