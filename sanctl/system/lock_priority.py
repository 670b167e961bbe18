# SPDX-License-Identifier: GPL-2.0-or-later
"""The nice value of a process that takes a lock for which a promotion or a handler may wait."""

from __future__ import annotations

import contextlib
import os


def run_as_actions_do() -> None:
    """Run with the nice value of actions from here on, if this process runs behind them.

    A monitor runs behind actions (resource-agents/client). While it holds such a lock, they would
    wait for a process that waits for the processor, too.
    """
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) > 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
