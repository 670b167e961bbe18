# SPDX-License-Identifier: GPL-2.0-or-later
"""The frame of every `sanctl device` change: patch the CIB, wait for the effect, report both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Failure
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.preconditions import existing_device


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOutcome:
    """A device after a command, and whether the command had anything to do."""

    device: DeviceSpec
    cluster: Cluster
    changed: bool
    duration_s: float = 0.0


def change_device(
    session: Session,
    name: DeviceName,
    plan: Callable[[Cluster], tuple[Change, ...]],
    progress: Callable[[Cluster], Progress],
    *,
    waiting_for: str,
    timeout_s: float,
    look: str,
) -> DeviceOutcome:
    """Make the planned change of one device and wait for its effect; see `change_devices`."""
    (outcome,) = change_devices(
        session,
        (name,),
        plan,
        progress,
        waiting_for=waiting_for,
        timeout_s=timeout_s,
        look=look,
    )
    return outcome


def change_devices(
    session: Session,
    names: Sequence[DeviceName],
    plan: Callable[[Cluster], tuple[Change, ...]],
    progress: Callable[[Cluster], Progress],
    *,
    waiting_for: str,
    timeout_s: float,
    look: str,
    may_be_done: Callable[[], bool] | None = None,
) -> tuple[DeviceOutcome, ...]:
    """Make the planned change and wait for its effect; run again, wait for what is missing.

    A failed action of the devices' agents ends the wait at once, unless Pacemaker had recorded the
    failure before the change.

    `plan` returns no change where nothing is to do; `progress` says whether the effect is there,
    and `may_be_done` whether it is time to look again (`Session.wait`).
    After `timeout_s` the wait is given up, and the change stays; `look` is where the operator looks
    then.

    Raises:
        SanctlError: what `plan` raises.
        CommandError: an agent failed.
        NotConverged: the change is made, its effect was not seen in time.
    """
    begin_s = session.clock.monotonic_s()
    known: list[Failure] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = [failure for name in names for failure in cluster.mon.failures_of(name)]
        return plan(cluster)

    changes = session.change(decide)
    cluster = session.wait(
        progress,
        waiting_for=waiting_for,
        timeout_s=timeout_s,
        resources=tuple(name.value for name in names),
        known_failures=tuple(known),
        look=look,
        may_be_done=may_be_done,
    )
    return tuple(
        DeviceOutcome(
            device=existing_device(cluster, name),
            cluster=cluster,
            changed=bool(changes),
            duration_s=session.clock.monotonic_s() - begin_s,
        )
        for name in names
    )
