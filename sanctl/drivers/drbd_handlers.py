# SPDX-License-Identifier: GPL-2.0-or-later
"""Which calls of the fence-peer handler the kernel waits for, read from /proc without a process.

DRBD has a kernel thread of its own call the handler of a Primary that has lost its peer (drbd_nl.c,
conn_try_outdate_peer_async, in 8.4 and 9). The thread starts `drbdadm fence-peer RESOURCE` and
waits for it; what the handler's own program does after drbdadm has ended reaches nobody. For a
promotion the same program is started without that thread.
"""

from __future__ import annotations

import os

from sanctl.model.drbd import HandlerCalls
from sanctl.system.files import read_text

_PROC = "/proc"
_THREAD, _PROGRAM, _HANDLER = "drbd_async_h", "drbdadm", "fence-peer"


def observe_calls() -> HandlerCalls:
    """Return the calls of fence-peer that are under way on this node.

    Raises:
        OSError: /proc could not be read; a call may be under way.
    """
    threads, resources = 0, []
    for entry in os.listdir(_PROC):
        if not entry.isdecimal():
            continue
        name = _read(f"{_PROC}/{entry}/comm").strip()
        if name == _THREAD:
            threads += 1
        elif name.startswith(_PROGRAM):
            # drbdadm may run under the name of the version that it has chosen (drbdadm-84).
            words = _read(f"{_PROC}/{entry}/cmdline").rstrip("\0").split("\0")
            if _HANDLER in words[1:-1]:
                resources.append(words[-1])
    return HandlerCalls(threads, tuple(resources))


def _read(path: str) -> str:
    try:
        return read_text(path)
    except (FileNotFoundError, ProcessLookupError):
        return ""  # The process has ended meanwhile.
