# SPDX-License-Identifier: GPL-2.0-or-later
"""The state file that says that the CIB is older than what is noted beside a device's data.

That note is the last order by which the device was held (agents/restore/noted_hold.py). Until the
CIB knows of it, or of a later one, this node says so with its replica's state; if the order has not
ended, it keeps hosts out.
"""

from __future__ import annotations

import re

from sanctl.system import state_files

_SAFE = re.compile(r"[A-Za-z0-9_ ./:@=-]+")
_KIND, _UNNOTED = "hold-older", "hold-unnoted"


def note(name: str, order: str) -> bool:
    """Note by which order a device is, or was, held here; return whether that is new.

    Raises:
        OSError: there is no room for the note.
    """
    made = state_files.of_device(name, _KIND)
    if made.exists() and made.read() == order:
        return False
    made.write(order)
    return True


def note_unnoted(name: str) -> bool:
    """Note that an order of a hold, or its end, could not be noted; return whether that is new.

    Raises:
        OSError: there is no room for the note.
    """
    made = state_files.of_device(name, _UNNOTED)
    is_new = not made.exists()
    made.write()
    return is_new


def forget_unnoted(name: str) -> None:
    """Note that it could be, if it could not.

    Raises:
        OSError: the note cannot be removed.
    """
    state_files.of_device(name, _UNNOTED).remove()


def forget(name: str) -> None:
    """Note that the CIB is not older, if it was.

    Raises:
        OSError: the note cannot be removed.
    """
    state_files.of_device(name, _KIND).remove()


def published_field(name: str) -> str:
    """Return what a replica publishes of it; empty: the CIB is not older, as far as is known."""
    noted = state_files.of_device(name, _KIND).read()
    is_unnoted = state_files.of_device(name, _UNNOTED).exists()
    if not (noted or is_unnoted):
        return ""
    from sanctl.model import device_restore  # noqa: PLC0415 - rarely needed

    field = f" {device_restore.UNNOTED_KEY}=1" if is_unnoted else ""
    if noted:
        # What a damaged disk gives instead of a note may have signs that end the field, or more.
        is_readable = device_restore.RestoreOrder.parse(noted) and _SAFE.fullmatch(noted)
        word = device_restore.packed(noted) if is_readable else device_restore.UNREADABLE
        field += f" {device_restore.OLDER_KEY}={word}"
    return field
