# SPDX-License-Identifier: GPL-2.0-or-later
"""A system call in a child process with a time limit, as on a disk that hangs it may never end."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Collection


def errno_of(
    call: Callable[[], None], *, within_s: float, keep: Collection[int] = ()
) -> int | None:
    """Make a call in a child process, and abandon the child if the call does not return in time.

    Changes of the call in memory are lost. The child closes all descriptors but `keep`, so that it
    keeps no lock of this process.

    Returns:
        The errno of its OSError, 0 without one; None where the call did not end in time.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _run(call, writing, {writing, *keep})
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], within_s)
        answer = os.read(reading, 16) if ready else b""
    finally:
        os.close(reading)
    if ready:
        os.waitpid(child, 0)
    return int(answer) if answer else None


def _run(call: Callable[[], None], writing: int, keep: Collection[int]) -> None:
    """Run the call in the child, which ends here."""
    try:
        close_all_but(keep)
        try:
            call()
            number = 0
        except OSError as error:
            number = error.errno or errno.EIO
        os.write(writing, str(number).encode())
    finally:
        os._exit(0)


def close_all_but(keep: Collection[int]) -> None:
    """Close what a child process has of its parent but `keep`, and put /dev/null in place of 0-2.

    A process that waits for the end of a pipe, a connection or a lock must not wait for the child.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for other in map(int, os.listdir("/proc/self/fd")):
        if other > 2 and other not in keep:
            try:
                os.close(other)
            except OSError:
                continue  # the descriptor of the listing itself
