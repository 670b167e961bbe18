# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl device cache`: stores a cache policy and waits until every replica is in that mode."""

from __future__ import annotations

from sanctl.model.names import DeviceName
from sanctl.ops.device_change import DeviceOutcome, change_device
from sanctl.ops.session import Session
from sanctl.plan.cache.policy_change import cache_policy_progress, plan_cache_policy
from sanctl.plan.cache.policy_request import CachePolicyChange


def change_cache_policy(
    session: Session, name: DeviceName, change: CachePolicyChange, *, timeout_s: float
) -> DeviceOutcome:
    """Change a device's cache policy while hosts use the device, and wait for its replicas.

    Away from write-back this returns when the replicas' disks have all writes that were in RAM.

    Raises:
        Refused: there is no such device, the change makes no sense for it, or Pacemaker would not
            carry it out.
        NotConverged: the policy is stored, and a replica is not in that mode yet.
    """
    return change_device(
        session,
        name,
        lambda seen: plan_cache_policy(seen, name, change),
        lambda seen: cache_policy_progress(seen, name),
        waiting_for=f"the replicas of device {name} to have its cache policy",
        timeout_s=timeout_s,
        look="the policy is stored and the replicas go on by themselves: "
        f"'journalctl SANCTL_DEVICE={name} SANCTL_ACTION=cache' on the device's nodes",
    )
