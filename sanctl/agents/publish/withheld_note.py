# SPDX-License-Identifier: GPL-2.0-or-later
"""The note of a replica that has no score until a peer has joined Pacemaker.

Its monitors need not be in a hurry (sanctl/plan/device/monitor_turn.py).
"""

from __future__ import annotations

import contextlib

from sanctl.system import state_files

_KIND = "withheld"


def record(device: str, *, is_withheld: bool) -> None:
    """Note whether a replica has no score only because no peer has joined Pacemaker.

    Without room for the note its monitors wait for no turn.
    """
    note = state_files.of_device(device, _KIND)
    with contextlib.suppress(OSError):
        if note.exists() is not is_withheld:
            if is_withheld:
                note.write()
            else:
                note.remove()


def exists(device: str) -> bool:
    """Whether that is noted; no where it is not known."""
    try:
        return state_files.of_device(device, _KIND).exists()
    except OSError:
        return False
