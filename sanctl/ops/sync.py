# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes how a device is synced."""

from __future__ import annotations

from collections.abc import Mapping

from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster, Failure
from sanctl.model.names import DeviceName
from sanctl.ops.device import Outcome
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import policy_applied
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.alteration import plan_sync_policy


def change_policy(
    session: Session, name: DeviceName, values: Mapping[str, str], *, timeout_s: float
) -> Outcome:
    """Change a device's sync policy and wait until its running replicas have it.

    Args:
        session: the cluster.
        name: the device.
        values: what is to be different, by the policy's words.
        timeout_s: seconds until the wait is given up.

    Raises:
        UsageError: a value has no meaning.
        Refused: Pacemaker would not carry it out.
        NotConverged: it is stored, and not in force on every node yet.
    """
    known: list[Failure] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = cluster.mon.failures_of(name)
        return plan_sync_policy(cluster, name, values)

    changes = session.change(decide)
    cluster = session.wait(
        lambda seen: policy_applied(seen, name),
        waiting_for=f"the sync policy of device {name} to be in force on its nodes",
        timeout_s=timeout_s,
        resources=(name.value,),
        known_failures=tuple(known),
        look=f"it is stored; 'journalctl SANCTL_DEVICE={name}' on its nodes shows why it is not "
        "in force",
    )
    return Outcome(device=existing_device(cluster, name), cluster=cluster, changed=bool(changes))
