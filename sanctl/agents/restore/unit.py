# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts the systemd unit sanctl-restore@NAME.service on the node that serves, and ends it.

What it does is in sanctl/agents/restore/program.py, which monitors do not have to import.
"""

from __future__ import annotations

import contextlib
import time

from sanctl.agents.replica.parts import Device
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.system import state_files
from sanctl.system.files import exists
from sanctl.system.runner import Runner

_TIMEOUT_S = 5.0
#: Its process ends when the I/O does that it has in flight, and the gate ends that.
_END_S = 5.0
#: When this process has first seen an order, by its token.
_seen: dict[str, float] = {}


def start_if_ordered(runner: Runner, device: Device, state: ResourceState) -> None:
    """Start the unit if this node serves the device, and an order is open; one that runs is fine.

    An error is left to the next monitor. For a device that is held there is nothing to do.
    """
    if state.is_primary and device.restore and not _is_held(device.restore):
        with contextlib.suppress(SanctlError):
            runner.run(
                ["systemctl", "start", "--no-block", _unit(device.name)], timeout_s=_TIMEOUT_S
            )


def _is_held(text: str) -> bool:
    from sanctl.model.device_restore import HELD, RestoreOrder  # noqa: PLC0415 - rarely needed

    order = RestoreOrder.parse(text)
    return order is not None and order.state == HELD


def lock_path(name: str) -> str:
    """Return the path of the lock that the unit's process holds."""
    return state_files.device_lock(name, "restore")


def waited_s(name: str, token: str) -> float:
    """Return how long ago this node has first seen an order, in seconds, by no clock that is set.

    Over the death of the process, which has a note of it; where there is no room for one, since
    this process has seen the order.
    """
    now_s = time.monotonic()
    note = state_files.of_device(name, "restore-since")
    try:
        known, _, since = note.read().partition(" ")
        if known == token:
            return max(0.0, now_s - float(since))
        note.write(f"{token} {_seen.setdefault(token, now_s)}")
    except (OSError, ValueError):
        pass
    return now_s - _seen.setdefault(token, now_s)


def end(runner: Runner, name: str, *, grace_s: float = 0.0) -> bool:
    """End the unit, and wait for that, if it may run; return whether its process is gone.

    Within `grace_s` it may end by itself.

    It writes through the gate, as hosts do, so nothing of it reaches the disk once that is closed.
    But while its process is there the gate cannot be removed.
    """
    path = lock_path(name)
    if not exists(path) or _is_free(path, wait_s=grace_s):
        return True
    with contextlib.suppress(SanctlError):
        # By SIGKILL, as the unit says.
        runner.run(["systemctl", "stop", "--no-block", _unit(name)], timeout_s=_TIMEOUT_S)
    return _is_free(path, wait_s=_END_S)


def _is_free(path: str, *, wait_s: float) -> bool:
    with state_files.locked(path, wait_s=wait_s, shared=True) as is_free:
        return is_free


def _unit(name: str) -> str:
    return f"sanctl-restore@{name}.service"
