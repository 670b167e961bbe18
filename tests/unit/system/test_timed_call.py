# SPDX-License-Identifier: GPL-2.0-or-later
"""A call in a thread: its errno, and what becomes of one that does not return in time."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import threading
import time

import pytest

from sanctl.system import timed_call


def test_the_errno_of_a_call_is_returned() -> None:
    assert timed_call.errno_of(lambda: None, within_s=10) == 0
    assert timed_call.errno_of(lambda: os.rmdir("/none"), within_s=10) == errno.ENOENT


def test_another_error_is_raised_in_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        timed_call.errno_of(lambda: 1 // 0, within_s=10)


def test_a_late_call_that_the_kernel_can_interrupt_ends_without_effect() -> None:
    """As a dm table must not be swapped after the agent has reported that it was not."""
    libc = ctypes.CDLL(None, use_errno=True)
    ended: list[int] = []

    def waits() -> None:
        if libc.poll(None, 0, 30_000) < 0:
            ended.append(ctypes.get_errno())

    begun_s = time.monotonic()
    assert timed_call.errno_of(waits, within_s=0.1) is None
    assert time.monotonic() - begun_s < 10
    assert ended == [errno.EINTR]
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_a_late_call_that_it_cannot_is_abandoned() -> None:
    hangs = threading.Event()
    assert timed_call.errno_of(hangs.wait, within_s=0.05) is None
    # The signal may still arrive: without a handler it would end the process.
    assert callable(signal.getsignal(signal.SIGUSR1))
    hangs.set()
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_in_another_thread_it_needs_a_handler() -> None:
    found: list[object] = []

    def run() -> None:
        try:
            found.append(timed_call.errno_of(lambda: os.rmdir("/none"), within_s=10))
        except ValueError as error:
            found.append(str(error))

    for is_allowed in (False, True):
        if is_allowed:
            timed_call.allow_in_threads()
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert "main thread" in str(found[0]) and found[1:] == [errno.ENOENT]
    # As a call of the main thread leaves it.
    assert timed_call.errno_of(lambda: None, within_s=10) == 0
    assert callable(signal.getsignal(signal.SIGUSR1))
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
