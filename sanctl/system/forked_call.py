# SPDX-License-Identifier: GPL-2.0-or-later
"""A call in a child process that is forked now and begun later, and that can be ended at any time.

For a system call that only a signal ends that kills its process (FICLONE: fs/xfs/xfs_reflink.c,
xfs_reflink_remap_blocks, looks for one after each extent). A thread cannot be killed alone, and a
fork in the moment in which others wait for the call would take from their time.

The child does nothing before it is told to, and dies with its parent: by PR_SET_PDEATHSIG, which
also ends the call, and, where it still waits, by the end of the pipe. Where the parent is stopped
or does not get the processor, a timer of the child's own ends it: a signal whose action is to end
the process is one that kills it (kernel/signal.c, complete_signal).
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
from collections.abc import Callable, Collection
from typing import NoReturn

from sanctl.system.isolated_call import close_all_but

_READY_S = 10.0
_READY = b"."
#: How much later the child's own timer is than its parent.
_LATER_S = 0.1
# prctl(2)
_PR_SET_PDEATHSIG = 1


class ForkedCall:
    """The child process, which waits.

    Its end has to be awaited by `end`, in any case.
    """

    def __init__(self, call: Callable[[], object], *, keep: Collection[int] = ()) -> None:
        """Fork the child; for a thread that outlives the call, as the child dies with it.

        Args:
            call: what the child calls. Its changes in memory are lost.
            keep: the descriptors that the call needs; the child closes all others.

        Raises:
            OSError: there is no child: no memory, no descriptor, or it did not get ready.
        """
        dies_with_parent = _dying_with(os.getpid())
        with contextlib.ExitStack() as own:
            with contextlib.ExitStack() as childs:
                begin, self._begin = os.pipe2(os.O_CLOEXEC)
                childs.callback(os.close, begin)
                own.callback(os.close, self._begin)
                self._answer, answer = os.pipe2(os.O_CLOEXEC)
                childs.callback(os.close, answer)
                own.callback(os.close, self._answer)
                self._child = os.fork()
                if self._child == 0:
                    _serve(call, dies_with_parent, begin, answer, keep)
                own.callback(_kill_and_reap, self._child)
            self._handle = os.pidfd_open(self._child)
            own.callback(os.close, self._handle)
            # Until the child is there and has closed what it does not need: later others wait.
            if not _has_data(self._answer, _READY_S) or os.read(self._answer, 1) != _READY:
                raise OSError(errno.ETIMEDOUT, "a child process did not get ready")
            own.pop_all()

    def begin(self, *, within_s: float) -> None:
        """Have the child make the call, which ends a moment after that time, if not before.

        A child that has died is found by `errno_of`.
        """
        with contextlib.suppress(BrokenPipeError):
            os.write(self._begin, f"{max(0.0, within_s) + _LATER_S:f}".encode())

    def errno_of(self, *, within_s: float, unless_readable: int = -1) -> int | None:
        """Wait for the end of the call, and leave it as it is where that does not come.

        Args:
            within_s: how long to wait, in seconds.
            unless_readable: a descriptor; data in it, or its end, end the wait.

        Returns:
            The errno of its OSError, 0 without one, EIO where the child died or another error came;
            None where the call did not end in time.
        """
        if not _has_data(self._answer, within_s, unless_readable):
            return None
        text = os.read(self._answer, 16)
        return int(text) if text.isdigit() else errno.EIO

    def kill(self) -> None:
        """End the child and its call, and do not wait for that; again does nothing."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def end(self, *, within_s: float) -> bool:
        """Kill the child, and return whether it is gone; for once, at last.

        One that is in a call of the kernel which no signal ends is left to itself: it is killed as
        soon as that call ends.
        """
        self.kill()
        try:
            is_gone = _has_data(self._handle, within_s)
            if is_gone:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self._child, 0)
            return is_gone
        finally:
            for each in (self._begin, self._answer, self._handle):
                os.close(each)


def _dying_with(parent: int) -> Callable[[], bool]:
    """Return what a child of that process calls to die with it; False: it has died already."""
    import ctypes  # noqa: PLC0415 - only where a copy is made

    # Looked up before the fork: another thread may hold a lock of the loader then.
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0 and os.getppid() == parent


def _kill_and_reap(child: int) -> None:
    # It has not been reaped, so the number is its own.
    os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def _has_data(descriptor: int, within_s: float, unless: int = -1) -> bool:
    """Whether a descriptor has data, or has ended, in time and before another one has."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if unless >= 0:
        poll.register(unless, select.POLLIN)
    return descriptor in dict(poll.poll(max(0.0, within_s) * 1000))


def _serve(
    call: Callable[[], object],
    dies_with_parent: Callable[[], bool],
    begin: int,
    answer: int,
    keep: Collection[int],
) -> NoReturn:
    """Wait for the word and make the call, in the child, which ends here."""
    try:
        if dies_with_parent():
            close_all_but({begin, answer, *keep})
            os.write(answer, _READY)
            if limit := os.read(begin, 32):
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, float(limit))
                os.write(answer, str(_errno_of(call)).encode())
    finally:
        # Neither `atexit` nor the ends of objects: they are the parent's.
        os._exit(0)


def _errno_of(call: Callable[[], object]) -> int:
    try:
        call()
    except OSError as error:
        return error.errno or errno.EIO
    return 0
