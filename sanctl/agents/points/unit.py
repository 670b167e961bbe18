# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts the systemd unit sanctl-point@NAME.service on the active node where a point is ordered.

What it does is in sanctl/agents/points/leader.py, which monitors do not have to import.
"""

from __future__ import annotations

import contextlib
import time

from sanctl.agents.replica.parts import Device
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.system import state_files
from sanctl.system.runner import Runner

_TIMEOUT_S = 5.0


def tried_note(name: str) -> state_files.StateFile:
    """Return the note of the order that this node has carried out last, or has tried to."""
    return state_files.of_node(f"point-tried.{name}")


def is_due(device: Device) -> bool:
    """Whether an order is open that this node has not tried."""
    if not device.point:
        return False
    # Imported here: monitors of devices without such an order do not need it.
    from sanctl.model.restore_point import PointOrder  # noqa: PLC0415

    order = PointOrder.parse(device.point)
    return (
        order is not None
        and order.is_open(time.time())
        and tried_note(device.name).read() != order.token
    )


def start_if_ordered(runner: Runner, device: Device, state: ResourceState) -> None:
    """Start the unit if this node serves the device, and an order is due.

    An error is left to the next monitor.
    """
    if not state.is_primary or not is_due(device):
        return
    with contextlib.suppress(SanctlError):
        runner.run(
            ["systemctl", "start", "--no-block", f"sanctl-point@{device.name}.service"],
            timeout_s=_TIMEOUT_S,
        )
