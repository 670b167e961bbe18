# SPDX-License-Identifier: GPL-2.0-or-later
"""Reboots this node when a request of a host will never be answered here.

The rules are in sanctl/plan/failover/hung_io_reboot.py.

DRBD's debugfs tells of each request how long it has waited, and for what. Where there is none, DRBD
8.4 tells how many are not answered. If some are not, look after look, and none has been answered
between the looks, then those of the first look still wait.
"""

from __future__ import annotations

import contextlib
import time

from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup, self_fence
from sanctl.errors import SanctlError
from sanctl.model.drbd import OldRequest, ResourceState
from sanctl.plan.failover.hung_io_reboot import HungIoAction, choose_action
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

_FLUSH_S = 10.0
_AGAIN_S = 3.0


def check(runner: Runner, device: Device, state: ResourceState) -> None:
    """Look at the oldest requests of a device that is served here.

    Returns unless they are hopeless; then the node reboots, and the peer takes over if it can.
    """
    if not state.is_primary:
        return
    verdict, reason = _judge(device, state)
    if verdict is HungIoAction.END:
        # A freeze that has just ended lets go of what it held a moment after it says that it has.
        time.sleep(_AGAIN_S)
        verdict, reason = _look_again(runner, device)
    if verdict is HungIoAction.WAIT:
        journal.write(
            f"{device.name}: {reason}; no other node can serve",
            priority=journal.ERROR,
            device=device.name,
            action="stuck",
        )
    elif verdict is HungIoAction.END:
        _write_down(runner, device)
        self_fence.reboot(runner, f"{device.name}: {reason}", device=device.name)


def _look_again(runner: Runner, device: Device) -> tuple[HungIoAction, str]:
    try:
        state = drbdsetup.observe(runner, device.name)
    except SanctlError:
        state = None
    return (HungIoAction.FINE, "") if state is None else _judge(device, state)


def _judge(device: Device, state: ResourceState) -> tuple[HungIoAction, str]:
    silent_s = _silent_s(device, is_frozen=state.suspended != "no")
    requests = drbdsetup.oldest_requests(device.name)
    counted = drbdsetup.pending_requests(device.minor)
    if not requests and counted is not None and counted.hosts:
        answered = frozenset({"ok"})
        requests = (
            OldRequest(
                age_s=silent_s,
                is_suspended=not counted.disk and not counted.net,
                local=frozenset({"pending"}) if counted.disk else answered,
                net=frozenset({"pending"}) if counted.net else answered,
            ),
        )
    return choose_action(requests, state, is_silent=silent_s > 0)


def _silent_s(device: Device, *, is_frozen: bool) -> float:
    """Return for how long requests have waited while none was answered, as looks have seen it.

    What was not answered while I/O was frozen does not count.
    """
    now, answered = time.monotonic(), drbdsetup.completed_requests(device.minor)
    counted = drbdsetup.pending_requests(device.minor)
    is_idle = counted is not None and not counted.hosts
    told, _, since = _note(device).read().partition(" ")
    if told == str(answered) and since and not is_idle and not is_frozen:
        return now - float(since)
    with contextlib.suppress(OSError):
        _note(device).write(f"{answered} {now}")
    return 0.0


def _write_down(runner: Runner, device: Device) -> None:
    """Have the pool's disk write down what it has acknowledged; if it hangs, go on without."""
    path = lost_writes.data_file(device.name)
    if path is not None:
        with contextlib.suppress(SanctlError):
            runner.run(["sync", "--file-system", path], timeout_s=_FLUSH_S)


def _note(device: Device) -> state_files.StateFile:
    """How many requests were answered, and since when none was, on the monotonic clock."""
    return state_files.of_device(device.name, "io-progress")
