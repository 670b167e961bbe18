# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes a device's cache policy while hosts use it."""

from __future__ import annotations

from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster, Failure
from sanctl.model.names import DeviceName
from sanctl.ops.device import Outcome
from sanctl.ops.session import Session
from sanctl.plan.cache.policy_change import cache_applied, plan_cache
from sanctl.plan.cache.policy_request import PolicyChange
from sanctl.plan.cluster.preconditions import existing_device


def set_cache(
    session: Session, name: DeviceName, change: PolicyChange, *, timeout_s: float
) -> Outcome:
    """Change a device's cache policy, and wait until its replicas are in it, or say why not.

    Away from write-back this returns when all that was in RAM is on the replicas' disks.

    Args:
        session: the cluster.
        name: the device.
        change: what is to be different.
        timeout_s: how long to wait, in seconds.

    Raises:
        Refused: there is no such device, the change makes no sense for it, or Pacemaker would not
            carry it out.
        NotConverged: it is stored, and a replica is not there yet.
    """
    begin = session.clock.monotonic_s()
    known: list[Failure] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = cluster.mon.failures_of(name)
        return plan_cache(cluster, name, change)

    changes = session.change(decide)
    cluster = session.wait(
        lambda seen: cache_applied(seen, name),
        waiting_for=f"the replicas of device {name} to have its cache policy",
        timeout_s=timeout_s,
        resources=(name.value,),
        known_failures=tuple(known),
        look=f"it is stored and goes on by itself: 'journalctl SANCTL_DEVICE={name} "
        "SANCTL_ACTION=cache' on its nodes",
    )
    return Outcome(
        device=existing_device(cluster, name),
        cluster=cluster,
        changed=bool(changes),
        duration_s=session.clock.monotonic_s() - begin,
    )
