# SPDX-License-Identifier: GPL-2.0-or-later
"""A monitor of the pool agent does many things: one by one, within its time, and each by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

from sanctl.agents import ocf
from sanctl.errors import ConfigError, SanctlError
from sanctl.system import journal
from sanctl.system.runner import DeadlineRunner, Runner

# What a monitor needs beside mounting filesystems and cleaning up failures.
_RESERVE_S = 8.0
#: What a monitor has where Pacemaker says no time.
_MONITOR_S = 30.0


class Duties:
    """Carries out a monitor's duties one by one: what one cannot do keeps no other from its turn.

    None relies on the ones before it. Once one has failed the rest are left to the next monitor if
    too little time is left for them: a monitor that times out is a failed one.
    """

    def __init__(self) -> None:
        self._is_over = False

    def run(self, what: str, duty: Callable[[], object]) -> None:
        """Carry out a duty; an error is logged, and the next monitor tries again.

        Args:
            what: what the duty is about, for the log.
            duty: carries it out.

        Raises:
            ConfigError: cluster.toml is missing or wrong.
        """
        if self._is_over:
            return
        try:
            duty()
        except ConfigError:
            raise
        except Exception as error:
            log_failed(what, error)
            self._is_over = ocf.remaining_s(_MONITOR_S) < _RESERVE_S


def log_failed(what: str, error: Exception) -> None:
    """Log that something could not be done, which the next monitor tries again.

    Args:
        what: what it is about.
        error: why; one of sanctl's own is logged with its type.
    """
    text = str(error) if isinstance(error, (SanctlError, OSError)) else repr(error)
    journal.write(
        f"{what}: {text}; the next monitor tries again", priority=journal.ERROR, action="pool"
    )


def deadline_runner(runner: Runner) -> DeadlineRunner:
    """Return a runner whose programs end before the monitor's timeout."""
    return DeadlineRunner(runner, time.monotonic() + ocf.remaining_s(_MONITOR_S) - _RESERVE_S)
