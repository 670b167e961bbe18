# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl-reservations.service, without which no target takes reservations: started, and mounted."""

from __future__ import annotations

import contextlib
import os
import time

from sanctl.errors import CommandError, Problem
from sanctl.system.files import read_text
from sanctl.system.runner import Runner

NAME = "sanctl-reservations.service"
_MOUNTS = "/proc/self/mountinfo"
_ROOT = "/sys/kernel/config/target/dbroot"
_SERVICE_S, _POLL_S, _BEGIN_S = 20.0, 0.05, 2.0


def run(runner: Runner, *, within_s: float = _SERVICE_S) -> None:
    """Have the service keep what hosts reserve.

    Raises:
        CommandError: it does not run.
    """
    if is_mounted():
        return
    deadline = time.monotonic() + within_s
    # One that failed at first systemd starts anew, and says that the start has failed.
    with contextlib.suppress(CommandError):
        runner.run(["systemctl", "start", NAME], timeout_s=within_s)
    while not is_mounted():
        if time.monotonic() > deadline:
            raise _does_not_run()
        time.sleep(_POLL_S)


def begin(runner: Runner) -> None:
    """Have systemd start the service, if it does not keep what hosts reserve; wait for nothing.

    Raises:
        CommandError: it does not keep it now.
        OSError: whether it does is not known.
    """
    if is_mounted():
        return
    runner.run(["systemctl", "start", "--no-block", NAME], timeout_s=_BEGIN_S)
    raise _does_not_run()


def _does_not_run() -> CommandError:
    return CommandError(
        Problem(
            "SAN-RES-006",
            f"{NAME} does not keep reservations: nothing is mounted at {folder()}",
            f"'systemctl status {NAME}'",
        )
    )


def folder() -> str:
    """Return the folder into which LIO writes (target_core_pr.c)."""
    return f"{read_text(_ROOT).strip()}/pr"


def is_mounted() -> bool:
    """Whether the service's filesystem is mounted there."""
    path = os.path.realpath(folder())
    for line in read_text(_MOUNTS).splitlines():
        fields = line.split()
        if fields[4] == path and " - fuse " in line:
            return True
    return False
