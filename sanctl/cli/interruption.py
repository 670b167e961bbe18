# SPDX-License-Identifier: GPL-2.0-or-later
"""Ends a command that is stopped by Ctrl-C, a lost terminal (SIGHUP) or SIGTERM, in one way.

Without that a lost ssh connection would end it silently in the middle: no message, and no line in
the journal that says so.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

from sanctl.errors import ExitStatus, Problem


class HungUp(KeyboardInterrupt):
    """The terminal is gone, such as by a lost connection of ssh."""


class Terminated(KeyboardInterrupt):
    """The process was asked to end, such as by systemd or `kill`."""


_ERRORS: dict[int, type[KeyboardInterrupt]] = {
    signal.SIGHUP: HungUp,
    signal.SIGTERM: Terminated,
}
_STATUS = {HungUp: ExitStatus.HUNG_UP, Terminated: ExitStatus.TERMINATED}
_WORDS = {HungUp: "the end of its terminal (SIGHUP)", Terminated: "SIGTERM"}


@contextlib.contextmanager
def signals_caught() -> Iterator[None]:
    """Have SIGHUP and SIGTERM end the command as Ctrl-C does.

    One that whoever started the command has it ignore, as nohup does with SIGHUP, stays ignored.
    """
    is_main = threading.current_thread() is threading.main_thread()
    caught = [each for each in _ERRORS if is_main and signal.getsignal(each) is signal.SIG_DFL]
    for number in caught:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> None:
    del frame
    # Once: a second one, as shells and systemd send it, must not break off the journal's line. Not
    # SIG_IGN, which programs that are started would inherit.
    for each in _ERRORS:
        if signal.getsignal(each) is _raise:
            signal.signal(each, _pass)
    raise _ERRORS[number]


def _pass(number: int, frame: FrameType | None) -> None:
    del number, frame


def status_of(error: BaseException) -> ExitStatus:
    """Return the exit status of a command that was ended so: 128 and the signal's number."""
    return _STATUS.get(type(error), ExitStatus.INTERRUPTED)  # type: ignore[arg-type]


def end_by_signal(error: BaseException) -> None:
    """End the process by the signal that has ended the command; return where it was Ctrl-C.

    Shells make 128 and its number of that, and to systemd it is an end in order.
    """
    for number, each in _ERRORS.items():
        if isinstance(error, each):
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os.kill(os.getpid(), number)


def problem_of(error: BaseException, arguments: Sequence[str]) -> Problem:
    """Return SAN-CLI-005: what was ordered goes on, and how to have the rest ordered.

    Args:
        error: what ended the command.
        arguments: those of the command line, without the program.
    """
    how = _WORDS.get(type(error), "Ctrl-C")  # type: ignore[arg-type]
    return Problem(
        "SAN-CLI-005",
        f"stopped by {how}: what was ordered goes on; steps that were not ordered yet need the "
        "command again",
        f"'sanctl status' shows the state; then: {shlex.join(('sanctl', *arguments))}",
    )
