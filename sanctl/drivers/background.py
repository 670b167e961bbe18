# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes this process yield to others: devices that hosts use come first."""

from __future__ import annotations

import contextlib
import os

from sanctl.errors import CommandError
from sanctl.system.runner import Runner

_TIMEOUT_S = 10.0


def yield_to_others(runner: Runner) -> None:
    """Have this process use processors and disks when nothing else wants them.

    ionice counts where the disk's scheduler is BFQ; nice everywhere.
    """
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    with contextlib.suppress(CommandError):
        runner.run(["ionice", "-c", "3", "-p", str(os.getpid())], timeout_s=_TIMEOUT_S)
