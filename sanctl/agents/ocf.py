# SPDX-License-Identifier: GPL-2.0-or-later
"""OCF Resource Agent API for all agents: exit codes, OCF_RESKEY_* parameters, dispatch of actions.

OCF Resource Agent API 1.1. Agents are short processes on the failover path: this module and what
it imports stay small.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping

from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.system import journal, process_start, state_files

SUCCESS = 0
ERR_GENERIC = 1
ERR_UNIMPLEMENTED = 3
ERR_CONFIGURED = 6
NOT_RUNNING = 7
RUNNING_PROMOTED = 8
FAILED_PROMOTED = 9
#: Of no agent: resource-agents/client answers for an action that could look at nothing in time.
UNANSWERED = 75

#: How long an action waits that Pacemaker has given no timeout, such as one that a test starts.
_DEFAULT_S = 20.0
_POLL_S = 0.05
#: What is left of an action's timeout when its own waits end.
_RESERVE_S = 3.0
#: A former action of the resource has not ended; a program gave no answer in time.
_OUT_OF_TIME = frozenset({"SAN-AGENT-015", "SAN-CMD-002"})

Action = Callable[[], int]


class _Lock:
    """The open file with the locks of actions, while an action of this process runs; else -1."""

    file = -1


class MissingParameter(KeyError):
    """Pacemaker has set no value of a parameter: no node can run the resource.

    A class of its own: any other KeyError is an error of the agent's own. Reported as this one it
    would have Pacemaker stop the resource on every node.
    """


class Steps:
    """Logs an action's steps with how long each took."""

    def __init__(self, resource: str, action: str) -> None:
        self._resource = resource
        self._action = action
        self._begin = self._last = time.monotonic()
        #: Whether a step was made, or one could not be made.
        self.is_idle = True

    def done(self, step: str, message: str) -> None:
        """Log that a step has ended."""
        self.is_idle = False
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
    """Kill this process after a named step, as an out-of-memory kill would, where a test asks so.

    Tests of interruption put a file into a folder on tmpfs that only root can make.
    """
    try:
        os.unlink(state_files.crash_point(step))
    except OSError:
        return  # No such file; or that is not known, which must not end a promotion that goes well.
    os.kill(os.getpid(), 9)


def parameter(name: str, default: str | None = None) -> str:
    """Return an instance attribute.

    Raises:
        MissingParameter: the attribute is missing and has no default.
    """
    value = os.environ.get(f"OCF_RESKEY_{name}")
    if value is None:
        if default is None:
            raise MissingParameter(name)
        return default
    return value


def meta(name: str, default: str = "") -> str:
    """Return a meta attribute of the resource; a `-` in the attribute's name is given as `_`."""
    return os.environ.get(f"OCF_RESKEY_CRM_meta_{name}", default)


def is_probe() -> bool:
    """Whether this monitor is a probe: the cluster asks what runs before it starts anything."""
    return meta("interval", "0") == "0"


def is_for_standby() -> bool:
    """Whether this is a recurring monitor of the role Unpromoted (`Slave` before OCF 1.1)."""
    return meta("role") in {"Unpromoted", "Slave"}


class _Begin:
    """When this process's action began, on the monotonic clock; None in a process without one."""

    at_s: float | None = None


def begin_with(pid: int) -> None:
    """Count the action's time from the begin of the process that Pacemaker has started for it."""
    _Begin.at_s = time.monotonic() - process_start.age_s(pid)


def remaining_s(default_s: float) -> float:
    """Return how many seconds this action has left, a little less than the cluster allows.

    Pacemaker counts from its begin of the action's process: what the service and the wait for a
    former action took is gone.

    `default_s` is the answer where Pacemaker has set no timeout.
    """
    text = meta("timeout")
    if not text.isdigit():
        return default_s
    passed_s = 0.0 if _Begin.at_s is None else time.monotonic() - _Begin.at_s
    return max(1.0, int(text) / 1000 - _RESERVE_S - passed_s)


def exit_reason(text: str) -> None:
    """Give Pacemaker the reason of a failure, which crm_mon shows."""
    sys.stderr.write(f"ocf-exit-reason:{text}\n")


def _reason(error: OSError) -> str:
    """Return what failed in a system call, with path and errno where the error has them."""
    if error.errno is None:
        return str(error) or type(error).__name__
    where = f"{error.filename}: " if error.filename else ""
    name = errno.errorcode.get(error.errno, str(error.errno))
    return f"{where}{error.strerror or os.strerror(error.errno)} ({name})"


def is_action_running(resource: str) -> bool:
    """Whether an action of another resource runs, also one that was killed and has not ended.

    For an action of this process. By the file that is open: a POSIX lock of this process would end
    with any descriptor of that file that is closed. False where it is not known.
    """
    if _Lock.file < 0:
        return False
    try:
        fcntl.lockf(_Lock.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(resource))
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.lockf(_Lock.file, fcntl.LOCK_UN, 1, _place(resource))
    return False


