# SPDX-License-Identifier: GPL-2.0-or-later
"""Room of a pool that a process of this node was granted for a copy that it has not made yet.

A pool that has room for one more copy has it for each of those who look at once. So one looks at a
time, and notes what it was granted: the next one counts that as shared already. A note ends when
the copy is made, from when on its blocks are seen as shared, or with its process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from sanctl.errors import CommandError, Problem
from sanctl.plan.device.point_room import ClaimedFile
from sanctl.system import process_start, state_files

_KIND = "room-claim"
#: Longer than a look at all files of a large pool; a standby's answer is waited for as long.
_LOCK_S = 30.0


class Claim:
    """What a process was granted; it holds until its end, or that of the process."""

    def __init__(self, note: state_files.StateFile) -> None:
        self._note = note

    def end(self) -> None:
        """Count it no longer; also twice."""
        # One that stays has a process that ends soon.
        with contextlib.suppress(OSError):
            self._note.remove()


@contextlib.contextmanager
def locked(pool: str) -> Iterator[None]:
    """Keep others from looking at the room of a pool meanwhile.

    Raises:
        CommandError: another process has been looking for too long, or /run has no room.
    """
    with contextlib.ExitStack() as held:
        with _said(pool):
            path = state_files.pool_lock(pool, "room")
            is_mine = held.enter_context(state_files.locked(path, wait_s=_LOCK_S))
        if not is_mine:
            raise _problem(pool, f"another process has been looking at it for {_LOCK_S:g} s")
        yield


def present(pool: str) -> tuple[ClaimedFile, ...]:
    """Return what processes that run were granted in a pool; remove what the others left.

    Call with the lock.

    Raises:
        CommandError: it is not known.
    """
    found = []
    with _said(pool):
        for suffix in state_files.node_suffixes(_KIND):
            note = state_files.of_node(f"{_KIND}.{suffix}")
            words = note.read().split()
            if not words:
                continue  # It has just ended.
            if not _runs(words[0]):
                # Without room on /run, too, it counts for nothing.
                with contextlib.suppress(OSError):
                    note.remove()
            elif len(words) != 4 or not words[3].isdecimal():
                raise _problem(pool, f"{note.path} cannot be read")
            elif words[1] == pool:
                found.append(ClaimedFile(words[2], int(words[3])))
    return tuple(found)


def note(pool: str, file: str, size_bytes: int, token: str) -> Claim:
    """Note that this process was granted the room for a copy. Call with the lock.

    Args:
        pool: the pool's name.
        file: the name of the data file, of a device that is there or of one that is being made.
        size_bytes: its size.
        token: what no other copy of this process has.

    Raises:
        CommandError: it could not be noted.
    """
    pid = os.getpid()
    with _said(pool):
        started = process_start.ticks(pid)
        if not started:
            raise _problem(pool, f"/proc does not say when process {pid} began")
        noted = state_files.of_node(f"{_KIND}.{pid}-{token}")
        noted.write(f"{pid}:{started} {pool} {file} {size_bytes}")
    return Claim(noted)


def _runs(owner: str) -> bool:
    pid, _, started = owner.partition(":")
    return pid.isdecimal() and bool(started) and process_start.ticks(int(pid)) == started


@contextlib.contextmanager
def _said(pool: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _problem(pool, str(error)) from error


def _problem(pool: str, why: str) -> CommandError:
    return CommandError(
        Problem(
            "SAN-SNAP-019",
            f"what others were granted of the room of pool {pool} is not known: {why}",
            "try again; 'df /run' shows whether that is full",
        )
    )
