# SPDX-License-Identifier: GPL-2.0-or-later
"""Calls in child processes, several at a time, all before one deadline.

Child processes and no threads: the calls set signal handlers, and one that hangs in the kernel
would keep this process from its end. Without a process for it a call is made in this one.

What a call changes in memory is lost. If this process is killed, the children go on until systemd
ends all processes of the unit: a call has to be one that may end after each of its steps.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from sanctl.errors import SanctlError

_POLL_S = 0.2
#: A call that gets no process waits so long for others to end, and is made in this one then.
_NO_PROCESS_S = 5.0
#: So much of an error's text: written to a pipe at once (PIPE_BUF, pipe(7)).
_ANSWER_BYTES = 4096


class Ended(NamedTuple):
    """A call that has ended, or that will not be waited for any longer.

    Attributes:
        name: its name.
        error: what failed; empty if nothing did.
    """

    name: str
    error: str


class _Child(NamedTuple):
    name: str
    pid: int
    began_s: float


def run_all(
    calls: Mapping[str, Callable[[], None]],
    *,
    within_s: float,
    may_begin: Callable[[Collection[float]], bool],
) -> Iterator[Ended]:
    """Make calls, and yield each one's end when it has come.

    At the deadline children that have not ended are killed, and yielded with an error; as are calls
    that have not begun.

    Args:
        calls: the calls by name, in the order in which they are to begin.
        within_s: the deadline for all of them, in seconds.
        may_begin: whether one more may begin beside those that have taken so many seconds each;
            without any it has to say so.
    """
    begin_s = time.monotonic()
    waiting, running = deque(calls.items()), dict[int, _Child]()
    started: set[int] = set()
    no_process_s: float | None = None
    try:
        while waiting or running:
            now_s = time.monotonic()
            left_s = begin_s + within_s - now_s
            if left_s <= 0:
                break
            if waiting and may_begin([now_s - child.began_s for child in running.values()]):
                name, call = waiting[0]
                try:
                    reading, child = _start(name, call)
                except OSError:
                    no_process_s = now_s if no_process_s is None else no_process_s
                    if not running or now_s - no_process_s >= _NO_PROCESS_S:
                        waiting.popleft()
                        yield Ended(name, _error_of(call))
                        continue
                else:
                    waiting.popleft()
                    no_process_s = None
                    running[reading] = child
                    started.add(child.pid)
                    continue
            ready, _, _ = select.select(list(running), [], [], min(_POLL_S, left_s))
            for reading in ready:
                yield _answer(reading, running.pop(reading))
            _reap(started)
        for child in running.values():
            yield Ended(child.name, f"it has not ended within {within_s:g} s")
        for name, _ in waiting:
            yield Ended(name, f"it could not be begun within {within_s:g} s")
    finally:
        for reading, child in running.items():
            _kill(child.pid)
            os.close(reading)
        _reap(started)


def _start(name: str, call: Callable[[], None]) -> tuple[int, _Child]:
    """Return the pipe on which the child answers, and the child.

    Raises:
        OSError: there is no memory, process or file handle for it.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        _run(call, writing)
    os.close(writing)
    return reading, _Child(name, pid, time.monotonic())


def _run(call: Callable[[], None], writing: int) -> None:
    """Make the call in the child, which ends here."""
    try:
        # So that it is killed with the programs that it has started.
        os.setsid()
        text = f"\n{_error_of(call)}"
        os.write(writing, text.encode(errors="replace")[:_ANSWER_BYTES])
    finally:
        os._exit(0)


def _answer(reading: int, child: _Child) -> Ended:
    try:
        answer = os.read(reading, _ANSWER_BYTES)
    finally:
        os.close(reading)
    if not answer:
        return Ended(child.name, "its process was ended from outside")
    return Ended(child.name, answer.decode(errors="replace")[1:])


def _error_of(call: Callable[[], None]) -> str:
    """Make a call; return its error's text, empty without one: no error ends the others."""
    try:
        call()
    except (SanctlError, OSError) as error:
        return str(error) or repr(error)
    except Exception as error:
        return f"an error of sanctl's own, please report it: {error!r}"
    return ""


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(pid, signal.SIGKILL)


def _reap(started: set[int]) -> None:
    """Take away the children that have ended. One that hangs in the kernel is not waited for."""
    for pid in tuple(started):
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                started.discard(pid)
        except ChildProcessError:
            started.discard(pid)
