# SPDX-License-Identifier: GPL-2.0-or-later
"""The reboot after a failed stop: asks plan.failover.frozen_io_reboot, then reboots this node."""

from __future__ import annotations

from sanctl.drivers import corosync, self_fence
from sanctl.errors import SanctlError
from sanctl.plan.failover import frozen_io_reboot
from sanctl.system.runner import Runner


def reboot_after_failed_stop(runner: Runner, device: str, reason: str) -> None:
    """Reboot this node if no other node can fence it for a failed stop.

    With quorum the cluster fences a node whose stop failed, and this returns.
    """
    try:
        is_quorate: bool | None = corosync.membership(runner).is_quorate
    except (SanctlError, OSError):
        is_quorate = None
    if frozen_io_reboot.must_reboot_after_failed_stop(is_quorate):
        self_fence.reboot(
            runner,
            f"{device}: it could not be stopped, and without quorum no node fences this one: "
            + reason,
            device=device,
        )
