# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `snapshot schedule` and `snapshot prune`: one change of the CIB each."""

from __future__ import annotations

from collections.abc import Sequence

from sanctl.model.cib_change import Change, SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName
from sanctl.model.point_hook import PointHook
from sanctl.model.point_schedule import Rule
from sanctl.ops.cib_room import within_room
from sanctl.ops.session import Session
from sanctl.plan.device.point_schedule import plan_pruning, plan_schedule
from sanctl.plan.device.scheduled_group import refuse_part_of_group


def change_schedule(
    session: Session,
    devices: Sequence[DeviceName],
    rules: tuple[Rule, ...],
    *,
    hook: PointHook | None = None,
    ipc_buffer_bytes: int,
) -> tuple[Cluster, bool]:
    """Give devices a schedule of restore points; without rules, take it away.

    Args:
        session: the cluster.
        devices: the devices; several have it together.
        rules: at least one; none: no schedule.
        hook: the hook of each of its restore points; None: none.
        ipc_buffer_bytes: the IPC buffer of the Pacemaker that runs here.

    Returns:
        The cluster after that, and whether there was anything to do.

    Raises:
        Refused: there is no such device, others have its schedule together with it, more points
            would be kept than there may be, or the CIB would be too large.
    """

    def plan(seen: Cluster) -> tuple[Change, ...]:
        refuse_part_of_group(seen, devices)
        return plan_schedule(seen, devices, rules, session.clock.wall_s(), hook)

    changes = session.change(within_room(session, plan, ipc_buffer_bytes))
    return session.observe(), bool(changes)


def prune_points(session: Session, device: DeviceName) -> tuple[str, ...]:
    """Have the restore points removed that a device's schedule no longer keeps; return their names.

    Their nodes remove the files; one that is away does when it is back.

    Raises:
        Refused: there is no such device, it has no schedule, or there is no quorum.
    """
    changes = session.change(lambda seen: plan_pruning(seen, device, session.clock.wall_s()))
    return tuple(change.point.name for change in changes if isinstance(change, SetPoint))


def surplus_points(session: Session, device: DeviceName) -> tuple[str, ...]:
    """Return the names of those that `prune_points` would have removed now; change nothing.

    Raises:
        Refused: as `prune_points` says.
    """
    changes = plan_pruning(session.observe(), device, session.clock.wall_s())
    return tuple(change.point.name for change in changes if isinstance(change, SetPoint))
