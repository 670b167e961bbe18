# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `device move`: sets the constraint that plan.device.alteration made, waits."""

from __future__ import annotations

import contextlib

from sanctl.errors import SanctlError
from sanctl.model.cib_change import AddMove, Change
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Failure
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.device_change import DeviceOutcome
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import move_progress
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.alteration import plan_move, plan_move_end


def move_device(
    session: Session, name: DeviceName, node: NodeName, *, timeout_s: float
) -> DeviceOutcome:
    """Let another node serve a device; the constraint for it is removed whatever happens.

    That of another command, which has taken its place meanwhile, stays: the later one decides.
    """
    begin_s = session.clock.monotonic_s()
    known: list[Failure] = []
    is_there: list[bool] = [False]
    moves: list[AddMove] = []

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        known[:] = cluster.mon.failures_of(name)
        is_there[0] = cluster.active_node(name) == node.value
        changes = plan_move(cluster, name, node, now_s=session.clock.wall_s())
        moves[:] = [each for each in changes if isinstance(each, AddMove)]
        return changes

    def end_move() -> None:
        session.change(lambda seen: plan_move_end(seen, moves[0]) if moves else ())

    session.change(decide)
    if is_there[0]:
        cluster = session.observe()
        duration_s = session.clock.monotonic_s() - begin_s
    else:
        try:
            cluster = session.wait(
                lambda seen: move_progress(seen, name, node),
                waiting_for=f"device {name} to be served by {node}",
                timeout_s=timeout_s,
                resources=(name.value,),
                known_failures=tuple(known),
                look=f"'journalctl SANCTL_DEVICE={name}' on the device's nodes",
            )
            duration_s = session.clock.monotonic_s() - begin_s
        except BaseException:
            # The error that led here is the one to tell; the constraint ends by its time, too.
            with contextlib.suppress(SanctlError):
                end_move()
            raise
        end_move()
    return DeviceOutcome(
        device=existing_device(cluster, name),
        cluster=cluster,
        changed=not is_there[0],
        duration_s=duration_s,
    )
