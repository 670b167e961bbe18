# SPDX-License-Identifier: GPL-2.0-or-later
"""What every OCF agent of sanctl shares: exit codes, parameters from the environment, dispatch.

OCF Resource Agent API 1.1. Agents are short processes on the failover path: this module and what
it imports stay small.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Mapping

from sanctl.errors import SanctlError
from sanctl.system import journal, state_files

SUCCESS = 0
ERR_GENERIC = 1
ERR_ARGS = 2
ERR_UNIMPLEMENTED = 3
ERR_INSTALLED = 5
ERR_CONFIGURED = 6
NOT_RUNNING = 7
RUNNING_PROMOTED = 8
FAILED_PROMOTED = 9

Action = Callable[[], int]


class Steps:
    """Logs an action's steps with how long each took."""

    def __init__(self, resource: str, action: str) -> None:
        self._resource = resource
        self._action = action
        self._begin = self._last = time.monotonic()

    def done(self, step: str, message: str) -> None:
        """Log that a step has ended."""
        now = time.monotonic()
        journal.write(
            f"{self._resource}: {self._action}: {message}",
            device=self._resource,
            action=self._action,
            step=step,
            duration_ms=round((now - self._last) * 1000),
        )
        self._last = now
        crash_point(step)

    def ended(self, message: str) -> None:
        """Log that the action has ended, with its whole duration."""
        journal.write(
            f"{self._resource}: {self._action}: {message}",
            priority=journal.NOTICE,
            device=self._resource,
            action=self._action,
            step="end",
            duration_ms=round((time.monotonic() - self._begin) * 1000),
        )


def crash_point(step: str) -> None:
    """Die after a named step, as a power cut or an out-of-memory kill would make it.

    The folder is on tmpfs and only root can make it: tests of interruption put a file there.
    """
    try:
        os.unlink(state_files.crash_point(step))
    except OSError:
        return  # Not there; or not known, which must not end a promotion that goes well.
    os.kill(os.getpid(), 9)


def parameter(name: str, default: str | None = None) -> str:
    """Return an instance attribute.

    Raises:
        KeyError: it is missing and has no default.
    """
    value = os.environ.get(f"OCF_RESKEY_{name}")
    if value is None:
        if default is None:
            raise KeyError(name)
        return default
    return value


def meta(name: str, default: str = "") -> str:
    """Return a meta attribute of the resource, `-` in its name written as `_`."""
    return os.environ.get(f"OCF_RESKEY_CRM_meta_{name}", default)


def is_probe() -> bool:
    """Whether this monitor asks what is there before the cluster has started anything."""
    return meta("interval", "0") == "0"


def remaining_s(default_s: float) -> float:
    """Return how many seconds this action may take, a little less than the cluster allows."""
    text = meta("timeout")
    return max(2.0, int(text) / 1000 - 3.0) if text.isdigit() else default_s


def exit_reason(text: str) -> None:
    """Tell Pacemaker, and through it crm_mon, why an action failed."""
    sys.stderr.write(f"ocf-exit-reason:{text}\n")


def _reason(error: OSError) -> str:
    """Say what failed, with its path and errno where the error has them."""
    if error.errno is None:
        return str(error) or type(error).__name__
    where = f"{error.filename}: " if error.filename else ""
    name = errno.errorcode.get(error.errno, str(error.errno))
    return f"{where}{error.strerror or os.strerror(error.errno)} ({name})"


def run(resource: str, argv: list[str], actions: Mapping[str, Action], metadata: str) -> int:
    """Carry out the action named on the command line and return its OCF exit code.

    Args:
        resource: the name under which this is logged.
        argv: the process's arguments.
        actions: the actions by name.
        metadata: the agent's meta-data XML.
    """
    action = argv[1] if len(argv) == 2 else ""
    if action in {"meta-data", "metadata"}:
        sys.stdout.write(metadata)
        return SUCCESS
    if action in {"usage", "help"} or action not in actions:
        sys.stderr.write(f"usage: {argv[0]} {{{'|'.join([*actions, 'meta-data'])}}}\n")
        return SUCCESS if action in {"usage", "help"} else ERR_UNIMPLEMENTED
    try:
        return actions[action]()
    except KeyError as missing:
        exit_reason(f"the parameter {missing.args[0]} is not set")
        return ERR_CONFIGURED
    except SanctlError as error:
        reason = "; ".join(str(problem) for problem in error.problems)
    except OSError as error:
        reason = _reason(error)
    exit_reason(reason)
    journal.write(
        f"{resource}: {action} failed: {reason}",
        priority=journal.ERROR,
        device=resource,
        action=action,
    )
    return ERR_GENERIC
