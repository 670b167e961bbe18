# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `device sync`: stores a sync policy, waits until it is in force on all nodes."""

from __future__ import annotations

from collections.abc import Mapping

from sanctl.model.names import DeviceName
from sanctl.ops.device_change import DeviceOutcome, change_device
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import sync_policy_progress
from sanctl.plan.device.alteration import plan_sync_policy


def change_sync_policy(
    session: Session,
    name: DeviceName,
    values: Mapping[str, str],
    *,
    drbd_version: str | None,
    timeout_s: float,
) -> DeviceOutcome:
    """Change a device's sync policy and wait until its running replicas have the new one.

    `values` are by the keys of the policy (`rate-max`, `verify`, ...).

    Raises:
        UsageError: a value has no meaning.
        Refused: DRBD cannot do it, or Pacemaker would not carry the change out.
        NotConverged: the policy is stored, and not in force on every node yet.
    """
    return change_device(
        session,
        name,
        lambda seen: plan_sync_policy(seen, name, values, drbd_version=drbd_version),
        lambda seen: sync_policy_progress(seen, name),
        waiting_for=f"the sync policy of device {name} to be in force on its nodes",
        timeout_s=timeout_s,
        look=f"the policy is stored; 'journalctl SANCTL_DEVICE={name}' on the device's nodes shows "
        "why it is not in force",
    )
