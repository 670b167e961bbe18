"""Ends this node when a request of a host will never be answered here (sanctl/plan/stuck.py)."""

from __future__ import annotations

import contextlib
import os
import time

from sanctl.agents import suspicion
from sanctl.agents.replica import RUNTIME, Device
from sanctl.drivers import drbd, selffence
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.stuck import Verdict, judge
from sanctl.system import journal
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

_FLUSH_S = 10.0
_AGAIN_S = 3.0


def look(runner: Runner, device: Device, state: ResourceState) -> None:
    """Look at the oldest requests of a device that is served here.

    Returns unless they are hopeless; then the node reboots, and the peer takes over if it can.
    """
    if not state.is_primary:
        return
    answered = str(drbd.answered(device.minor))
    is_silent = read_text_or(_note(device), "") == answered
    requests = drbd.oldest_requests(device.name)
    verdict, reason = judge(requests, state, is_silent=is_silent)
    if verdict is Verdict.END:
        # A freeze that has just ended lets go of what it held a moment after it says that it has.
        time.sleep(_AGAIN_S)
        verdict, reason = _look_again(runner, device, is_silent=is_silent)
    with contextlib.suppress(OSError), open(_note(device), "w", encoding="utf-8") as file:
        file.write(answered)
    if verdict is Verdict.FINE:
        return
    if verdict is Verdict.WAIT:
        journal.write(
            f"{device.name}: {reason}; no other node can serve",
            priority=journal.ERROR,
            device=device.name,
            action="stuck",
        )
        return
    _write_down(runner, device)
    selffence.reboot(runner, f"{device.name}: {reason}", device=device.name)


def _look_again(runner: Runner, device: Device, *, is_silent: bool) -> tuple[Verdict, str]:
    try:
        state = drbd.observe(runner, device.name)
    except SanctlError:
        state = None
    if state is None:
        return Verdict.FINE, ""
    return judge(drbd.oldest_requests(device.name), state, is_silent=is_silent)


def forget(device: Device) -> None:
    """Drop what is kept of a device that is stopped here."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_note(device))


def _write_down(runner: Runner, device: Device) -> None:
    """Have the pool's disk write down what it has acknowledged; if it hangs, go on without."""
    path = suspicion.data_file(device.name)
    if path is not None:
        with contextlib.suppress(SanctlError):
            runner.run(["sync", "--file-system", path], timeout_s=_FLUSH_S)


def _note(device: Device) -> str:
    return f"{RUNTIME}/answered-{device.name}"
