# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures unanswered host requests here, asks plan.failover.hung_io_reboot, reboots this node.

The rules are in sanctl/plan/failover/hung_io_reboot.py.

DRBD's debugfs says of each request how long the request has waited, and for what. Without debugfs,
DRBD 8.4 counts the unanswered requests. If the count is above zero at two monitors and no request
has been answered between them, the requests of the first monitor still wait.
"""

from __future__ import annotations

import contextlib
import time

from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdsetup, self_fence
from sanctl.errors import SanctlError
from sanctl.model.drbd import OldRequest, ResourceState
from sanctl.plan.failover.hung_io_reboot import HungIoAction, choose_action
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

_SYNC_TIMEOUT_S = 10.0
_RECHECK_DELAY_S = 3.0


def check(runner: Runner, device: Device, state: ResourceState) -> None:
    """Check the oldest requests of a device that is served here; reboot the node if they hang.

    The peer takes over if it can. Where no other node can serve, this only logs.
    """
    if not state.is_primary:
        return
    action, reason = _choose_action(device, state)
    if action is HungIoAction.END:
        # When a freeze ends, DRBD sends the held requests a moment after it reports the end.
        time.sleep(_RECHECK_DELAY_S)
        action, reason = _recheck(runner, device)
    if action is HungIoAction.WAIT:
        journal.write(
            f"{device.name}: {reason}; no other node can serve",
            priority=journal.ERROR,
            device=device.name,
            action="hung-io",
        )
    elif action is HungIoAction.END:
        _sync_pool(runner, device)
        self_fence.reboot(runner, f"{device.name}: {reason}", device=device.name)


def _recheck(runner: Runner, device: Device) -> tuple[HungIoAction, str]:
    try:
        state = drbdsetup.observe(runner, device.name)
    except (SanctlError, OSError):
        state = None
    return (HungIoAction.FINE, "") if state is None else _choose_action(device, state)


def _choose_action(device: Device, state: ResourceState) -> tuple[HungIoAction, str]:
    unanswered_s = _unanswered_s(device, is_frozen=state.suspended != "no")
    requests = drbd_kernel.oldest_requests(device.name)
    counted = drbd_kernel.pending_requests(device.minor)
    if not requests and counted is not None and counted.hosts:
        answered = frozenset({"ok"})
        requests = (
            OldRequest(
                age_s=unanswered_s,
                is_suspended=not counted.disk and not counted.net,
                local=frozenset({"pending"}) if counted.disk else answered,
                net=frozenset({"pending"}) if counted.net else answered,
            ),
        )
    return choose_action(requests, state, is_silent=unanswered_s > 0)


def _unanswered_s(device: Device, *, is_frozen: bool) -> float:
    """Return for how long requests have waited while none was answered, as monitors have seen it.

    Time during which I/O was frozen does not count.
    """
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    answered = drbd_kernel.completed_requests(device.minor)
    counted = drbd_kernel.pending_requests(device.minor)
    is_idle = counted is not None and not counted.hosts
    answered_before, _, since = _progress_note(device).read().partition(" ")
    if answered_before == str(answered) and since and not is_idle and not is_frozen:
        return now - float(since)
    with contextlib.suppress(OSError):
        _progress_note(device).write(f"{answered} {now}")
    return 0.0


def _sync_pool(runner: Runner, device: Device) -> None:
    """Sync the pool's filesystem to its disk before the reboot; go on if that hangs."""
    path = lost_writes.data_file(device.name)
    if path is not None:
        with contextlib.suppress(SanctlError, OSError):
            runner.run(["sync", "--file-system", path], timeout_s=_SYNC_TIMEOUT_S)


def _progress_note(device: Device) -> state_files.StateFile:
    """The note: how many requests were answered, since when no more (seconds since the boot).

    resource-agents/client writes it, too, where no request is under way at a short monitor.
    """
    return state_files.of_device(device.name, "io-progress")
