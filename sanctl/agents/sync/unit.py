# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts sanctl-resync.service, which schedules and tracks this node's resyncs and verifies.

Apart from what that service runs (sanctl/agents/sync/scheduler.py): DRBD's handlers and monitors,
which only start it, import no more than this.
"""

from __future__ import annotations

import contextlib

from sanctl.errors import SanctlError
from sanctl.system import state_files
from sanctl.system.runner import Runner

_UNIT = "sanctl-resync.service"


def start(runner: Runner) -> None:
    """Have somebody accompany what runs here, if nobody does."""
    if _is_running():
        return
    with contextlib.suppress(SanctlError):
        runner.run(["systemctl", "start", "--no-block", _UNIT], timeout_s=10.0)


def lock() -> str:
    """Return the path of the lock that the service holds while it runs."""
    return state_files.node_lock("resync")


def _is_running() -> bool:
    # Shared, and main() tries for a while: asking is not to keep anybody from beginning.
    with state_files.locked(lock(), wait_s=0.0, shared=True) as is_free:
        return not is_free
