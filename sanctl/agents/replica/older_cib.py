# SPDX-License-Identifier: GPL-2.0-or-later
"""The state file that says that the CIB is older than what is noted beside a device's data.

That note is an order by which the device is held (agents/restore/noted_hold.py). Until the CIB
knows of it this node keeps hosts out, and says so with its replica's state.
"""

from __future__ import annotations

from sanctl.system import state_files

_KIND = "hold-older"


def note(name: str, order: str) -> bool:
    """Note by which order a device is held here; return whether that is new.

    Raises:
        OSError: there is no room for the note.
    """
    made = state_files.of_device(name, _KIND)
    if made.exists() and made.read() == order:
        return False
    made.write(order)
    return True


def forget(name: str) -> None:
    """Note that the CIB is not older, if it was.

    Raises:
        OSError: the note cannot be removed.
    """
    state_files.of_device(name, _KIND).remove()


def published_field(name: str) -> str:
    """Return what a replica publishes of it; empty: the CIB is not older, as far as is known."""
    note_of = state_files.of_device(name, _KIND)
    if not note_of.exists():
        return ""
    from sanctl.model.device_restore import OLDER_KEY, packed  # noqa: PLC0415 - rarely needed

    return f" {OLDER_KEY}={packed(note_of.read())}"
