# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads and writes pipes of programs that may hang: with a limit to how long nothing happens."""

from __future__ import annotations

import errno
import os
import select


def await_data(pipe: int, *, silence_s: float) -> None:
    """Return once a pipe has data, or has ended.

    Raises:
        TimeoutError: nothing came for that many seconds.
    """
    _await(pipe, select.POLLIN, silence_s)


def write_all(pipe: int, data: bytes | memoryview, *, silence_s: float) -> None:
    """Write all of some data to a pipe that does not block (`os.set_blocking`).

    Raises:
        TimeoutError: nothing was taken for that many seconds.
        BrokenPipeError: nobody reads it any more.
    """
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            _await(pipe, select.POLLOUT, silence_s)
            with view[done:] as left:
                done += os.write(pipe, left)


def _await(pipe: int, event: int, silence_s: float) -> None:
    poll = select.poll()
    poll.register(pipe, event)
    if not poll.poll(silence_s * 1000):
        raise TimeoutError(errno.ETIMEDOUT, f"nothing happened for {silence_s:g} s")