def _place(resource: str) -> int:
    return zlib.crc32(resource.encode())


@contextlib.contextmanager
def _after_former(resource: str, action: str, not_begun: Callable[[str], None]) -> Iterator[None]:
    """Begin when no other action of the resource runs: one that was killed may not have ended.

    A killed process ends when its system call does. Pacemaker waits for that, too, but sees the
    client only (resource-agents/client), which is no longer there. The lock is a POSIX one: it
    belongs to this process alone, not to the programs it has started, and ends with it.

    The wait leaves half of the action's time. After it a stop goes on: it has to end, or to have
    the node rebooted (sanctl/agents/fencing/failed_stop_reboot.py), and it counts as a stop only
    if nothing is left in the kernel, whatever the former action's last system call has done.

    Raises:
        CommandError: SAN-AGENT-015, for any action but a stop.
    """
    lock = -1
    begin_s = time.monotonic()
    try:
        state_files.make_folder()
        lock = os.open(state_files.node_lock("actions"), os.O_RDWR | os.O_CREAT, 0o600)
        has_waited = not _lock_in_time(lock, resource)
    except OSError:
        # It orders actions as Pacemaker does; no action fails for want of it.
        has_waited = False
    try:
        if has_waited:
            waited_s = time.monotonic() - begin_s
            text = f"{resource}: a former action has not ended within {waited_s:.0f} s"
            if action != "stop":
                # Whatever becomes of that: why the action has failed is reported.
                with contextlib.suppress(Exception):
                    not_begun(action)
                raise CommandError(
                    Problem(
                        "SAN-AGENT-015",
                        f"{text}, and {action} was not begun",
                        "see dmesg for a disk or connection that does not answer;"
                        " it is tried again, a start once the former action has ended",
                    )
                )
            journal.write(
                f"{text}; the stop goes on without it",
                priority=journal.WARNING,
                device=resource,
                action=action,
            )
        _Lock.file = lock
        yield
    finally:
        _Lock.file = -1
        if lock >= 0:
            os.close(lock)


def _lock_in_time(lock: int, resource: str) -> bool:
    """Take the lock of a resource's actions; return False if half of the action's time was short.

    Raises:
        OSError: there can be no lock.
    """
    place = _place(resource)
    deadline_s = None
    while True:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except BlockingIOError:
            now_s = time.monotonic()
            if deadline_s is None:
                deadline_s = now_s + remaining_s(_DEFAULT_S) / 2
                journal.write(
                    f"{resource}: waits for an action that has not ended yet",
                    priority=journal.WARNING,
                    device=resource,
                )
            if now_s >= deadline_s:
                return False
            time.sleep(_POLL_S)
        else:
            return True


def run(
    resource: str,
    argv: list[str],
    actions: Mapping[str, Action],
    metadata: str,
    *,
    not_begun: Callable[[str], None] = lambda _: None,
    unanswered: Collection[str] = (),
) -> int:
    """Carry out the action named on the command line and return its OCF exit code.

    `not_begun` is called with the name of an action that is not begun, because one before it has
    not ended. Of the actions `unanswered` one that was out of time ends with UNANSWERED.
    """
    action = argv[1] if len(argv) == 2 else ""
    if action in {"meta-data", "metadata"}:
        sys.stdout.write(metadata)
        return SUCCESS
    if action in {"usage", "help"} or action not in actions:
        sys.stderr.write(f"usage: {argv[0]} {{{'|'.join([*actions, 'meta-data'])}}}\n")
        return SUCCESS if action in {"usage", "help"} else ERR_UNIMPLEMENTED
    if _Begin.at_s is None:
        begin_with(os.getpid())
    status = ERR_GENERIC
    try:
        with _after_former(resource, action, not_begun):
            return actions[action]()
    except MissingParameter as missing:
        exit_reason(f"the parameter {missing.args[0]} is not set")
        return ERR_CONFIGURED
    except SanctlError as error:
        reason = "; ".join(str(problem) for problem in error.problems)
        if action in unanswered and any(each.code in _OUT_OF_TIME for each in error.problems):
            status = UNANSWERED
    except OSError as error:
        reason = _reason(error)
    except Exception as error:
        import traceback  # noqa: PLC0415 - only after a crash

        lines = "".join(traceback.format_exception(error))
        reason = f"an error of sanctl's own, please report it: {error!r}\n{lines}"
    exit_reason(reason.partition("\n")[0])
    journal.write(
        f"{resource}: {action} failed: {reason}",
        priority=journal.ERROR,
        device=resource,
        action=action,
    )
    return status
