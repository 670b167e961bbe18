# SPDX-License-Identifier: GPL-2.0-or-later
"""A system call in a thread with a time limit: for ioctls that wait for I/O of the kernel.

A thread, and no child process as in `isolated_call`: a fork copies the memory map of the agent,
which costs more than starting a small program. These calls are on the failover path.

After the time limit the thread gets a signal. What the kernel can interrupt ends with EINTR and
without effect, as a program that is killed would (the swap of a dm table that waits for I/O:
dm_wait_for_completion in drivers/md/dm.c). What it cannot is abandoned: the process goes on, and
ends only when that call does.
"""

from __future__ import annotations

import contextlib
import errno
import signal
from collections.abc import Callable

_SIGNAL = signal.SIGUSR1
_INTERRUPTED_S = 0.5


def allow_in_threads() -> None:
    """Have `errno_of` work in each thread of this process. For the main thread, once."""
    signal.signal(_SIGNAL, lambda *_: None)


def errno_of(call: Callable[[], object], *, within_s: float) -> int | None:
    """Make a call in a thread, and interrupt it if it does not return in time.

    For the main thread, which may set signal handlers; for others after `allow_in_threads`.

    Returns:
        The errno of its OSError, 0 without one; None where the call did not end in time.

    Raises:
        Exception: any error of the call that is no OSError.
    """
    import threading  # noqa: PLC0415 - monitors do not pay for it

    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    # The handler does nothing: without one the signal would end the process.
    handler = signal.getsignal(_SIGNAL)
    has_handler = callable(handler)
    if not has_handler:
        allow_in_threads()
    try:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(within_s)
        if thread.is_alive():
            with contextlib.suppress(OSError):
                signal.pthread_kill(thread.ident or 0, _SIGNAL)
            # A call that ends just now with another result than EINTR has had its effect; it is
            # reported as late all the same.
            thread.join(_INTERRUPTED_S)
            return None
    finally:
        # Not while a thread may still get the signal: its default action would end the process.
        if not has_handler and not thread.is_alive():
            signal.signal(_SIGNAL, handler)
    if not errors:
        return 0
    if isinstance(errors[0], OSError):
        return errors[0].errno or errno.EIO
    raise errors[0]
