# SPDX-License-Identifier: GPL-2.0-or-later
"""pacemaker-based, the daemon that keeps the CIB: told to write it to disk again."""

from __future__ import annotations

import os
import signal

from sanctl.system.files import read_text

_NAME, _PARENT = "pacemaker-based", "pacemakerd"
_PROC = "/proc"


def enable_writes() -> bool:
    """Have pacemaker-based write the CIB to disk with its next change; return whether it will.

    It has a handler of SIGPIPE for that (Pacemaker, daemons/based/pacemaker-based.c and based_io.c:
    cib_enable_writes), in 2.1.5, 2.1.8 and 3.0. One without a handler would end by the signal, so
    it gets none.

    Raises:
        OSError: the processes of this node cannot be listed, or the signal not be sent.
    """
    for process in os.listdir(_PROC):
        # Not a child of it that writes just now: that has its name.
        if process.isdecimal() and _comm(process) == _NAME:
            status = dict(
                line.split(":\t", 1)
                for line in _read(f"{process}/status").splitlines()
                if ":\t" in line
            )
            caught = int(status.get("SigCgt", "0"), 16)
            if _comm(status.get("PPid", "0")) == _PARENT and caught >> signal.SIGPIPE - 1 & 1:
                os.kill(int(process), signal.SIGPIPE)
                return True
    return False


def _comm(process: str) -> str:
    return _read(f"{process}/comm").strip()


def _read(path: str) -> str:
    """Return what a process says of itself; empty: it has ended."""
    try:
        return read_text(f"{_PROC}/{path}")
    except (FileNotFoundError, ProcessLookupError):
        return ""
