# SPDX-License-Identifier: GPL-2.0-or-later
"""The exceptions that sanctl raises, a Problem with its stable code, and the exit statuses.

A code is part of the interface: scripts match on it, `sanctl explain CODE` describes it, and it
never changes its meaning. Imports nothing of ours.
"""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """Process exit statuses of the command line."""

    OK = 0
    DEGRADED = 1
    USAGE = 2
    CONFIG = 3
    REFUSED = 4
    COMMAND = 5
    UNREACHABLE = 6
    NOT_CONVERGED = 7
    PARTIAL = 8
    BUSY = 9
    BUG = 70
    INTERRUPTED = 130
    """What shells make of a program that Ctrl-C ended."""
    HUNG_UP = 129
    """The same of one that SIGHUP ended, such as by a lost terminal."""
    TERMINATED = 143
    """The same of one that SIGTERM ended."""


class Problem:
    """One thing that is wrong: a stable code, one line of text, and what to do about it."""

    __slots__ = ("code", "hint", "text")

    def __init__(self, code: str, text: str, hint: str = "") -> None:
        self.code = code
        self.text = text
        self.hint = hint

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problem):
            return NotImplemented
        return (self.code, self.text, self.hint) == (other.code, other.text, other.hint)

    def __hash__(self) -> int:
        return hash((self.code, self.text, self.hint))

    def __repr__(self) -> str:
        return f"Problem({self.code!r}, {self.text!r}, {self.hint!r})"

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.code}: {self.text}{hint}"


class SanctlError(Exception):
    """Base of all errors sanctl raises on purpose."""

    exit_status = ExitStatus.BUG

    def __init__(self, *problems: Problem) -> None:
        if not problems:
            raise ValueError("an error without a problem says nothing")
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))


class UsageError(SanctlError):
    """The request itself is malformed: a bad name, size or IQN. Nothing was changed."""

    exit_status = ExitStatus.USAGE


class ConfigError(SanctlError):
    """A configuration file is wrong; all its problems are listed."""

    exit_status = ExitStatus.CONFIG


class Refused(SanctlError):
    """The request was understood, and carrying it out would endanger data or cannot hold."""

    exit_status = ExitStatus.REFUSED


class CommandError(SanctlError):
    """A program that sanctl started failed, ran out of time, or is missing."""

    exit_status = ExitStatus.COMMAND


class Unreachable(SanctlError):
    """The cluster or a node cannot be observed; nothing is concluded from silence."""

    exit_status = ExitStatus.UNREACHABLE


class NotConverged(SanctlError):
    """A wait reached its deadline; the change was made, its effect was not seen."""

    exit_status = ExitStatus.NOT_CONVERGED


class PartialApply(SanctlError):
    """Some steps were done, and a later one was refused: the problems say which and why."""

    exit_status = ExitStatus.PARTIAL


class Busy(SanctlError):
    """Other commands changed the CIB at the same time, again and again."""

    exit_status = ExitStatus.BUSY
