# SPDX-License-Identifier: GPL-2.0-or-later
"""The first seconds of a device, until its first promotion has declared its replicas good."""

from __future__ import annotations

import time

from sanctl.agents import ocf
from sanctl.agents.promotion import activation_record
from sanctl.agents.replica import parts
from sanctl.agents.replica.parts import Device
from sanctl.errors import SanctlError
from sanctl.plan.failover.promotion import are_all_blank
from sanctl.system.runner import Runner

#: A new device's first promotion takes two seconds here and there; its monitor has thirty.
_PATIENCE_S = 10.0


def observe_after_first_promotion(
    runner: Runner, device: Device, *, within_s: float
) -> parts.Health:
    """Observe the replica; of a new device once its first promotion is done, if that is soon.

    The peer's promotion, which runs beside the standby's first monitor, declares both replicas
    good. The next monitor is eleven seconds away, and whoever created the device waits to hear it
    from both.
    """
    deadline = time.monotonic() + min(_PATIENCE_S, within_s)
    found = parts.observe(runner, device)
    if ocf.is_probe() or not _is_unborn(device, found):
        return found
    try:
        if not activation_record.is_new(runner, device):
            return found
    except (SanctlError, OSError):
        return found
    while _is_unborn(device, found) and time.monotonic() < deadline:
        time.sleep(0.5)
        found = parts.observe(runner, device)
    return found


def _is_unborn(device: Device, found: parts.Health) -> bool:
    return (
        found.is_standby
        and found.drbd is not None
        and are_all_blank(found.drbd, replicas=len(device.nodes))
    )
