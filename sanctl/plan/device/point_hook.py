# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of the hooks of restore points: which file runs as root, when an application was quiet."""

from __future__ import annotations

import stat
from collections.abc import Collection, Sequence
from typing import NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.model.point_hook import HookRun, PointHook

#: What is left of the limit when the hold begins, at least: the hold itself, twice.
_HOLD_LEFT_S = 1.0


class Owned(NamedTuple):
    """What the kernel says of a file, or of a folder on the way to it; a link is not followed."""

    path: str
    mode: int
    uid: int


class Held(NamedTuple):
    """What the process that keeps an application quiet notes before the hook's first run.

    Attributes:
        token: the attempt at a restore point that it is for.
        pid: its process.
        ticks: when that began (`system.process_start`).
        deadline_s: when it ends, on the monotonic clock.
    """

    token: str
    pid: int
    ticks: str
    deadline_s: float

    @classmethod
    def parse(cls, text: str) -> Held | None:
        """Read what `str` wrote; None for anything else."""
        words = text.split(" ")
        if len(words) != 4 or not words[1].isdecimal():
            return None
        return cls(words[0], int(words[1]), words[2], float(words[3]))

    def __str__(self) -> str:
        return f"{self.token} {self.pid} {self.ticks} {self.deadline_s}"


def file_problem(folders: Sequence[Owned], file: Owned) -> str | None:
    """Return why a file does not run as a hook; None: it does.

    A hook runs as root, and its name comes from the CIB: so nobody but root may be able to change
    the file, or to put another one in its place.

    Args:
        folders: those above the file, up to the root.
        file: the file.
    """
    for each in (*folders, file):
        if each.uid != 0:
            return f"{each.path} does not belong to root"
        if each.mode & (stat.S_IWGRP | stat.S_IWOTH) and not stat.S_ISLNK(each.mode):
            return f"{each.path} can be written by others than root (mode {each.mode & 0o7777:04o})"
    for each in folders:
        if not stat.S_ISDIR(each.mode):
            return f"{each.path} is no folder"
    if not stat.S_ISREG(file.mode):
        return f"{file.path} is no regular file; links are not followed"
    if not file.mode & stat.S_IXUSR:
        return f"{file.path} is not executable"
    return None


def code_without_hook(hook: PointHook, error: CommandError) -> str:
    """Return the code that a restore point gets which is made although its hook failed.

    Raises:
        CommandError: the order does not allow that.
    """
    problem = error.problems[0]
    if hook.or_crash:
        return problem.code
    raise CommandError(
        Problem(
            problem.code,
            f"{problem.text}; no restore point was made. 'journalctl -t sanctl-hook' there has "
            "what hooks print; --or-crash makes a crash-consistent point instead",
        )
    )


def concerns(holder: str, note: str, devices: Collection[str]) -> bool:
    """Whether a hook that has not ended may keep an application of one of these devices quiet.

    A note that cannot be read may be of any devices.

    Args:
        holder: the device whose unit the hook has: of a group the first.
        note: what is noted of it, as `HookRun` writes it.
        devices: the devices.
    """
    run = HookRun.parse(note)
    return run is None or not {holder, *run.group}.isdisjoint(devices)


def left_problem(node: str, note: str) -> Problem:
    """Return why no hook begins where that of a restore point before has not ended.

    Args:
        node: the node.
        note: what is noted of that one, as `HookRun` writes it.
    """
    run = HookRun.parse(note)
    which = (
        f"hook {run.hook.name} failed after restore point {run.point}" if run else "a hook failed"
    )
    return Problem(
        "SAN-HOOK-008",
        f"{node}: {which}, and again now: the application may still be quiet, and no other hook "
        "begins before that one has succeeded",
    )


def check_time_left(held: Held | None, token: str, now_s: float) -> None:
    """Check before the hold that the application stays quiet until its end.

    Raises:
        CommandError: it does not.
    """
    if held is None or held.token != token or held.deadline_s - now_s < _HOLD_LEFT_S:
        raise _over()


def check_was_quiet(held: Held | None, token: str, running_ticks: str) -> None:
    """Check after the copies that the application was kept quiet all the time.

    Whatever ends its being quiet (the limit, the unit's stop, a kill) ends that process first.

    Args:
        held: what that process has noted.
        token: the attempt at the restore point.
        running_ticks: when the process of that number began which runs now; empty: none does.

    Raises:
        CommandError: it was not, or that is not known.
    """
    if held is None or held.token != token or not running_ticks or held.ticks != running_ticks:
        raise _over()


def _over() -> CommandError:
    return CommandError(
        Problem(
            "SAN-HOOK-006",
            "the application was not kept quiet until all replicas were copied: its time was over, "
            "or what kept it quiet was ended",
        )
    )
