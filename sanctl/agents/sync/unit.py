# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts the systemd unit sanctl-resync.service if it does not run.

What the service does is in sanctl/agents/sync/scheduler.py. DRBD's handlers and monitors, which
only start the service, do not have to import that.
"""

from __future__ import annotations

import contextlib

from sanctl.errors import SanctlError
from sanctl.system import state_files
from sanctl.system.runner import Runner

_UNIT = "sanctl-resync.service"


def start(runner: Runner) -> None:
    """Start the service if it does not run; an error is left to the next monitor."""
    if _is_running():
        return
    with contextlib.suppress(SanctlError):
        runner.run(["systemctl", "start", "--no-block", _UNIT], timeout_s=10.0)


def lock_path() -> str:
    """Return the path of the lock that the service holds while it runs."""
    return state_files.node_lock("resync")


def _is_running() -> bool:
    # Shared, and scheduler.main() waits for the lock: this check must not keep it from starting.
    with state_files.locked(lock_path(), wait_s=0.0, shared=True) as is_free:
        return not is_free
