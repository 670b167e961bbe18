# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a call that the kernel may never end, as one on a disk that hangs."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Collection


def errno_of(
    call: Callable[[], None], *, within_s: float, keep: Collection[int] = ()
) -> int | None:
    """Make a call in a process of its own, and leave that behind if it does not come back.

    Args:
        call: what is called; what it changes in memory is lost.
        within_s: seconds that are waited for it.
        keep: descriptors that the process holds for as long as it lives; it has no others of
            this one's, so that no lock of ours stays with it.

    Returns:
        The number of its OSError, 0 without one; None where nothing came back.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _run(call, writing, {writing, *keep})
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], within_s)
        told = os.read(reading, 16) if ready else b""
    finally:
        os.close(reading)
    if ready:
        os.waitpid(child, 0)
    return int(told) if told else None


def _run(call: Callable[[], None], writing: int, keep: Collection[int]) -> None:
    """What that process does; it never comes back."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):  # whoever waits for their end must not wait for this
            os.dup2(null, standard)
        for other in map(int, os.listdir("/proc/self/fd")):
            if other > 2 and other not in keep:
                try:
                    os.close(other)
                except OSError:
                    continue  # that of the listing itself
        try:
            call()
            number = 0
        except OSError as error:
            number = error.errno or errno.EIO
        os.write(writing, str(number).encode())
    finally:
        os._exit(0)
