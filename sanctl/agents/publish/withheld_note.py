# SPDX-License-Identifier: GPL-2.0-or-later
"""The note of a replica that has no score until a peer has joined Pacemaker.

Its monitors need not be in a hurry (sanctl/plan/device/monitor_turn.py).
"""

from __future__ import annotations

import contextlib

from sanctl.system import state_files

_KIND = "withheld"
_UNCONFIRMED = "Consistent"


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


def published_field(disk: str | None, *, is_withheld: bool, has_score: bool) -> str:
    """Return what is published of that: of any replica that is withheld, and where it may seem so.

    A Consistent replica is one that was never connected, with DRBD 8.4. DRBD 9 calls others so,
    too. Of one that has no score for another reason nothing is said.
    """
    if is_withheld:
        return " withheld=1"
    return " withheld=0" if disk == _UNCONFIRMED and has_score else ""


def exists(device: str) -> bool:
    """Whether that is noted; no where it is not known."""
    try:
        return state_files.of_device(device, _KIND).exists()
    except OSError:
        return False
