# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether systemd is about to stop this node: for programs that units run as they stop."""

from __future__ import annotations

from sanctl.errors import CommandError
from sanctl.system.runner import Runner

_TIMEOUT_S = 5.0
_UNIT = "shutdown.target"


def is_stopping(runner: Runner) -> bool:
    """Whether this node is known to stop: poweroff, reboot, kexec, soft-reboot.

    By the job of systemd's shutdown.target, which is there until all other units have stopped.
    `systemctl is-system-running` says `starting`, not `stopping`, for as long as the node stops
    that had not finished its boot (manager_state() in systemd's manager.c).
    """
    try:
        result = runner.run(
            ["systemctl", "list-jobs", "--no-legend", "--full", _UNIT], timeout_s=_TIMEOUT_S
        )
    except CommandError:
        return False
    # JOB UNIT TYPE STATE. Without one it is a sentence.
    return any(line.split()[1:3] == [_UNIT, "start"] for line in result.stdout.splitlines())
